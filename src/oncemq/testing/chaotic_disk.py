"""The local disk under a server that is to die at a chosen moment; as `Chaos` says.

Laws: what dies does nothing more, in no thread: every later call raises. A power cut takes what
was written and not synced, of every file. Nothing is hit before `armed`: a server that could not
start would be no test.
"""

import errno
from collections.abc import Sequence

from oncemq.storage.disk import Buffer, LocalDisk, LocalFile, LocalLock
from oncemq.testing.chaos import (
    CRASH_AFTER_APPEND,
    CRASH_AFTER_SYNC,
    CRASH_BEFORE_SYNC,
    Chaos,
)


class Crashed(OSError):
    """The server died here."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, "crashed by oncemq.testing.chaos")


class ChaoticFile:
    """A file of the local disk that remembers what a power cut would take."""

    def __init__(self, disk: "ChaoticDisk", path: str, file: LocalFile) -> None:
        self._disk = disk
        self._file = file
        self._is_log = "/log/" in path
        self._unsynced: list[tuple[int, bytes, int]] = []  # position, what was there, the size then

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._disk.must_live()
        before = self._file.read(position, sum(map(len, buffers)))
        self._unsynced.append((position, before, self._file.size()))
        self._file.write(buffers, position)

    def read(self, position: int, size: int) -> bytes:
        self._disk.must_live()
        return self._file.read(position, size)

    def sync(self) -> None:
        self._disk.must_live()
        if self._is_log and self._unsynced:
            self._disk.perhaps_crash(CRASH_AFTER_APPEND)
            self._disk.perhaps_crash(CRASH_BEFORE_SYNC)
        self._file.sync()
        written, self._unsynced = bool(self._unsynced), []
        if self._is_log and written:
            self._disk.perhaps_crash(CRASH_AFTER_SYNC)

    def truncate(self, size: int) -> None:
        self._disk.must_live()
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._disk.must_live()
        self._file.allocate(size)

    def size(self) -> int:
        self._disk.must_live()
        return self._file.size()

    def close(self) -> None:
        self._disk.let_go(self)
        self._file.close()

    def lose_unsynced(self) -> None:
        """Put back what was there before the last sync."""
        for position, before, size in reversed(self._unsynced):
            self._file.write([before], position)
            if position + len(before) == size:  # it had made the file longer
                self._file.truncate(size)
        self._unsynced = []


class ChaoticDisk:
    """One life of a server's disk."""

    def __init__(self, chaos: Chaos) -> None:
        self.armed = False
        self.crashed = False
        self._chaos = chaos
        self._disk = LocalDisk()
        self._files: dict[ChaoticFile, None] = {}
        self._locks: list[LocalLock] = []

    def open(self, path: str, create: bool = False) -> ChaoticFile:
        self.must_live()
        file = ChaoticFile(self, path, self._disk.open(path, create))
        self._files[file] = None
        return file

    def names(self, directory: str) -> list[str]:
        self.must_live()
        return self._disk.names(directory)

    def rename(self, source: str, target: str) -> None:
        self.must_live()
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.must_live()
        self._disk.remove(path)

    def make_directory(self, path: str) -> None:
        self.must_live()
        self._disk.make_directory(path)

    def sync_directory(self, path: str) -> None:
        self.must_live()
        self._disk.sync_directory(path)

    def free_bytes(self, directory: str) -> int:
        self.must_live()
        return self._disk.free_bytes(directory)

    def lock(self, path: str) -> LocalLock:
        self.must_live()
        lock = self._disk.lock(path)
        self._locks.append(lock)
        return lock

    # dying

    def must_live(self) -> None:
        """Raises once the server is dead."""
        if self.crashed:
            raise Crashed

    def perhaps_crash(self, kind: str) -> None:
        """Die here, if this occasion is hit."""
        if self.armed and self._chaos.strikes(kind):
            self.crashed = True
            if kind == CRASH_BEFORE_SYNC:
                for file in list(self._files):
                    file.lose_unsynced()
            raise Crashed

    def let_go(self, file: ChaoticFile) -> None:
        """A file is closed."""
        self._files.pop(file, None)

    def bury(self) -> None:
        """As the system does for a process that died: close its files, release its locks."""
        for file in list(self._files):
            file.close()
        for lock in self._locks:
            lock.release()
