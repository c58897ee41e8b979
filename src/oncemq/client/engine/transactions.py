"""Owners and stages of a client's transactions, and the commits of which nobody knows the end.

How a transaction works. Its inputs are messages that were taken and not settled; its outputs are
messages that were put and that nobody may see yet. The commit makes both take effect in one record
at the server, or neither. Four things make that safe over a network that loses and repeats:

1. An owner and a number. A commit is named by its owner, a random name that this client made up,
   and by a number that only grows. The server does the same owner's number once. So a commit whose
   answer was lost is simply sent again, under the same number, until it is answered.
2. A stage. Outputs are gathered in memory up to a limit, then sent into a stage of the server: a
   list of batches that no topic has. The commit names ranges of the stage and the topics that get
   them. A stage has numbers of its own, so a batch that is sent twice is in it once. It is used by
   one transaction after the other, and left for a new one when it has grown, when it served many,
   or when it was silent so long that the server may have given it up.
3. Inputs by their places. A commit says of each topic from which offset to which it settles, and
   under which subscription. The server refuses it where its cursor stands elsewhere: somebody else
   has taken these messages. This client's disk moves its cursor after the server did, never before.
4. Doubt is ended before anything follows. When a caller gives up waiting (a timeout, an interrupt)
   its commit may have happened or may happen yet. It is kept as a doubt. Before the next get or
   commit of this client, an empty commit under the next number is sent: no earlier one can take
   effect after it, and its answer says which number was the last that did. Then it is known whether
   the doubtful one happened; its messages count as taken, or come again.

An owner, its numbers and its stage are one `OwnerSession`. A transaction leases a session and gives
it back when its end is known, so that a client that runs one transaction after the other has one
session, and as many as ran at once else. What one transaction does is `verbs.transaction_work`.

Laws: what became of a commit without an answer is learned before the next get or commit. At most
one transaction of a client gets at a time: the cursor of a topic has one place.
"""

import gc
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from oncemq.client.context import ClientContext
from oncemq.client.engine.stage_puts import StageLine
from oncemq.client.ticket import Verb
from oncemq.errors import InvalidRequest
from oncemq.protocol.client_requests import KnownCommits
from oncemq.protocol.names import ProducerId
from oncemq.session.outgoing import Outgoing
from oncemq.session.publisher import GUEST_MICROS

ROTATE_BYTES = 64 << 20  # a stage of this size is left for another: it is freed as a whole
ROTATE_COMMITS = 1_000
SILENT_MS = 60_000  # how long a stage is taken to live where the server does not say


class OwnerSession:
    """An owner with its numbers, and the stage it uses over and over. One transaction at a time."""

    def __init__(self, client: ClientContext, outgoing: Outgoing) -> None:
        self.owner = f"_{client.state.random_bytes(16).hex()}"
        self.number = 0
        self._client = client
        self._outgoing = outgoing
        self._used = client.now()
        self.acknowledged = 0  # the number of its last commit that was answered
        self.stage = self._new_stage()

    def refresh(self) -> None:
        """A stage that was silent for long is left before the server gives it up.

        Not sooner than that: each stage that was published from stays on the server for a while.
        """
        now = self._client.now()
        lives_ms = self.stage.silence_ms or SILENT_MS
        if now - self._used > lives_ms * 1_000 // 2 and self.stage.count:
            self.stage.drop()
            self.stage = self._new_stage()
        self._used = now

    def _new_stage(self) -> StageLine:
        self._commits = 0
        return StageLine(
            self._client, self._outgoing, ProducerId(self._client.state.random_bytes(16))
        )

    def next_number(self) -> int:
        """The number of the next commit."""
        self.number += 1
        return self.number

    def committed(self, number: int) -> None:
        """What was staged is published; an old stage is left to the server."""
        self.acknowledged, self._used = number, self._client.now()
        self._commits += 1
        if self.stage.bytes >= ROTATE_BYTES or self._commits >= ROTATE_COMMITS:
            self.stage.drop()
            self.stage = self._new_stage()

    @property
    def is_known(self) -> bool:
        """Whether the server knows the owner, unless it lost it: it forgets silent ones."""
        return bool(self.acknowledged) and self._client.now() - self._used < GUEST_MICROS

    def gave_up(self, staged_before: int) -> None:
        """What was staged since is not wanted."""
        if self.stage.count > staged_before or self.stage.error is not None:
            self.stage.drop()
            self.stage = self._new_stage()


class DoubtfulCommit(Protocol):
    """A transaction whose commit was sent, and has no answer."""

    def resolve(self) -> Verb[None]:
        """Learn whether it has happened, and if not, see to it that it never will."""
        ...


class Transactions:
    """The sessions of one client."""

    def __init__(self, client: ClientContext, outgoing: Outgoing) -> None:
        self._client = client
        self._outgoing = outgoing
        self._sessions: list[OwnerSession] = []
        self._free: list[OwnerSession] = []
        self._doubts: list[DoubtfulCommit] = []
        self.taking: object | None = None  # the one that gets
        self._begun: list[tuple[Callable[[], object], Callable[[], None]]] = []

    def begun(self, owner: Callable[[], object], abort: Callable[[], None]) -> None:
        """One has begun. `owner` gives None once its block is over, however that came about.

        A signal handler that raises may keep a block from ending its transaction: the next one
        who gets or begins does it then.
        """
        self._begun.append((owner, abort))

    def end_abandoned(self) -> None:
        """End those whose blocks are over."""
        for owner, abort in self._begun:
            if owner() is None:
                abort()  # does nothing where it is over
        self._begun = [each for each in self._begun if each[0]() is not None]

    def other_than(self, mine: object | None) -> object | None:
        """The transaction that gets, unless it is this one; None: nobody does.

        One whose block is over may be in a ring of frames until garbage is collected (see
        `client.blocking.getting`): nobody is refused because of it.
        """
        self.end_abandoned()
        if self.taking is not None and self.taking is not mine:
            gc.collect()
            self.end_abandoned()
        return None if self.taking is mine else self.taking

    def lease(self) -> OwnerSession:
        """A session that nobody else uses."""
        self.end_abandoned()
        if not self._free:
            self._free.append(OwnerSession(self._client, self._outgoing))
            self._sessions.append(self._free[-1])
        self._free[-1].refresh()
        return self._free.pop()

    def acknowledged(self) -> tuple[KnownCommits, ...]:
        """What the server must have of this start's transactions."""
        known = islice((each for each in self._sessions if each.is_known), 1_000)
        return tuple(KnownCommits(each.owner, each.acknowledged) for each in known)

    def give_back(self, session: OwnerSession) -> None:
        """It may be used again."""
        self._free.append(session)

    def doubt(self, transaction: DoubtfulCommit) -> None:
        """A commit was sent, and what became of it is not known."""
        self._doubts.append(transaction)

    def certain(self) -> Verb[None]:
        """Learn what became of every commit in doubt; before anything is got."""
        if self.other_than(None) is not None:
            raise InvalidRequest("a transaction is open here: get with it, or end it first")
        yield from self.learn()

    def learn(self) -> Verb[None]:
        """What became of every commit in doubt: until then each keeps a session and a stage."""
        while self._doubts:
            doubt = self._doubts[0]
            yield from doubt.resolve()
            self._doubts = [each for each in self._doubts if each is not doubt]
