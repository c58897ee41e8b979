"""A person accepts that the server lost what a client knows: the client's state is moved to it.

Laws: nothing is changed before it was shown what is lost; nobody else uses the state meanwhile
(every slot of its outbox is locked); all of it changes, or nothing. Where both sides agree up to
an offset, the client goes on from there: nothing that it took comes again, and nothing that was
put since is passed over. Where nobody can say, it goes on from the server's own cursor.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from oncemq.client.admin.one_question import asking
from oncemq.client.lost_history import goes_on_again_at, goes_on_at
from oncemq.client.state.damage import naming_repair
from oncemq.client.state.journal import Journal
from oncemq.client.state.outbox import RandomBytes, Slot
from oncemq.client.state.paths import state_directory
from oncemq.client.state.unsent import parcel_of
from oncemq.errors import Locked, StaleState, StorageRefused
from oncemq.protocol.client_replies import LostCursor, LostNumbers, ThereAgain
from oncemq.protocol.client_requests import Compare, KnownNumbers, StartGrant
from oncemq.protocol.names import ClientId, Epoch, Offset, Sequence, SubscriptionId
from oncemq.protocol.replies import Compared
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import LogSeen
from oncemq.storage.disk import LocalDisk

PAGE = 1_000  # cursors, or producers' numbers, in one question


@dataclass(frozen=True, slots=True)
class Loss:
    """What a client knows and the server does not have."""

    known: LogSeen
    here: LogSeen
    last_epoch: Epoch  # the newest that the state was granted
    granted: Epoch  # by this server
    cursors: list[LostCursor]
    numbers: list[LostNumbers]
    parted: bool = False  # the client knows another branch of the log's history
    again: list[ThereAgain] = field(default_factory=list[ThereAgain])  # they had ended
    stale: bool = False  # the state is an old copy, and must not go on

    @property
    def is_another_log(self) -> bool:
        """Whether the server's data is not what this client ever talked to."""
        return bool(self.known.log_id) and self.known.log_id != self.here.log_id

    @property
    def is_nothing(self) -> bool:
        """Whether the client can go on as it is."""
        more = self.last_epoch > self.granted or self.parted
        lost = self.cursors or self.numbers or self.again
        return not (lost or more or self.is_another_log)


class Accepting(Protocol):
    """What a client knows, and can be told to forget, as `client.journal.Journal` keeps it."""

    def log(self) -> LogSeen: ...
    def last_epoch(self) -> Epoch: ...
    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]: ...
    def ended(self) -> tuple[Settled, ...]: ...
    def grants(self) -> tuple[StartGrant, ...]: ...
    def claims(self) -> tuple[int, ...]: ...
    def accept(
        self,
        log: LogSeen,
        cursors: Iterable[tuple[str, Offset | None]],
        again: Iterable[Settled] = (),
    ) -> None: ...


def questions(client: ClientId, journal: Accepting, slots: Iterable[Slot]) -> list[Compare]:
    """All that a state knows, as questions to the server, a page each."""
    places = sorted(journal.cursors().items())
    cursors = [Settled(topic, *place) for topic, place in places]
    numbers = [each for slot in slots for each in _numbers(slot)]
    pages = [
        slice(first, first + PAGE) for first in range(0, max(len(cursors), len(numbers), 1), PAGE)
    ]
    whose = client, journal.log().generation, journal.last_epoch()
    asked = [Compare(*whose, tuple(cursors[page]), tuple(numbers[page])) for page in pages]
    ended = journal.ended()
    parts = [ended[first : first + PAGE] for first in range(0, len(ended), PAGE)]
    asked += [Compare(*whose, ended=part) for part in parts]
    starts = {"grants": journal.grants(), "claims": journal.claims()[:PAGE]}
    return [msgspec.structs.replace(each, **starts) for each in asked]  # they say whose it all is


def loss_of(journal: Accepting, answers: Many[Compared]) -> Loss:
    """What the answers to these questions say is lost."""
    return Loss(
        journal.log(),
        LogSeen(answers[0].log_id, answers[0].generation),
        journal.last_epoch(),
        answers[0].client_epoch,
        [lost for each in answers for lost in each.cursors],
        [lost for each in answers for lost in each.numbers],
        answers[0].parted,
        [each for answer in answers for each in answer.again],
        any(answer.stale for answer in answers),
    )


def move(journal: Accepting, slots: Iterable[Slot], loss: Loss) -> None:
    """Move a state to what the server has: each producer's numbers, then all else at once.

    Cut short in between, the rest is still lost, and can be accepted again. Unsent puts
    go behind the numbers that the server has, but for the first of them whose answers were lost,
    or not noted: those it has, as their checksums show. Other puts of another branch may have
    the same numbers, and no recorded put is taken for one of those.
    """
    of = {(each.topic, each.producer): slot for slot in slots for each in _numbers(slot)}
    for lost in loss.numbers:
        slot = of[lost.topic, lost.producer]
        topic_id, next_sequence, _ = slot.lanes[lost.topic]
        slot.renumber(
            lost.topic,
            topic_id,
            kept_below=_first_that_is_not_there(slot, lost) or next_sequence,
            first=Sequence(lost.last_sequence + 1),
            gone=(),
        )
    again = [
        Settled(each.topic, each.subscription_id, goes_on_again_at(each)) for each in loss.again
    ]
    journal.accept(loss.here, [(lost.topic, goes_on_at(lost)) for lost in loss.cursors], again)


def _numbers(slot: Slot) -> list[KnownNumbers]:
    """What an outbox knows to be acknowledged: all below the first put that is unsent."""
    unsent = _unsent(slot)
    return [
        KnownNumbers(
            topic,
            topic_id,
            producer or slot.producer,
            Sequence(unsent.get(topic, following) - 1),
        )
        for topic, (topic_id, following, producer) in sorted(slot.lanes.items())
    ]


def _first_that_is_not_there(slot: Slot, lost: LostNumbers) -> Sequence | None:
    """The number of the first unsent put that the server does not have; None: it has them all."""
    for put in slot.pending:
        if put.topic == lost.topic:
            parcel = parcel_of(put, lost.producer)
            if (put.first_sequence, put.count, parcel.checksum) not in lost.recent:
                return put.first_sequence
    return None


def _unsent(slot: Slot) -> dict[str, Sequence]:
    """The first number of each topic that has no answer yet."""
    found: dict[str, Sequence] = {}
    for put in slot.pending:
        found.setdefault(put.topic, put.first_sequence)
    return found


class ClientFiles:
    """The state of a client that does not run, with every slot of its outbox locked."""

    def __init__(
        self, client: str, directory: str | Path | None, random_bytes: RandomBytes
    ) -> None:
        self.client = ClientId(client)
        self.path = state_directory(client, directory)
        if not (self.path / "state.db").exists():
            raise StorageRefused(
                f"there is no state of client {client!r} in {self.path}: nothing to accept; name "
                "the directory with --state"
            )
        self._slots: list[Slot] = []
        try:
            self._lock_slots(random_bytes)
            self._journal = Journal(self.path, client)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the state."""
        for slot in self._slots:
            slot.close()
        if hasattr(self, "_journal"):
            self._journal.close()

    def look(self, server: str | list[str], timeout: float) -> Loss:
        """Ask the server what it has of all that this state knows; nothing is changed."""
        with asking(server, timeout) as ask:
            answers = [ask(each) for each in questions(self.client, self._journal, self._slots)]
        loss = loss_of(self._journal, answers)
        if loss.stale:
            raise StaleState(
                f"{self.path} is an old copy of the state of client {self.client!r}, or a client "
                f"with another state took its id: it knows epoch {loss.last_epoch}, and this "
                f"server has granted {loss.granted} since. What this state would put may have been "
                "put. Nothing was changed"
            )
        return loss

    def accept(self, loss: Loss) -> None:
        """Move the state to what the server has; cut short, it can be accepted again."""
        move(self._journal, self._slots, loss)

    def _lock_slots(self, random_bytes: RandomBytes) -> None:
        disk, outbox = LocalDisk(), f"{self.path}/outbox"
        names = disk.names(outbox) if (self.path / "outbox").is_dir() else []
        for name in sorted(name for name in names if name.isdigit()):
            try:
                with naming_repair(self.client, str(self.path)):
                    self._slots.append(Slot(disk, f"{outbox}/{name}", random_bytes))
            except Locked as error:
                raise Locked(
                    f"client {self.client!r} is running on {self.path}: end it first, then accept "
                    "the loss, then start it again"
                ) from error
