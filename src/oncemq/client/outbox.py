"""Puts that have not reached the server yet, on the client's own disk.

A state directory has one slot for each client that was ever alive at the same time, nearly
always one: a slot is a producer, its numbers and its unsent puts, in a log of the server's own
storage code. The process that holds a slot's lock sends from it; a slot left behind by a dead
process is taken over whole, with its producer, so that what it had sent is recognized.

Law: a put is synced here before it is sent (G2 across crashes of the client).
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from operator import itemgetter

from oncemq.client.unsent import Unsent
from oncemq.core.names import ProducerId, Sequence, TopicId
from oncemq.core.outbox_records import (
    OutboxBatch,
    OutboxDone,
    OutboxLane,
    OutboxOpened,
    OutboxPut,
)
from oncemq.core.records import Marked
from oncemq.errors import Locked, StorageFull
from oncemq.storage.disk import Buffer, LockingDisk
from oncemq.storage.layout import remove_log
from oncemq.storage.log import Log, LogOptions
from oncemq.storage.recovery import open_log
from oncemq.storage.room import RETRY_MS

ROTATE_BYTES = 8 << 20  # a log this long is written anew with only what is unsent
_OPTIONS = LogOptions(segment_bytes=1 << 30, allocate_bytes=1 << 20, reserve_bytes=1 << 16)

RandomBytes = Callable[[int], bytes]


class Slot:
    """One producer's outbox, locked by this process."""

    def __init__(self, disk: LockingDisk, directory: str, random_bytes: RandomBytes) -> None:
        self._directory = directory
        self._random_bytes = random_bytes
        self._disk = disk
        self._asked = 0
        self._recorded = False  # anything, by this process
        self._disk.make_directory(directory)
        self._lock = self._disk.lock(f"{directory}/lock")
        self.producer = ProducerId(b"")
        self.is_new = False  # no earlier start has used the producer's numbers
        self.lanes: dict[str, tuple[TopicId, Sequence]] = {}
        self.pending: list[Unsent] = []
        self._edition = 0
        self._written = 0
        try:
            self._log = self._open()
        except BaseException:
            self._lock.release()
            raise

    def record(self, puts: Iterable[Unsent]) -> None:
        """Make puts durable; they may be sent after this."""
        size = 0
        for put in puts:
            self._asked += RETRY_MS  # a full disk is asked again for every put
            if not self._log.has_room(len(put.body) + len(put.topic) * 4, now_ms=self._asked):
                raise StorageFull("the disk of this client is full: the put was not recorded")
            self._append(put)
            size += len(put.body)
        self._commit()
        self._recorded = True
        self._written += size + 1

    def done(self, topic: str, next_sequence: Sequence) -> None:
        """Everything below has its answer; durable with the next record, or at close."""
        self._log.append(OutboxDone(topic, next_sequence))

    @property
    def rotate_due(self) -> bool:
        """Whether the log is worth writing anew."""
        return self._written >= ROTATE_BYTES

    def rewrite(
        self, lanes: dict[str, tuple[TopicId, Sequence]], pending: Iterable[Unsent]
    ) -> None:
        """Start a new log that holds only this; the old one goes when it is durable."""
        old, old_edition = self._log, self._edition
        self._edition += 1
        self._written = 0
        self._log = self._new_log(self._edition)
        for topic, (topic_id, next_sequence) in lanes.items():
            self._log.append(OutboxLane(topic, topic_id, next_sequence))
        for put in pending:
            self._append(put)
            self._written += len(put.body)
        self._log.append(OutboxOpened(self.producer))
        self._commit()
        old.close()
        remove_log(self._disk, f"{self._directory}/{old_edition}")

    def close(self) -> None:
        """Make what is known durable, and known to be so, and let go of the slot."""
        self._commit()
        if self._recorded:
            self._log.append(Marked())  # damage to the last put is then told from a torn tail
            self._commit()
        self._log.close()
        self._lock.release()

    def _append(self, put: Unsent) -> None:
        record = OutboxBatch(
            put.topic, put.topic_id, put.first_sequence, put.count, put.columns, put.required
        )
        self._log.append(record, put.body, checksum=zlib.crc32(put.body))

    def _commit(self) -> None:
        group = self._log.take_group()
        if group is not None:
            self._log.write(group)
            self._log.finished(group)

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
            group = chosen.take_group()
            assert group is not None
            chosen.write(group)
            chosen.finished(group)
        return chosen

    def _load(self, edition: int) -> Log | None:
        opened = open_log(
            self._disk,
            f"{self._directory}/{edition}",
            _OPTIONS,
            random_bytes=self._random_bytes,
        )
        lanes: dict[str, tuple[TopicId, Sequence]] = {}
        puts: dict[str, deque[tuple[int, Unsent]]] = {}  # by topic, with the serial
        complete = False
        for frame in opened.frames:
            record = frame.record()
            match record:
                case OutboxLane():
                    lanes[record.topic] = (record.topic_id, record.next_sequence)
                case OutboxBatch() | OutboxPut():
                    put = _unsent(record, frame.body)
                    puts.setdefault(put.topic, deque()).append((frame.serial, put))
                    lanes[put.topic] = (put.topic_id, put.end)
                    self._written += len(put.body)
                case OutboxDone():
                    _drop_done(puts.get(record.topic), record.next_sequence)
                case OutboxOpened():
                    self.producer = record.producer
                    complete = True
                case Marked():
                    pass
                case _:
                    raise AssertionError(f"{record!r} does not belong into an outbox")
        if not complete:
            opened.log.close()
            return None
        self.lanes = lanes
        pending = sorted(chain.from_iterable(puts.values()), key=itemgetter(0))
        self.pending = [put for _, put in pending]
        return opened.log

    def _new_log(self, edition: int) -> Log:
        path = f"{self._directory}/{edition}"
        return open_log(self._disk, path, _OPTIONS, random_bytes=self._random_bytes).log


def _unsent(record: OutboxBatch | OutboxPut, body: Buffer | None) -> Unsent:
    required = isinstance(record, OutboxBatch) and record.required
    if isinstance(record, OutboxPut):
        body = record.body
    assert body is not None
    return Unsent(
        record.topic, record.topic_id, record.first_sequence, record.count, record.columns,
        bytes(body), required,
    )  # fmt: skip


def _drop_done(puts: deque[tuple[int, Unsent]] | None, next_sequence: Sequence) -> None:
    """Those below have their answer."""
    while puts and puts[0][1].first_sequence < next_sequence:
        puts.popleft()


def open_slots(disk: LockingDisk, directory: str, random_bytes: RandomBytes) -> list[Slot]:
    """Every slot no other process holds; at least one, made when there is none."""
    disk.make_directory(directory)
    numbers = sorted(int(name) for name in disk.names(directory) if name.isdigit())
    slots: list[Slot] = []
    for number in numbers:
        try:
            slots.append(Slot(disk, f"{directory}/{number}", random_bytes))
        except Locked:
            continue  # a twin of this client is alive and sends its own
    number = max(numbers, default=0)
    while not slots:
        number += 1
        try:
            slots.append(Slot(disk, f"{directory}/{number}", random_bytes))
        except Locked:
            continue
    return slots
