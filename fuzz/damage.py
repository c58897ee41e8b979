"""Logs to damage, a disk in memory to damage them on, and bytes that say how.

The bytes of an input are spent one after the other; when they are at an end, zeros follow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from oncemq.client.state.outbox import Slot
from oncemq.client.state.unsent import Unsent
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, TopicId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import CursorMoved, MessagesStored, Record, Run
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.disk import Buffer
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.wire import batch

PRODUCER = ProducerId(b"p" * 16)
READS_MAX = 20_000  # of one file; no honest reader of such small ones comes near


class Endless(Exception):
    """Somebody reads and reads, and gets nowhere."""


class Feed:
    """An input, spent from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def byte(self) -> int:
        return int.from_bytes(self.take(1))

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def short(self) -> bytes:
        return self.take(self.byte() % 16)

    def rest(self) -> bytes:
        return self.take(len(self._data))


DONE: Counter[str] = Counter()  # what was done to files, as the reliability card names it


def damage(feed: Feed, content: bytes, times: int) -> bytes:
    """The content with so many places changed."""
    changed = bytearray(content)
    for _ in range(times):
        _edit(feed, changed)
    return bytes(changed)


def _edit(feed: Feed, content: bytearray) -> None:
    position = feed.number(2) % (len(content) + 1)
    match feed.byte() % 7:
        case 0:
            content[position : position + 1] = feed.take(1)
        case 1:
            content[position : position + feed.byte()] = b""
        case 2:
            del content[position:]
        case 3:
            content[position:position] = feed.short()
        case 4:
            size = feed.byte()
            content[position : position + size] = bytes(len(content[position : position + size]))
        case 5:
            size, source = 4 * feed.byte(), feed.number(2) % (len(content) + 1)
            content[position : position + size] = content[source : source + size]
        case _:
            content += bytes(feed.byte() * 8)


class Copied:
    """A disk of plain bytes. One process, no crashes: what is damaged is its content."""

    def __init__(self, files: dict[str, bytearray], folders: set[str]) -> None:
        self.files = files
        self.folders = folders

    def again(self) -> "Copied":
        """The same once more, to be damaged."""
        files = {path: bytearray(content) for path, content in self.files.items()}
        return Copied(files, set(self.folders))

    def damage(self, feed: Feed) -> None:
        """Do something to one of the files."""
        paths = sorted(path for path in self.files if not path.endswith("/lock"))
        if not paths:
            return
        path = paths[feed.byte() % len(paths)]
        match feed.byte():
            case 255:
                DONE["missing file"] += 1
                del self.files[path]
            case 254:  # another file's content under this name
                DONE["stale file"] += 1
                self.files[path] = bytearray(self.files[paths[feed.byte() % len(paths)]])
            case _:
                before = bytes(self.files[path])
                _edit(feed, self.files[path])
                after = self.files[path]
                DONE["truncated file" if len(after) < len(before) else "bit flip"] += (
                    after != before
                )

    # the port

    def open(self, path: str, create: bool = False) -> "CopiedFile":
        if path not in self.files:
            if not create:
                raise FileNotFoundError(path)
            self.files[path] = bytearray()
        return CopiedFile(self.files[path])

    def names(self, directory: str) -> list[str]:
        inside = directory.rstrip("/") + "/"
        paths = (path for path in (*self.files, *self.folders) if path.startswith(inside))
        return sorted({path.removeprefix(inside).split("/")[0] for path in paths})

    def rename(self, source: str, target: str) -> None:
        for path in [path for path in self.files if (path + "/").startswith(source + "/")]:
            self.files[target + path.removeprefix(source)] = self.files.pop(path)
        for path in [path for path in self.folders if (path + "/").startswith(source + "/")]:
            self.folders.remove(path)
            self.folders.add(target + path.removeprefix(source))

    def remove(self, path: str) -> None:
        self.folders.discard(path)
        if self.files.pop(path, None) is None and self.names(path):
            raise OSError(f"{path} is not empty")

    def make_directory(self, path: str) -> None:
        self.folders.add(path)

    def sync_directory(self, path: str) -> None: ...

    def free_bytes(self, directory: str) -> int:
        return 1 << 40

    def lock(self, path: str) -> "CopiedFile":
        return self.open(path, create=True)


class CopiedFile:
    """One open file of it, or a lock that is always free."""

    def __init__(self, content: bytearray) -> None:
        self._content = content
        self._reads = 0

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        self.allocate(position)
        self._content[position : position + len(data)] = data

    def read(self, position: int, size: int) -> bytes:
        self._reads += 1
        if self._reads > READS_MAX:
            raise Endless(f"{self._reads} reads, the last of {size} bytes at {position}")
        return bytes(self._content[position : position + size])

    def truncate(self, size: int) -> None:
        del self._content[size:]
        self.allocate(size)

    def allocate(self, size: int) -> None:
        self._content += bytes(max(0, size - len(self._content)))

    def size(self) -> int:
        return len(self._content)

    def sync(self) -> None: ...
    def close(self) -> None: ...
    def keep(self) -> bool:
        return False

    def release(self) -> None: ...


@dataclass(slots=True)
class Made:
    """A log that was written, and everything that is in it."""

    OPTIONS: ClassVar[LogOptions] = LogOptions(
        segment_bytes=900, allocate_bytes=300, reserve_bytes=50
    )
    disk: Copied = field(default_factory=lambda: Copied({}, set()))
    records: dict[int, Record] = field(default_factory=dict[int, Record])
    payloads: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    checkpoints: list[list[bytes]] = field(default_factory=list[list[bytes]])

    def copy(self) -> Copied:
        """The disk as it is."""
        return self.disk.again()

    def put(self, log: Log, topic_id: int, payloads: list[bytes]) -> None:
        """Append a batch."""
        stored = self.payloads.setdefault(topic_id, [])
        body = batch.encode_payloads(payloads)
        first = Number(1 + len(stored))
        seed = batch.seed(f"t{topic_id}", PRODUCER, first, len(payloads))
        checksum = batch.checksum(body, seed)
        runs = (Run(len(payloads), PRODUCER, Epoch(1), first, Micros(1000 + log.last_serial)),)
        count = len(payloads)
        record = MessagesStored(TopicId(topic_id), Offset(len(stored)), count, 0, checksum, runs)
        stored.extend(payloads)
        self.records[log.append(record, body, seed=seed, checksum=checksum)] = record

    def fact(self, log: Log, cursor: int) -> None:
        """Append a small one."""
        record = CursorMoved(TopicId(1), ClientId("ada"), Offset(cursor))
        self.records[log.append(record)] = record

    def checkpoint(self, log: Log) -> None:
        """Take one."""
        blobs = [b"state of %d" % log.last_serial, b"more"]
        writer = log.begin_checkpoint()
        for blob in blobs:
            writer.add(blob)
        job = writer.finish()
        job.run()
        log.complete(job)
        job.clean()
        self.checkpoints.append(blobs)


def make_log(kind: int) -> Made:
    """0: one segment. 1: several, and two checkpoints. 2: the first of them are compacted."""
    made = Made()
    log = open_log(made.disk, "/data", Made.OPTIONS, random_bytes=lambda size: b"\5" * size).log
    for step in range(3 if kind == 0 else 12):
        made.put(log, 1 + step % 2, [b"%d/%d " % (step, n) * 3 for n in range(1 + step % 3)])
        made.fact(log, step)
        _commit(log)
        if kind and step in (7, 9):
            made.checkpoint(log)
    if kind == 2:
        job = log.plan(lambda topic_id: LiveShare(f"t{topic_id}", 2))
        assert job is not None
        job.run()
        log.complete(job)
        job.clean()
        assert any(path.endswith(".cold") for path in made.disk.files)
    log.close()
    return made


def make_outbox() -> tuple[Copied, list[Unsent]]:
    """An outbox with puts in it, and these."""
    disk = Copied({}, set())
    slot = Slot(disk, "/outbox", lambda size: b"\5" * size)
    puts = [Unsent("t", TopicId(1), Number(n), 1, 0, b"payload %d" % n) for n in range(1, 6)]
    for put in puts:
        slot.record([put])
    slot.done(puts[0])
    slot.close()
    return disk, puts


def _commit(log: Log) -> None:
    group = log.take_group()
    assert group is not None
    log.write(group)
    log.finished(group)
