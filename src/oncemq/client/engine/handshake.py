"""How a start of a client is let in: its hellos, and what it does when another was let in instead.

Laws: a refusal ends this start only after its own claim was asked about. Where another start went
ahead of it meanwhile, it claims anew; where that was a later one on the same disk, it is fenced;
only a state that was out of date from the beginning is called so. A state that knows more than
the server has is told what, and not let in: a person decides (`once client accept`).
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from oncemq.client.context import ClientContext
from oncemq.client.engine.transactions import Transactions
from oncemq.client.lost_history import (
    LostHistory,
    lost_of,
    went_back,
    what_is_lost,
    with_way_out,
)
from oncemq.client.refusals import error_of
from oncemq.client.state.known import Known
from oncemq.client.values import Message
from oncemq.errors import Fenced, HistoryLost, Locked, StorageFull, StorageRefused
from oncemq.protocol.client_requests import KnownCommits
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import ANONYMOUS_EPOCH, ClientId, Epoch, Micros
from oncemq.protocol.replies import Compared, RefusedReply, Reply, TakenReply, Welcome
from oncemq.protocol.requests import Compare, Request, Settled
from oncemq.protocol.step import Body
from oncemq.session.handshake import Handshake, LogSeen
from oncemq.session.outgoing import Outgoing
from oncemq.session.subscriber import Subscriber

COMPARED_MAX = 1_000  # cursors in one question
DISK_MICROS = 1_000_000  # until a disk of our own that had no room is tried again

logger = logging.getLogger("oncemq.client")


@dataclass(slots=True)
class Comparison:
    """All that a state knows, as the server is asked about it: page after page."""

    known: Known
    last_epoch: Epoch
    places: list[Settled]
    commits: list[KnownCommits]
    ended: list[Settled]
    then: Callable[[LostHistory], None]
    answers: list[Compared] = field(default_factory=list[Compared])
    question: Compare | None = None  # the page that is asked about

    @property
    def is_over(self) -> bool:
        """Whether all was asked; nothing to ask about is a question, too."""
        return bool(self.answers) and not self.places and not self.commits and not self.ended

    def turn_page(self, client: ClientId) -> None:
        """The next question."""
        self.question = Compare(
            client,
            self.known.log.generation,
            self.last_epoch,
            tuple(self.places[:COMPARED_MAX]),
            commits=tuple(self.commits),
            ended=() if self.places else tuple(self.ended[:COMPARED_MAX]),
            grants=self.known.grants,
        )
        if not self.places:
            del self.ended[:COMPARED_MAX]
        del self.places[:COMPARED_MAX]
        self.commits.clear()


class LetIn(NamedTuple):
    """This start has its epoch, and knows nothing that the server does not have."""

    welcome: Welcome
    known: Known


Outcome = LogSeen | LetIn  # the log that the server has now; the end of the handshake


class HandshakeEngine:
    """The hellos of one client, from its start or from a server that does not know it.

    What concerns the other parts it leaves in `outcomes`, for the engine to carry out.
    """

    def __init__(
        self,
        client: ClientContext,
        outgoing: Outgoing,
        subscriber: Subscriber[Message],
        transactions: Transactions,
    ) -> None:
        self._client = client
        self._outgoing = outgoing
        self._subscriber = subscriber
        self._transactions = transactions
        self.outcomes: list[Outcome] = []
        self._greeting: Handshake | None = None
        self.refusal: RefusedReply | None = None  # why it is not let in yet, and may be later
        self.next_try: Micros | None = None

    def begin(self) -> None:
        """Say hello, if that is due and not under way."""
        client = self._client
        if client.client_epoch is not None or self._greeting is not None:
            return
        if self.next_try is None or client.now() >= self.next_try:
            self.next_try = None
            with self._own_disk():
                self._say_hello(client.state.greeting())

    def _say_hello(self, greeting: Handshake) -> None:
        self._greeting = greeting
        self._outgoing.begin(self, greeting)

    def request(self, key: Handshake | Comparison) -> tuple[Request, None]:
        """A hello, or a page of what is compared."""
        if isinstance(key, Handshake):
            return key.hello(), None
        assert key.question is not None
        return key.question, None

    def on_reply(self, key: Handshake | Comparison, reply: Reply, bodies: Sequence[Body]) -> None:
        """How the server answered a hello, or what it lacks."""
        del bodies
        if isinstance(key, Handshake):
            self._answered(reply)
        else:
            self._compared(key, reply)

    @contextmanager
    def _own_disk(self) -> Generator[None]:
        """What the client's own disk does while it is let in.

        Without room, or held by another process, it is tried again from the beginning: whatever
        was granted meanwhile is found by its claim. Anything else is the end of this client.
        """
        try:
            yield
        except (StorageFull, Locked) as error:
            self._greeting = None
            self.refusal = RefusedReply("storage_full", error.detail)
            self.next_try = Micros(self._client.now() + DISK_MICROS)
        except StorageRefused as error:
            self._client.fail(error)

    def _answered(self, reply: Reply) -> None:
        self.refusal = None
        if self._client.failure is None:  # else nobody is to be let in any more
            with self._own_disk():
                self._heard(reply)

    def _heard(self, reply: Reply) -> None:
        greeting, client = self._greeting, self._client
        assert greeting is not None
        assert isinstance(reply, Welcome | TakenReply | RefusedReply)
        if isinstance(reply, Welcome):
            if greeting.welcomed(reply):
                self._welcomed(greeting, reply)
            else:
                self._say_hello(greeting)
        elif greeting.refused(reply):
            self._say_hello(greeting)
        elif isinstance(reply, TakenReply):
            self._claim_anew(greeting, reply.client_epoch)
        elif reply.code == "stale_state" and self._was_overtaken(greeting):
            self._claim_anew(greeting)
        elif reply.code in ("history_lost", "stale_state"):
            known = client.state.known()._replace(log=greeting.log)
            self._compare(known, lambda lost: self._refused(reply, lost))
        else:
            client.fail(error_of(reply))

    def _welcomed(self, greeting: Handshake, welcome: Welcome) -> None:
        """It has its epoch, which is on disk first; if the log went back, it compares."""
        here = LogSeen(welcome.log_id, welcome.generation)
        grant = welcome.client_epoch, greeting.claim, welcome.moment
        known = self._client.state.granted(*grant)
        self._client.granted = welcome.client_epoch
        self.outcomes.append(here)
        if known.log.generation == here.generation:
            self._agreed(known, here, welcome)
            return

        def compared(lost: LostHistory) -> None:
            if any(lost):
                self._lost(went_back(known.log, here), lost)
                return
            if greeting.recorded:  # a new state knows nothing of what was there before
                now, before = in_words(here.generation), in_words(known.log.generation)
                logger.warning(
                    "server's log went back in time client=%s generation=%s before=%s: all that "
                    "this client took is there; what it put is compared when it puts again",
                    *(self._client.client, now, before),
                )
            self._agreed(known, here, welcome)

        self._compare(known, compared)

    def _compare(self, known: Known, then: Callable[[LostHistory], None]) -> None:
        """Ask what the server lost of all that this state knows, a page at a time."""
        journal = self._client.state.journal
        comparison = Comparison(
            known,
            journal.last_epoch() if journal else ANONYMOUS_EPOCH,
            self._subscriber.cursors.known_with(known.cursors),
            list(self._transactions.acknowledged()),
            list(known.ended),
            then,
        )
        self._ask(comparison)

    def _ask(self, comparison: Comparison) -> None:
        """The next page, or what all of them say."""
        if comparison.is_over:
            comparison.then(lost_of(comparison.answers))
        else:
            comparison.turn_page(self._client.client)
            self._outgoing.begin(self, comparison)

    def _compared(self, comparison: Comparison, reply: Reply) -> None:
        if self._client.failure is not None:
            return
        if isinstance(reply, RefusedReply):
            self._client.fail(error_of(reply))
            return
        assert isinstance(reply, Compared)
        comparison.answers.append(reply)
        with self._own_disk():
            self._ask(comparison)

    def _refused(self, reply: RefusedReply, lost: LostHistory) -> None:
        """Told what is lost; of a state that only looks like an old copy, too."""
        if reply.code == "history_lost":
            self._lost(reply.detail, lost)
        elif lost.parted:
            self._lost(
                f"client {self._client.client!r} comes to a branch of the server's history that "
                "let it in before, and since then it was let in on another: copies of the "
                "server's data are served in turn",
                lost,
            )
        else:
            self._client.fail(error_of(reply))

    def _lost(self, why: str, lost: LostHistory) -> None:
        error = HistoryLost(f"{why}{what_is_lost(lost)}")
        self._client.fail(with_way_out(error, self._client))

    def _agreed(self, known: Known, here: LogSeen, welcome: Welcome) -> None:
        """The server has all that this state knows."""
        self._greeting = None
        if here != known.log:
            self._client.state.know(here)
        self.outcomes.append(LetIn(welcome, known))

    def _was_overtaken(self, greeting: Handshake) -> bool:
        """Whether the state was good when this start read it, and another went ahead since."""
        journal = self._client.state.journal
        assert journal is not None
        return greeting.was_good or journal.last_epoch() > greeting.recorded

    def _claim_anew(self, before: Handshake, over: Epoch = ANONYMOUS_EPOCH) -> None:
        """Start once more, unless a later start of the same state was let in meanwhile."""
        greeting = self._client.state.greeting(over)
        if greeting.follows(before):
            self._say_hello(greeting)
        else:
            fenced = "a newer client with the same id uses this state; this one must stop"
            self._client.fail(Fenced(fenced))
