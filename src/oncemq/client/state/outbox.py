"""Puts that have not reached the server yet, on the client's own disk.

A state directory has one slot for each client that was ever alive at the same time, nearly
always one: a slot is a producer, its numbers and its unsent puts, in a log of the server's own
storage code. The process that holds a slot's lock sends from it; a slot left behind by a dead
process is taken over whole, with its producer, so that what it had sent is recognized.

Laws: a put is synced here before it is sent (G2 across crashes of the client), and new numbers
before they are used. A disk that has no room leaves the slot as it was. After a write or a sync
that failed it is not known what the disk has: nothing more is recorded (`failure`), and the next
start finds out. Whatever the disk does is said in words, never as a bare OSError.
"""

import logging
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress

from oncemq.client.state.disk_trouble import InWords, in_words
from oncemq.client.state.outbox_contents import LaneKept, OutboxContents
from oncemq.client.state.unsent import FRAME_BYTES, Unsent
from oncemq.errors import Locked, StorageRefused, StorageUnsure
from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.outbox_records import (
    OutboxBatch,
    OutboxDone,
    OutboxLane,
    OutboxLost,
    OutboxOpened,
    OutboxResumed,
)
from oncemq.protocol.records import Marked
from oncemq.session.publisher import PutBatch
from oncemq.storage.disk import LockingDisk
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.storage.log.room import ALLOWANCE_BYTES, RETRY_MS
from oncemq.storage.segments.layout import remove_log
from oncemq.storage.shortage import DISK_FULL

ROTATE_BYTES = 8 << 20  # so much that is answered, and more than is unsent: a log is written anew
_OPTIONS = LogOptions(
    segment_bytes=1 << 30, allocate_bytes=1 << 20, reserve_bytes=1 << 16, checkpoints=False
)

RandomBytes = Callable[[int], bytes]

logger = logging.getLogger("oncemq.client")


class Slot:
    """One producer's outbox, locked by this process."""

    def __init__(self, disk: LockingDisk, directory: str, random_bytes: RandomBytes) -> None:
        self._directory = directory
        self._random_bytes = random_bytes
        self._disk = disk
        self._asked = 0
        self._recorded = False  # anything, by this process
        self.failure: StorageRefused | None = None  # the disk failed: nothing more is recorded
        self.producer = ProducerId(b"")  # who numbers puts to topics that are not in `lanes`
        self.is_new = False  # no earlier start has used the producer's numbers
        self.lanes: dict[str, LaneKept] = {}
        self.pending: list[Unsent] = []
        self._edition = self._last_edition = 0
        self._live_bytes = 0  # of records whose puts have no answer
        self._dead_bytes = 0
        self._rotate_bytes = ROTATE_BYTES
        self._answered: dict[str, Sequence] = {}  # to be noted with the next record
        with self._in_words("could not be opened"):
            self._disk.make_directory(directory)
            self._lock = self._disk.lock(f"{directory}/lock")
            try:
                self._log = self._open()
            except BaseException:
                self._lock.release()
                raise

    def record(self, puts: Iterable[Unsent]) -> None:
        """Make puts durable; they may be sent after this. All of them, or none."""
        puts = list(puts)
        self._must_work()
        with self._in_words("took no put; it is not recorded, and will not be sent"):
            self._note_answered()
            size = 0
            for put in puts:
                # An answer that is noted after a put could be taken for its own: numbers of a
                # topic that was deleted, and forgotten, are given again.
                if put.topic in self._answered:
                    raise OSError(DISK_FULL[0], "no room left")
                size += _room_for(put.topic, len(put.body))
            self._need(size, fact=False)
        for put in puts:
            _append(self._log, put)
            self._live_bytes += put.size
        self._commit("a put was recorded: the next start may send it, or not have it")
        self._recorded = True

    def renumber(
        self,
        topic: str,
        topic_id: TopicId,
        *,
        kept_below: Sequence,
        first: Sequence,
        gone: Iterable[Sequence],
    ) -> None:
        """Make the new numbers of a topic's puts durable; they may be used after this."""
        self._must_work()
        record = OutboxResumed(topic, topic_id, kept_below, first, tuple(gone))
        with self._in_words("took no new numbers; what waits for them is not sent"):
            self._note_answered()
            self._need(_room_for(topic) + 9 * len(record.gone), fact=True)
        self._log.append(record)
        if topic in self._answered:  # what is noted from here on is about the new numbers
            self._answered[topic] = min(self._answered[topic], first)
        self._commit("numbers were changed: the next start finds out which it has")
        self._recorded = True

    def done(self, put: Unsent | PutBatch) -> None:
        """It and everything before it has its answer; durable with the next record, or at close."""
        self._answered[put.topic] = Sequence(put.first_sequence + put.count)
        size = len(put.body) + len(put.topic) + FRAME_BYTES
        self._live_bytes -= size
        self._dead_bytes += size + FRAME_BYTES

    @property
    def rotate_due(self) -> bool:
        """Whether the log is worth writing anew."""
        return self._dead_bytes >= max(self._rotate_bytes, self._live_bytes)

    def renew(self) -> ProducerId:
        """A producer that has put nothing yet, for topics that nothing is known of any more.

        It is on disk with its first record, or with the next edition.
        """
        self.producer = ProducerId(self._random_bytes(16))
        return self.producer

    def rotate(self, lanes: dict[str, LaneKept], pending: list[Unsent]) -> None:
        """Start a new log that holds only this; the old one goes when it is durable.

        Where the disk does not let it, the old one goes on, and it is tried again later.
        """
        self._must_work()
        old = self._log
        try:
            with self._in_words("could not be written anew"):
                self._lock.keep()
                self._log = self._copy(lanes, pending)
        except StorageRefused as error:
            self._rotate_bytes = self._dead_bytes + ROTATE_BYTES
            if isinstance(error, Locked):  # what has the name now is not this slot
                self.failure = error
            logger.warning("outbox not rotated slot=%s: %s", self._directory, error.detail)
            return
        old_edition, self._edition = self._edition, self._last_edition
        self._answered.clear()
        self._live_bytes, self._dead_bytes = sum(put.size for put in pending), 0
        self._rotate_bytes = ROTATE_BYTES
        with suppress(OSError):  # the next start removes what is left of it
            old.close()
            remove_log(self._disk, f"{self._directory}/{old_edition}")

    def close(self) -> None:
        """Make what is known durable, and known to be so, and give the slot free.

        What cannot be noted any more is asked of the server by the next start.
        """
        try:
            if self.failure is None:
                self._note_answered()
                self._commit("it was closed; everything recorded before is there")
                if self._recorded and self._has_room(0):
                    self._log.append(Marked())  # damage to the last put is told from a torn tail
                    self._commit("it was closed; everything recorded before is there")
        except (OSError, StorageRefused) as error:
            logger.warning("outbox not closed cleanly slot=%s: %s", self._directory, error)
        finally:
            try:
                with suppress(OSError):
                    self._log.close()
            finally:
                self._lock.release()

    # What the disk takes

    def _must_work(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _has_room(self, size: int, *, fact: bool = False) -> bool:
        self._asked += RETRY_MS  # a full disk is asked again every time
        return self._log.has_room(size, now_ms=self._asked, fact=fact)

    def _need(self, size: int, *, fact: bool) -> None:
        if not self._has_room(size, fact=fact):
            raise OSError(DISK_FULL[0], "no room left")

    def _note_answered(self) -> None:
        """As far as there is room: the server knows as well which puts it has."""
        for topic, next_sequence in list(self._answered.items()):
            if not self._has_room(_room_for(topic)):
                return
            self._log.append(OutboxDone(topic, next_sequence))
            del self._answered[topic]

    def _commit(self, when: str) -> None:
        """What was appended is durable after this, or nothing is recorded here any more."""
        try:
            group = self._log.take_group()
            if group is not None:
                self._log.write(group)
                self._log.finished(group)
        except (OSError, StorageRefused) as error:
            self.failure = self._failed(error)
            raise StorageUnsure(
                f"the disk of this client failed ({error}) at {self._directory} while {when}; "
                "close the client, see to the disk and start it again"
            ) from error

    def _failed(self, error: OSError | StorageRefused) -> StorageRefused:
        return StorageRefused(
            f"the disk of this client failed ({error}) at {self._directory}: nothing more is "
            "recorded there; close the client, see to the disk and start it again: puts that "
            "were recorded before go out then",
            code="disk_failed",
        )

    def _in_words(self, what: str) -> "InWords":
        return InWords(f"the outbox at {self._directory} {what}")

    # Editions

    def _open(self) -> Log:
        """The newest edition that was completed; an unfinished copy is dropped."""
        names = self._disk.names(self._directory)
        editions = sorted((int(name) for name in names if name.isdigit()), reverse=True)
        chosen: Log | None = None
        for edition in editions:
            if chosen is None:
                self._edition = edition
                chosen = self._load(edition)
                if chosen is not None:
                    continue
            remove_log(self._disk, f"{self._directory}/{edition}")
        if chosen is None:
            self._edition = max(editions, default=0) + 1
            self.producer = ProducerId(self._random_bytes(16))
            self.is_new = True
            chosen = self._new_log(self._edition)
            chosen.append(OutboxOpened(self.producer))
            _write(chosen)
        self._last_edition = max((self._edition, *editions))
        return chosen

    def _load(self, edition: int) -> Log | None:
        path = f"{self._directory}/{edition}"
        opened = open_log(self._disk, path, _OPTIONS, random_bytes=self._random_bytes)
        try:
            contents = OutboxContents(opened.frames)
        except BaseException:
            opened.log.close()
            raise
        if contents.producer is None:
            opened.log.close()
            return None
        self.producer, self.lanes, self.pending = (
            contents.producer, contents.lanes, contents.pending,
        )  # fmt: skip
        self._live_bytes = sum(put.size for put in self.pending)
        self._dead_bytes = max(0, opened.log.bytes_used - self._live_bytes)
        return opened.log

    def _new_log(self, edition: int) -> Log:
        path = f"{self._directory}/{edition}"
        return open_log(self._disk, path, _OPTIONS, random_bytes=self._random_bytes).log

    def _copy(self, lanes: dict[str, LaneKept], pending: list[Unsent]) -> Log:
        """A new edition, whole and durable; if it cannot be had, it is as if never begun."""
        self._last_edition += 1  # never one that an earlier attempt may have left behind
        written = False
        log: Log | None = None
        try:
            log = self._new_log(self._last_edition)
            fill(log, self.producer, lanes, pending)
            written = True
            _write(log)
        except (OSError, StorageRefused) as error:
            self._discard(log, error, written=written)
            raise
        return log

    def _discard(self, log: Log | None, error: OSError | StorageRefused, *, written: bool) -> None:
        """Remove an edition that could not be finished: the next start must not take it."""
        try:
            if log is not None:
                log.close()
            remove_log(self._disk, f"{self._directory}/{self._last_edition}")
        except OSError:
            if written:  # it may be whole all the same: what is recorded now would be passed over
                self.failure = self._failed(error)


def write_edition(
    disk: LockingDisk,
    path: str,
    random_bytes: RandomBytes,
    *,
    producer: ProducerId,
    lanes: dict[str, LaneKept],
    pending: Iterable[Unsent],
) -> None:
    """Make a whole edition, durably; until its last record it counts as never begun."""
    log = open_log(disk, path, _OPTIONS, random_bytes=random_bytes).log
    try:
        fill(log, producer, lanes, pending)
        _write(log)
    finally:
        log.close()


def fill(
    log: Log,
    producer: ProducerId,
    lanes: dict[str, LaneKept],
    pending: Iterable[Unsent],
) -> None:
    """Everything that an outbox has, into a new log."""
    for put in pending:
        if not log.has_room(_room_for(put.topic, len(put.body)), now_ms=0):
            raise OSError(DISK_FULL[0], "no room left")
        _append(log, put)
    for topic, lane in lanes.items():
        if not log.has_room(_room_for(topic), now_ms=0):
            raise OSError(DISK_FULL[0], "no room left")
        log.append(OutboxLane(topic, *lane))
    log.append(OutboxOpened(producer))


def _append(log: Log, put: Unsent) -> None:
    if put.lost:
        first = put.first_sequence
        log.append(OutboxLost(put.topic, put.topic_id, first, put.count, put.producer))
        return
    record = OutboxBatch(
        put.topic, put.topic_id, put.first_sequence, put.count, put.columns, put.required,
        put.producer,
    )  # fmt: skip
    log.append(record, put.body, checksum=zlib.crc32(put.body))


def _write(log: Log) -> None:
    group = log.take_group()
    if group is not None:
        log.write(group)
        log.finished(group)


def _room_for(topic: str, body_bytes: int = 0) -> int:
    """The most that a record takes."""
    return body_bytes + len(topic) * 4 + ALLOWANCE_BYTES


def open_slots(disk: LockingDisk, directory: str, random_bytes: RandomBytes) -> list[Slot]:
    """Every slot no other process holds; at least one, made when there is none."""
    slots: list[Slot] = []
    try:
        disk.make_directory(directory)
        numbers = sorted(int(name) for name in disk.names(directory) if name.isdigit())
        for number in numbers:
            with suppress(Locked):  # a twin of this client is alive and sends its own
                slots.append(Slot(disk, f"{directory}/{number}", random_bytes))
        number = max(numbers, default=0)
        while not slots:
            number += 1
            with suppress(Locked):
                slots.append(Slot(disk, f"{directory}/{number}", random_bytes))
    except BaseException as error:
        for slot in slots:
            slot.close()
        if isinstance(error, OSError):
            raise in_words(error, f"the outbox at {directory} could not be opened") from error
        raise
    return slots
