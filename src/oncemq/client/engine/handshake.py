"""How a start of a client is let in: its hellos, and what it does when another was let in instead.

Laws: a refusal ends this start only after its own claim was asked about. Where another start went
ahead of it meanwhile, it claims anew; where that was a later one on the same disk, it is fenced;
only a state that was out of date from the beginning is called so. A state that knows more than
the server has is told what, and not let in: a person decides (`once client accept`).
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncemq.client.lost_history import (
    LostHistory,
    lost_of,
    went_back,
    what_is_lost,
    with_way_out,
)
from oncemq.client.refusals import error_of
from oncemq.client.state.known import Known
from oncemq.errors import Fenced, HistoryLost, Locked, StorageFull, StorageRefused
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import ANONYMOUS_EPOCH, Epoch, Micros
from oncemq.protocol.replies import Compared, RefusedReply, Reply, TakenReply, Welcome
from oncemq.protocol.requests import Compare
from oncemq.protocol.step import Body
from oncemq.session.handshake import Handshake, LogSeen

if TYPE_CHECKING:
    from oncemq.client.engine.engine import Engine

COMPARED_MAX = 1_000  # cursors in one question
DISK_MICROS = 1_000_000  # until a disk of our own that had no room is tried again

logger = logging.getLogger("oncemq.client")


class HandshakeEngine:
    """The hellos of one engine, from its start or from a server that does not know it."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._greeting: Handshake | None = None
        self.token = 0  # of the hello under way
        self.refusal: RefusedReply | None = None  # why it is not let in yet, and may be later
        self.next_try: Micros | None = None

    def begin(self) -> None:
        """Say hello, if that is due and not under way."""
        engine = self._engine
        if engine.client_epoch is not None or self._greeting is not None:
            return
        if self.next_try is None or engine.now() >= self.next_try:
            self.next_try = None
            with self._own_disk():
                self._say_hello(engine.state.greeting())

    def _say_hello(self, greeting: Handshake) -> None:
        self._greeting = greeting
        self.token = self._engine.begin(lambda: (greeting.hello(), None), self._answered)

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
            self.next_try = Micros(self._engine.now() + DISK_MICROS)
        except StorageRefused as error:
            self._engine.fail(error)

    def _answered(self, reply: Reply, _: Sequence[Body]) -> None:
        self.refusal = None
        if self._engine.failure is None:  # else nobody is to be let in any more
            with self._own_disk():
                self._heard(reply)

    def _heard(self, reply: Reply) -> None:
        greeting, engine = self._greeting, self._engine
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
            known = engine.state.known()._replace(log=greeting.log)
            self._compare(known, lambda lost: self._refused(reply, lost))
        else:
            engine.fail(error_of(reply))

    def _welcomed(self, greeting: Handshake, welcome: Welcome) -> None:
        """It has its epoch, which is on disk first; if the log went back, it compares."""
        here = LogSeen(welcome.log_id, welcome.generation)
        grant = welcome.client_epoch, greeting.claim, welcome.moment
        known = self._engine.state.granted(*grant)
        self._engine.granted = welcome.client_epoch
        self._engine.meet(here.generation)
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
                    *(self._engine.client, now, before),
                )
            self._agreed(known, here, welcome)

        self._compare(known, compared)

    def _compare(self, known: Known, then: Callable[[LostHistory], None]) -> None:
        """Ask what the server lost of all that this state knows, a page at a time."""
        engine, generation = self._engine, known.log.generation
        journal = engine.state.journal
        last_epoch = journal.last_epoch() if journal else ANONYMOUS_EPOCH
        places = engine.subscriber.known_with(known.cursors)
        commits = list(engine.transactions.acknowledged())
        ended = list(known.ended)
        answers: list[Compared] = []

        def ask() -> None:
            if answers and not places and not commits and not ended:
                then(lost_of(answers))
                return
            question = Compare(
                engine.client,
                generation,
                last_epoch,
                tuple(places[:COMPARED_MAX]),
                commits=tuple(commits),
                ended=() if places else tuple(ended[:COMPARED_MAX]),
                grants=known.grants,
            )
            if not places:
                del ended[:COMPARED_MAX]
            del places[:COMPARED_MAX]
            commits.clear()
            self.token = engine.begin(lambda: (question, None), answered)

        def answered(reply: Reply, _: Sequence[Body]) -> None:
            if engine.failure is not None:
                return
            if isinstance(reply, RefusedReply):
                engine.fail(error_of(reply))
                return
            assert isinstance(reply, Compared)
            answers.append(reply)
            with self._own_disk():
                ask()

        ask()

    def _refused(self, reply: RefusedReply, lost: LostHistory) -> None:
        """Told what is lost; of a state that only looks like an old copy, too."""
        if reply.code == "history_lost":
            self._lost(reply.detail, lost)
        elif lost.parted:
            self._lost(
                f"client {self._engine.client!r} comes to a branch of the server's history that "
                "let it in before, and since then it was let in on another: copies of the "
                "server's data are served in turn",
                lost,
            )
        else:
            self._engine.fail(error_of(reply))

    def _lost(self, why: str, lost: LostHistory) -> None:
        error = HistoryLost(f"{why}{what_is_lost(lost)}")
        self._engine.fail(with_way_out(error, self._engine))

    def _agreed(self, known: Known, here: LogSeen, welcome: Welcome) -> None:
        """The server has all that this state knows."""
        engine, log = self._engine, known.log
        self._greeting = None
        if here != log:
            engine.state.know(here)
        engine.let_in(welcome, known)

    def _was_overtaken(self, greeting: Handshake) -> bool:
        """Whether the state was good when this start read it, and another went ahead since."""
        journal = self._engine.state.journal
        assert journal is not None
        return greeting.was_good or journal.last_epoch() > greeting.recorded

    def _claim_anew(self, before: Handshake, over: Epoch = ANONYMOUS_EPOCH) -> None:
        """Start once more, unless a later start of the same state was let in meanwhile."""
        greeting = self._engine.state.greeting(over)
        if greeting.follows(before):
            self._say_hello(greeting)
        else:
            fenced = "a newer client with the same id uses this state; this one must stop"
            self._engine.fail(Fenced(fenced))
