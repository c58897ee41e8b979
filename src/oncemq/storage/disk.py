"""The disk, behind two ports; with its locks the only place that touches files.

Law: `write` writes everything or raises; `sync` returns only when the device said it has
the bytes; a new directory is made durable in its parent. Files are 0600, directories 0700.
What raises OSError here is never tried again by the log: the server stops.
"""

import fcntl
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from oncemq.storage.locks import LocalLock
from oncemq.storage.shortage import NO_DESCRIPTORS

Buffer = bytes | bytearray | memoryview

SPARE_DESCRIPTORS = 16

_ZEROS = bytes(1 << 20)
_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "pwritev") else 0


class File(Protocol):
    """One open file. Positions are given, so threads may share it."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None: ...
    def read(self, position: int, size: int) -> bytes: ...
    def sync(self) -> None: ...
    def truncate(self, size: int) -> None: ...
    def allocate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of directories. Names are durable only after `sync_directory`."""

    def open(self, path: str, create: bool = False) -> File: ...
    def names(self, directory: str) -> list[str]: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def make_directory(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def free_bytes(self, directory: str) -> int: ...


class Lock(Protocol):
    """A lock on a directory, held until released or until the process dies."""

    def keep(self) -> bool: ...  # Locked: it is lost; True: its file was removed, and put back
    def release(self) -> None: ...


class LockingDisk(Disk, Protocol):
    """A disk on which a directory can be had for oneself."""

    def lock(self, path: str) -> Lock: ...


class DiskView:
    """Another disk, seen through: whoever inherits says what looks otherwise."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, create: bool = False) -> File:
        return self._disk.open(path, create)

    def names(self, directory: str) -> list[str]:
        return self._disk.names(directory)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def sync_directory(self, path: str) -> None:
        self._disk.sync_directory(path)

    def free_bytes(self, directory: str) -> int:
        return self._disk.free_bytes(directory)


class LocalFile:
    """A file of the local file system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all the buffers, one after the other, from `position` on."""
        if not _IOV_MAX:
            for buffer in buffers:
                self._write_one(memoryview(buffer), position)
                position += len(buffer)
            return
        for start in range(0, len(buffers), _IOV_MAX):
            some = buffers[start : start + _IOV_MAX]
            total = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, position)
            if written < total:
                self._write_after(some, written, position)
            position += total

    def _write_after(self, buffers: Sequence[Buffer], written: int, position: int) -> None:
        """Finish a short write: skip what is written, write the rest piece by piece."""
        for buffer in buffers:
            size = len(buffer)
            if written < size:
                self._write_one(memoryview(buffer)[written:], position + written)
            written = max(0, written - size)
            position += size

    def _write_one(self, view: memoryview, position: int) -> None:
        while view:
            written = os.pwrite(self._descriptor, view, position)
            view = view[written:]
            position += written

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._descriptor, missing, position + size - missing)):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def sync(self) -> None:
        """Return when the device has the bytes (and the size that makes them readable)."""
        if sys.platform == "darwin":
            fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)  # fsync there stops at the cache
        elif hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes, with the room on the device taken now."""
        start = self.size()
        if size <= start:
            return
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, start, size - start)
            return
        while start < size:
            step = min(len(_ZEROS), size - start)
            self._write_one(memoryview(_ZEROS)[:step], start)
            start += step

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def files_for_owner_only() -> Generator[None]:
    """What is made meanwhile, an ipc socket for one, is the owner's alone."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def others_may_write(path: str) -> bool:
    """Whether a directory is there, and others than its owner may change what is in it."""
    try:
        return bool(os.stat(path).st_mode & 0o022)
    except OSError:
        return False


def identity_of(path: str) -> tuple[int, int] | None:
    """What tells a file from every other, whatever its name; None when none has this name."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class Spares:
    """File descriptors held back: idle peers of a server may have all the others.

    One is given free for each call that finds none, and taken again once there is one.
    """

    def __init__(self, count: int = SPARE_DESCRIPTORS) -> None:
        self._count = count
        self._held: list[int] = []

    def open(self, path: str, flags: int) -> int:
        """As os.open."""
        while True:
            try:
                descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._held:
                    raise
                os.close(self._held.pop())
            else:
                self._hold()
                return descriptor

    def release(self) -> None:
        """Hold none any more."""
        self._count = 0
        while self._held:
            os.close(self._held.pop())

    def __del__(self) -> None:
        self.release()  # of a server that never came to be

    def _hold(self) -> None:
        with suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


class LocalDisk:
    """The local file system."""

    _spares = Spares(0)

    def __init__(self, spares: Spares | None = None) -> None:
        if spares is not None:
            self._spares = spares

    def open(self, path: str, create: bool = False) -> LocalFile:
        return LocalFile(self._spares.open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """A file, or a directory with nothing in it."""
        if os.path.isdir(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it (what is there is fine), durable in its parent."""
        parent = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(parent):
            self.make_directory(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        descriptor = self._spares.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, directory: str) -> int:
        state = os.statvfs(directory)
        return state.f_bavail * state.f_frsize

    def lock(self, path: str) -> LocalLock:
        """Have the directory that a lock file is in, at once, or raise Locked with who has it."""
        return LocalLock(path, whole_directory=True)

    def lock_file(self, path: str) -> LocalLock:
        """Have a lock file alone: of something in a directory that others use as well."""
        return LocalLock(path, whole_directory=False)
