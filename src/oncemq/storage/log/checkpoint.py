"""Checkpoints: the state at some point of the log, so that recovery need not begin at 1.

    magic u32 · checksum u32 · version u32 · count u32 · identity 16s · begin u64 · end u64
    bytes u64 · chain u32 · blobs' checksum u32 · then `count` blobs: size u32, bytes

The state is gathered over many turns of the loop while the log goes on: it holds all records
up to `begin`, none after `end`, and some between. Replay starts after `begin`.

Laws: a checkpoint is only a cache, and proves which log it stands for: at serial `end` the
chain value is `chain`. It gets its name only once the log is durable up to `end`. The two
newest are kept, and nothing the older one needs is ever removed from the log, so one damaged
checkpoint never loses state.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from oncemq.storage.disk import Disk, File

KEPT = 2
FLUSH_BYTES = 4 << 20
VERSION = 1

_MAGIC = 0x43514D4F
_HEADER = struct.Struct("<IIII16sQQQII")
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One checkpoint file, as its header tells it."""

    path: str
    begin: int
    end: int
    chain: int
    size: int


class CheckpointWriter:
    """Gathers blobs on the loop thread; `flush` and `finish` give the janitor its work."""

    def __init__(
        self, disk: Disk, directory: str, identity: bytes, begin: int, now: Callable[[], "Now"]
    ) -> None:
        self.begin = begin
        self._identity = identity
        self._now = now
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._count = 0
        self._target = _Target(disk, directory)

    def add(self, blob: bytes) -> None:
        """One more piece of state."""
        self._gathered.append(_U32.pack(len(blob)))
        self._gathered.append(blob)
        self._gathered_bytes += len(blob) + _U32.size
        self._count += 1

    @property
    def flush_due(self) -> bool:
        """Whether enough is gathered that it should go to the disk before more is added."""
        return self._gathered_bytes >= FLUSH_BYTES

    def flush(self) -> "FlushJob":
        """The job that writes what is gathered so far. Jobs of one writer run in order."""
        job = FlushJob(self._target, self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        return job

    def finish(self) -> "CheckpointJob":
        """The job that writes the rest and publishes, once the log is durable up to `end`."""
        now = self._now()
        return CheckpointJob(
            self._target, self.flush(), (self._identity, self._count), self.begin, now, self._now
        )


@dataclass(frozen=True, slots=True)
class Now:
    """Where the log stands: its last serial with the chain value there, and what is durable."""

    serial: int
    chain: int
    durable: int


class _Target:
    """The temporary file. Owned by the janitor thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.temporary = f"{directory}/new.ckpt.tmp"
        self.position = _HEADER.size
        self.checksum = 0
        self._file: File | None = None

    def file(self) -> File:
        if self._file is None:
            self._file = self.disk.open(self.temporary, create=True)
            self._file.truncate(0)
        return self._file

    def write(self, blobs: list[bytes]) -> None:
        self.file().write(blobs, self.position)
        for blob in blobs:
            self.checksum = zlib.crc32(blob, self.checksum)
            self.position += len(blob)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def give_up(self) -> None:
        """Leave nothing that takes room; the next checkpoint uses the name again."""
        self.file().truncate(0)
        self.close()


class FlushJob:
    """Writes gathered blobs: janitor thread."""

    def __init__(self, target: _Target, blobs: list[bytes]) -> None:
        self._target = target
        self._blobs = blobs

    def run(self) -> None:
        """Write them; nothing is durable or visible yet."""
        if self._blobs:
            try:
                self._target.write(self._blobs)
            except OSError:
                self._target.give_up()
                raise
            self._blobs = []


class CheckpointJob:
    """Publishes a checkpoint: `run` (janitor), `Log.complete` (loop), `clean` (janitor)."""

    def __init__(
        self,
        target: _Target,
        rest: FlushJob,
        about: tuple[bytes, int],
        begin: int,
        end: Now,
        now: Callable[[], Now],
    ) -> None:
        self.end = end.serial
        self.result: CheckpointFile | None = None
        self.replaced: list[CheckpointFile] = []  # set by Log.complete
        self._target = target
        self._rest = rest
        self._identity, self._count = about
        self._begin = begin
        self._chain = end.chain
        self._now = now

    def run(self) -> None:
        """Write, sync, rename. The log must be durable up to `end` by now."""
        assert self._now().durable >= self.end, "a checkpoint must not run ahead of its log"
        target = self._target
        self._rest.run()
        header = bytearray(
            _HEADER.pack(
                _MAGIC,
                0,
                VERSION,
                self._count,
                self._identity,
                self._begin,
                self.end,
                target.position - _HEADER.size,
                self._chain,
                target.checksum,
            )
        )
        _U32.pack_into(header, 4, zlib.crc32(memoryview(header)[8:]))
        try:
            target.file().write([header], 0)
            target.file().sync()
        except OSError:
            target.give_up()
            raise
        target.close()
        path = f"{target.directory}/{self.end:020d}.ckpt"
        target.disk.rename(target.temporary, path)
        target.disk.sync_directory(target.directory)
        self.result = CheckpointFile(path, self._begin, self.end, self._chain, target.position)

    def clean(self) -> None:
        """Remove the checkpoints this one made superfluous."""
        for checkpoint in self.replaced:
            self._target.disk.remove(checkpoint.path)


def read_checkpoint(
    disk: Disk, path: str, identity: bytes
) -> tuple[CheckpointFile, list[bytes]] | None:
    """The checkpoint and its blobs; None when anything about it does not hold.

    What the disk does not give is damaged as well: there is another checkpoint, or the log.
    """
    file = disk.open(path)
    try:
        data = file.read(0, file.size())
    except OSError:
        return None
    finally:
        file.close()
    return checkpoint_in(data, path, identity)


def checkpoint_in(
    data: bytes, path: str, identity: bytes
) -> tuple[CheckpointFile, list[bytes]] | None:
    """The same of the bytes of a file."""
    if len(data) < _HEADER.size:
        return None
    magic, checksum, version, count, its_identity, begin, end, size, chain, blobs_checksum = (
        _HEADER.unpack_from(data)
    )
    view = memoryview(data)
    if (
        magic != _MAGIC
        or version != VERSION
        or zlib.crc32(view[8 : _HEADER.size]) != checksum
        or its_identity != identity
        or size != len(data) - _HEADER.size
        or zlib.crc32(view[_HEADER.size :]) != blobs_checksum
    ):
        return None
    blobs: list[bytes] = []
    position = _HEADER.size
    for _ in range(count):
        (length,) = _U32.unpack_from(data, position)
        position += _U32.size + length
        blobs.append(data[position - length : position])
    return CheckpointFile(path, begin, end, chain, len(data)), blobs


def keep_newest(checkpoints: list[CheckpointFile], new: CheckpointFile) -> list[CheckpointFile]:
    """The checkpoints to keep once `new` is there, oldest first."""
    others = [checkpoint for checkpoint in checkpoints if checkpoint.path != new.path]
    return [*others, new][-KEPT:]
