"""A disk in memory that can lose power, lie, fill up and rot; the same way for the same random.

What a machine loses is kept apart from what it has: each file has its durable bytes, and changes
that wait for a sync; each folder its durable names, and changes that wait for `sync_directory`.
Reads see all changes, as through a page cache. A power cut keeps some of those that wait.

Laws: what was synced survives every power cut (unless `lying`, a failing sync or damage says
otherwise). The name of a new file lasts only by `sync_directory`, never by the file's own sync,
and sectors of 512 bytes are written whole or not at all. For one thread.
"""

import errno
import posixpath
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random

from oncemq.errors import Locked
from oncemq.storage.disk import Buffer
from oncemq.testing.unsynced_changes import (
    Content,
    Folder,
    Inode,
    Name,
    PendingChange,
    PowerCut,
    Renaming,
    set_name,
    survivors,
)

Hook = Callable[[str, str, int], None]


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong from now on; to be changed at any time."""

    failing_syncs: int = 0  # so many raise; the bytes are dropped, but reads still show them
    lying: bool = False  # syncs return and make nothing durable
    failing_reads: int = 0  # so many raise
    capacity: int = 1 << 40  # bytes of all files; what goes beyond raises ENOSPC
    # before each call, with its name, path and bytes: may charge a clock, look at a fork, or raise
    hook: Hook | None = None


class FaultyFile:
    """One open file of a FaultyDisk; dead after the next crash of its machine."""

    def __init__(self, disk: "FaultyDisk", path: str, content: Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._life = disk.life
        self._closed = False

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all the buffers; on a full disk, what still fits."""
        data = b"".join(buffers)
        number = self._enter("write", len(data))
        end = position + len(data)
        over = self._disk.lacking(end - len(self._content.shown))
        if fits := data[: max(0, len(data) - over)]:
            self._content.write(number, position, fits)
        if over:
            raise OSError(errno.ENOSPC, "no room left", self._path)

    def read(self, position: int, size: int) -> bytes:
        self._enter("read", size)
        faults = self._disk.faults
        if faults.failing_reads:
            faults.failing_reads -= 1
            raise OSError(errno.EIO, "cannot read", self._path)
        return bytes(self._content.shown[position : position + size])

    def sync(self) -> None:
        self._must_live()
        try:
            self._disk.begin("sync", self._path, 0)
            self._disk.let_sync_fail(self._path)
        except OSError:
            self._content.drop()
            raise
        if not self._disk.faults.lying:
            self._content.harden()

    def truncate(self, size: int) -> None:
        number = self._enter("truncate", size)
        self._content.resize(number, size)

    def allocate(self, size: int) -> None:
        if size <= self.size():
            return
        number = self._enter("allocate", size)
        if self._disk.lacking(size - len(self._content.shown)):
            raise OSError(errno.ENOSPC, "no room left", self._path)
        self._content.resize(number, size)

    def size(self) -> int:
        self._must_live()
        return len(self._content.shown)

    def close(self) -> None:
        self._closed = True

    def _enter(self, call: str, size: int) -> int:
        self._must_live()
        return self._disk.begin(call, self._path, size)

    def _must_live(self) -> None:
        if self._closed or self._life != self._disk.life:
            raise OSError(errno.EBADF, "closed, or opened before a crash", self._path)


class FaultyLock:
    """Held until released, or until the machine or its process dies."""

    def __init__(self, disk: "FaultyDisk", held: dict[str, "FaultyLock"], path: str) -> None:
        self._disk = disk
        self._held = held
        self._path = path
        self._identity = disk.identity(path)

    def keep(self) -> bool:
        home, mine = self._identity
        found, there = self._disk.identity(self._path)
        if found != home:
            raise Locked(f"the directory of {self._path} was moved away or replaced")
        if there is None:
            self._disk.open(self._path, create=True).close()
            self._identity = self._disk.identity(self._path)
        elif there != mine:
            raise Locked(f"{self._path} is another lock file")
        return there is None

    def release(self) -> None:
        if self._held.get(self._path) is self:
            del self._held[self._path]


class FaultyDisk:
    """A whole file system in memory, with everything that can go wrong with it."""

    def __init__(self, random: Random) -> None:
        self.faults = DiskFaults()
        self.life = 0  # grows with each crash
        self.calls = 0
        self._random = random
        self._made = 0
        self._root = Folder(0)
        self._renamings: list[Renaming] = []
        self._locks: dict[str, FaultyLock] = {}

    # the disk

    def open(self, path: str, create: bool = False) -> FaultyFile:
        folder, name = self._split(path)
        content = folder.shown.get(name)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            number = self.begin("create", path, 0)
            content = Content(self._make())
            self._rename(number, (folder, name, content))
        if isinstance(content, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return FaultyFile(self, path, content)

    def names(self, directory: str) -> list[str]:
        return sorted(self._folder(directory).shown)

    def rename(self, source: str, target: str) -> None:
        """Atomic, also between directories; whatever had the target's name is replaced."""
        (old, old_name), (new, new_name) = self._split(source), self._split(target)
        moved = self._found(old, old_name, source)
        replaced = new.shown.get(new_name)
        if isinstance(replaced, Folder) and not isinstance(moved, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        if isinstance(replaced, Content) and isinstance(moved, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", target)
        self._must_be_empty(replaced, target)
        number = self.begin("rename", target, 0)
        self._rename(number, (old, old_name, None), (new, new_name, moved))

    def remove(self, path: str) -> None:
        folder, name = self._split(path)
        self._must_be_empty(self._found(folder, name, path), path)
        self._rename(self.begin("remove", path, 0), (folder, name, None))

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, each durable in its parent."""
        path = posixpath.normpath(posixpath.join("/", path))
        parent, name = posixpath.split(path)
        if not name:
            return
        self.make_directory(parent)
        folder = self._folder(parent)
        if name not in folder.shown:
            number = self.begin("make_directory", path, 0)
            self._rename(number, (folder, name, Folder(self._make())))
        self._folder(path)
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        """Make the names in it durable."""
        folder = self._folder(path)
        self.begin("sync_directory", path, 0)
        self.let_sync_fail(path)
        if self.faults.lying:
            return
        touched = [r for r in self._renamings if any(part[0] is folder for part in r.names)]
        if any(part[0] is not folder for renaming in touched for part in renaming.names):
            touched = self._renamings  # something moved between directories: one journal
        for renaming in touched:
            renaming.harden()
        self._renamings = [r for r in self._renamings if r not in touched]

    def free_bytes(self, directory: str) -> int:
        self._folder(directory)
        contents = (inode for inode in self._inodes() if isinstance(inode, Content))
        return max(0, self.faults.capacity - sum(len(content.shown) for content in contents))

    def lock(self, path: str) -> FaultyLock:
        if path in self._locks:
            raise Locked(f"{path} is held by process {self.life}; use another directory")
        self.open(path, create=True).close()
        lock = self._locks[path] = FaultyLock(self, self._locks, path)
        return lock

    # crashes

    def kill(self) -> None:
        """The process dies: its files and locks are gone, the page cache stays."""
        self.life += 1
        self._locks.clear()

    def crash(self, cut: PowerCut) -> None:
        """The power fails and comes back: what waited for a sync is lost, but for some of it."""
        self.kill()
        contents = [inode for inode in self._inodes(lost=True) if isinstance(inode, Content)]
        kept = survivors(cut, contents, self._renamings, self._random)
        dropped: set[tuple[int, str]] = set()
        for renaming in self._renamings:
            names = {(part[0].number, part[1]) for part in renaming.names}
            keep = cut is PowerCut.SIZE_LOST or kept(PendingChange(renaming.number, size=0))
            if keep and not names & dropped:  # else the later would undo the earlier
                renaming.harden()
            else:
                dropped |= names
        self._renamings = []
        for content in contents:
            content.crash(kept)
        folders = [inode for inode in self._inodes(lost=True) if isinstance(inode, Folder)]
        for folder in folders:
            folder.shown = dict(folder.durable)

    def fork(self, random: Random) -> "FaultyDisk":
        """The same disk again, to crash it without harm to this one; without its faults."""
        forked = FaultyDisk(random)
        forked.calls, forked._made = self.calls, self._made
        forked._root, forked._renamings = deepcopy((self._root, self._renamings))
        return forked

    # damage

    def flip_bit(self, path: str, position: int | None = None) -> int:
        """Change one bit of a file, durably; its position."""
        content = self._content(path)
        if position is None:
            position = self._random.randrange(len(content.shown))
        bit = 1 << self._random.randrange(8)
        for data in (content.shown, content.durable):
            if position < len(data):
                data[position] ^= bit
        return position

    def restore_stale_block(self, path: str) -> int | None:
        """Bring back what a block held before its last sync; its position, None without any."""
        content = self._content(path)
        old = {
            at: data for at, data in content.stale.items() if at + len(data) <= len(content.durable)
        }
        if not old:
            return None
        position = self._random.choice(sorted(old))
        for data in (content.shown, content.durable):
            data[position : position + len(old[position])] = old[position]
        return position

    # inside; the files and locks use the first four

    def identity(self, path: str) -> tuple[int | None, int | None]:
        """The numbers of the directory of a path, and of the path itself, where they are there."""
        try:
            folder, name = self._split(path)
        except FileNotFoundError:
            return None, None
        found = folder.shown.get(name)
        return folder.number, None if found is None else found.number

    def begin(self, call: str, path: str, size: int) -> int:
        """Every call passes here, before anything is done; its number."""
        if self.faults.hook is not None:
            self.faults.hook(call, path, size)
        self.calls += 1
        return self.calls

    def let_sync_fail(self, path: str) -> None:
        if self.faults.failing_syncs:
            self.faults.failing_syncs -= 1
            raise OSError(errno.EIO, "cannot sync", path)

    def lacking(self, growth: int) -> int:
        """How many bytes of this growth the disk has no room for."""
        return max(0, growth - self.free_bytes("/")) if growth > 0 else 0

    def _inodes(self, *, lost: bool = False) -> list[Inode]:
        """All files and folders; with those that only a power cut may bring back."""
        found: dict[int, Inode] = {}
        waiting: list[Inode] = [self._root]
        if lost:
            waiting += [
                inode for r in self._renamings for *_, inode in r.names if inode is not None
            ]
        while waiting:
            inode = waiting.pop()
            if inode.number not in found and isinstance(inode, Folder):
                waiting += [*inode.shown.values(), *(inode.durable.values() if lost else ())]
            found[inode.number] = inode
        return [found[number] for number in sorted(found)]

    def _make(self) -> int:
        self._made += 1
        return self._made

    def _rename(self, number: int, *names: Name) -> None:
        for folder, name, inode in names:
            set_name(folder.shown, name, inode)
        self._renamings.append(Renaming(number, names))

    def _split(self, path: str) -> tuple[Folder, str]:
        parent, name = posixpath.split(posixpath.normpath(posixpath.join("/", path)))
        return self._folder(parent), name

    def _found(self, folder: Folder, name: str, path: str) -> Inode:
        if name not in folder.shown:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        return folder.shown[name]

    def _must_be_empty(self, found: Inode | None, path: str) -> None:
        if isinstance(found, Folder) and found.shown:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)

    def _content(self, path: str) -> Content:
        found = self._found(*self._split(path), path)
        assert isinstance(found, Content), path
        return found

    def _folder(self, path: str) -> Folder:
        found: Inode = self._root
        for name in posixpath.normpath(posixpath.join("/", path)).split("/"):
            if not isinstance(found, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            found = self._found(found, name, path) if name else found
        if not isinstance(found, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return found
