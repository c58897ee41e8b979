"""Locks of the local file system: one process has a directory, however others got there.

A lock is an flock, which the kernel releases when the process dies, however it dies. It is on the
directory itself: that cannot be removed while there is data in it. It is on a file in it as well:
older versions look at nothing else, it says who holds the directory, and some file systems (NFS)
lock no directories. A file can be removed by itself, by a person or by what tidies up; then
whoever comes next would lock another file of the same name. So `keep` looks at it now and then.

Laws: the directory is locked first, so that whoever is refused leaves no file. A lock file is
the lock only while it has its name. A lock that was lost stays lost: the holder stops.
"""

import errno
import fcntl
import os
import weakref
from contextlib import suppress

from oncemq.errors import Locked
from oncemq.storage.shortage import DISK_FULL, NO_DESCRIPTORS

# What file systems say that lock no directories: NFS wants a descriptor to write with.
_NO_SUCH_LOCKS = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOTSUP, errno.EOPNOTSUPP)
_NONE = -1


class LocalLock:
    """A lock by a file, and by the directory it is in.

    A forked process would share it, and hold on to it when the one that took it is dead. So it
    gives up its part at once; that releases nothing.
    """

    def __init__(self, path: str, *, whole_directory: bool) -> None:
        self._path = os.path.abspath(path)  # the process may go elsewhere
        self._home = os.path.dirname(self._path)
        self._directory = self._file = _NONE
        _LOCKS.add(self)
        try:
            if whole_directory:
                self._directory = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._lock_directory()
            while self._file == _NONE:
                self._lock_file()
        except BaseException:
            self.release()
            raise

    def keep(self) -> bool:
        """Raise Locked if another may have the directory by now.

        A lock file that was removed, and that nobody has made anew, is put back: True.
        """
        if self._directory != _NONE and not _is(self._directory, self._home):
            raise Locked(
                f"{self._home} was moved away or replaced while this process used it; it stops, "
                "so as not to write to what has the name now"
            )
        if os.path.lexists(self._path):
            self._must_be_mine()
            return False
        self._close_file()
        try:
            while self._file == _NONE:
                self._lock_file(os.O_EXCL)
        except OSError as error:
            if error.errno not in (*DISK_FULL, *NO_DESCRIPTORS):
                raise
            return False  # the next look tries it again
        return True

    def release(self) -> None:
        """Let others have it."""
        self._close_file()
        if self._directory != _NONE:
            os.close(self._directory)
            self._directory = _NONE

    def _close_file(self) -> None:
        if self._file != _NONE:
            os.close(self._file)
            self._file = _NONE

    def _must_be_mine(self) -> None:
        if self._file == _NONE or not _is(self._file, self._path):
            raise Locked(
                f"{self._path} is another lock file than the one of this process, which was "
                "removed: another process may have the directory now, so this one stops. See "
                "which processes use it, and start one"
            )

    def _lock_directory(self) -> None:
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._held() from None
        except OSError as error:
            if error.errno not in _NO_SUCH_LOCKS:
                raise

    def _lock_file(self, more: int = 0) -> None:
        """Take the file that has the name; none if it lost its name meanwhile."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | more
        try:
            self._file = os.open(self._path, flags, 0o600)
        except FileExistsError:
            raise self._held() from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise Locked(
                f"{self._path} is a symbolic link, and whoever made it chose what would be "
                "written to; remove it"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._held() from None
        if _is(self._file, self._path):
            _note_holder(self._file)
        else:
            self._close_file()

    def _held(self) -> Locked:
        holder = ""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            finally:
                os.close(descriptor)
        return Locked(
            f"{self._path} is held by process {holder or 'unknown'}; stop it, or use another "
            "directory"
        )


_LOCKS: "weakref.WeakSet[LocalLock]" = weakref.WeakSet()


def _forked() -> None:
    for lock in list(_LOCKS):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _is(descriptor: int, path: str) -> bool:
    """Whether an open file or directory is the one that has this name."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def _note_holder(descriptor: int) -> None:
    """Say who holds a lock; on a full disk it is held all the same."""
    holder = b"%d\n" % os.getpid()
    try:
        os.pwrite(descriptor, holder, 0)  # before the cut: a file that has its block keeps it
        os.ftruncate(descriptor, len(holder))
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        os.ftruncate(descriptor, 0)
