"""A scribe that writes small logs and knows what must be in them."""

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import CursorMoved, MessagesStored, Record, Run
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.disk import Buffer, LocalDisk, LocalFile, LocalLock
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.recovery import OpenedLog, open_log
from oncemq.wire import batch
from tests.harness.quick_disk import QuickDisk, QuickFile

PRODUCER = ProducerId(b"p" * 16)
SMALL = LogOptions(segment_bytes=1500, allocate_bytes=700, reserve_bytes=100)


class CopyingDisk(QuickDisk):
    """Copies the directory after every call that changes it: each copy is a crash."""

    def __init__(self, directory: Path, copies: Path) -> None:
        super().__init__()
        self.directory, self.copies, self.numbers, self.armed = directory, copies, count(), False
        self.marks: list[int] = []  # what the caller knew at each copy
        self.mark = 0

    def happened(self) -> None:
        if self.armed:
            shutil.copytree(self.directory, self.copies / f"{next(self.numbers):04d}")
            self.marks.append(self.mark)

    def open(self, path: str, create: bool = False) -> LocalFile:
        file = super().open(path, create)
        copying = CopyingFile.__new__(CopyingFile)
        copying.__dict__.update(file.__dict__, disk=self)
        if create:
            self.happened()
        return copying

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.happened()

    def remove(self, path: str) -> None:
        super().remove(path)
        self.happened()

    def lock(self, path: str) -> LocalLock:
        return super().lock(path)


class CopyingFile(QuickFile):
    disk: CopyingDisk

    def write(self, buffers: "list[Buffer]", position: int) -> None:  # type: ignore[override]
        joined = b"".join(buffers)
        half = len(joined) // 2
        super().write([joined[:half]], position)
        self.disk.happened()  # a torn write
        super().write([joined[half:]], position + half)
        self.disk.happened()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.disk.happened()

    def allocate(self, size: int) -> None:
        super().allocate(size)
        self.disk.happened()


class Scribe:
    """Writes a log and remembers what it wrote."""

    def __init__(
        self,
        directory: Path,
        disk: LocalDisk,
        options: LogOptions = SMALL,
        identity: bytes = b"\x05",
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.disk = disk
        self.options = options
        self.topics: dict[int, list[bytes]] = {}
        self.sequence = 0
        self.opened: OpenedLog = self.open()

    @property
    def log(self) -> Log:
        return self.opened.log

    @property
    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("log/*.log"))

    def open(self, *, cut_to: int | None = None, opening: int | None = None) -> OpenedLog:
        self.opened = open_log(
            self.disk,
            str(self.directory),
            self.options,
            random_bytes=lambda n: self.identity * n,
            cut_to=cut_to,
            opening=opening,
        )
        return self.opened

    def kill(self) -> None:
        """The process is gone: nothing more is synced, and nothing is noted."""
        self.log._writer._failed = True
        self.log.close()

    def reopen(self) -> OpenedLog:
        self.log.close()
        return self.open()

    def put(self, topic: int, *payloads: bytes) -> int:
        """Append a batch (not committed yet); its serial."""
        stored = self.topics.setdefault(topic, [])
        body = batch.encode_payloads(payloads)
        seed = batch.seed(f"t{topic}", PRODUCER, self.sequence + 1, len(payloads))
        checksum = batch.checksum(body, seed)
        first, time = Sequence(self.sequence + 1), Micros(1000 + self.sequence)
        runs = (Run(len(payloads), PRODUCER, Epoch(1), first, time),)
        offset = Offset(len(stored))
        record = MessagesStored(TopicId(topic), offset, len(payloads), 0, checksum, runs)
        self.sequence += len(payloads)
        stored.extend(payloads)
        return self.log.append(record, body, seed=seed, checksum=checksum)

    def fact(self, cursor: int) -> int:
        return self.log.append(CursorMoved(TopicId(1), ClientId("client"), Offset(cursor)))

    def commit(self) -> int:
        group = self.log.take_group()
        if group is not None:
            self.log.write(group)
            self.log.finished(group)
        return self.log.durable_serial

    def store(self, topic: int, *payloads: bytes) -> int:
        serial = self.put(topic, *payloads)
        self.commit()
        return serial

    def checkpoint(self, *blobs: bytes) -> None:
        writer = self.log.begin_checkpoint()
        for blob in blobs:
            writer.add(blob)
        job = writer.finish()
        job.run()
        self.log.complete(job)
        job.clean()

    def compact(self, low: Callable[[int], int | None]) -> int:
        """Compact until nothing is left to do; how many jobs that took."""

        def live(topic_id: int) -> LiveShare | None:
            found = low(topic_id)
            return None if found is None else LiveShare(f"t{topic_id}", found)

        jobs = 0
        while (job := self.log.plan(live)) is not None:
            job.run()
            self.log.complete(job)
            job.clean()
            jobs += 1
        return jobs

    def payloads(self, topic: int, start: int = 0) -> dict[int, bytes]:
        """Every message from `start` on, by offset, each batch verified."""
        return read_payloads(self.log, topic, start)


def read_payloads(log: Log, topic: int, start: int = 0) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = start
    while (place := log.find(TopicId(topic), offset)) is not None:
        stored = log.read(place, verify=True)
        record = stored.record
        seed = batch.seed(
            f"t{topic}", record.runs[0].producer, record.runs[0].first_sequence, record.count
        )
        assert stored.seed == seed
        assert sum(run.count for run in record.runs) == record.count
        parts = batch.payloads_of(stored.body, record.count, record.columns)
        found.update(enumerate(parts, record.first_offset))
        offset = record.first_offset + record.count
    return {at: payload for at, payload in found.items() if at >= start}


def replayed(opened: OpenedLog) -> list[tuple[int, Record]]:
    return list(opened.replay)


def still_open(directory: Path) -> list[str]:
    """The files there that this process has open (on Linux, where the system tells)."""
    links = Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ()
    paths = [str(link.readlink()) for link in list(links) if link.is_symlink()]
    return [path for path in paths if path.startswith(str(directory))]


@pytest.fixture
def scribe(tmp_path: Path) -> Iterator[Scribe]:
    """Whatever a test does with it, nothing stays open: a server runs for months."""
    scribe = Scribe(tmp_path / "data", QuickDisk())
    yield scribe
    scribe.log.close()
    assert still_open(scribe.directory) == []


@pytest.fixture
def make_scribe() -> type[Scribe]:
    return Scribe


@pytest.fixture
def copying_disk() -> type[CopyingDisk]:
    return CopyingDisk


@pytest.fixture
def payloads_of() -> Callable[..., dict[int, bytes]]:
    return read_payloads
