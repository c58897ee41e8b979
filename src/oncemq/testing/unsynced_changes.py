"""What waits for a sync on a disk in memory, and what a power cut leaves of it.

A file has durable bytes and changes that wait; a folder has durable names; what is shown to
readers is all of it, as through a page cache. `survivors` decides which changes a power cut keeps.

Laws: a sector of 512 bytes is written whole or not at all. A name and the file behind it wait
apart from each other, and the size of a file apart from its bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


class PowerCut(Enum):
    """What a power cut leaves of the changes that wait for a sync."""

    NOTHING = "none of them"
    PREFIX = "the first so many calls, whole, over all files and names"
    REORDERED = "any of the sectors, sizes and names; changes of one name stay in order"
    TORN = "the first so many calls, and the first sectors of the next"
    SIZE_LOST = "all bytes and names, but no size"
    ZEROED = "all sizes and names, but no bytes"


@dataclass(frozen=True, slots=True)
class PendingChange:
    """Bytes at a position, or a size, or bytes that make the file as long as `size`."""

    number: int
    position: int = 0
    data: bytes = b""
    size: int | None = None

    def __deepcopy__(self, memo: object) -> "PendingChange":
        return self

    def pieces(self) -> Iterator["PendingChange"]:
        """What a device may do of it, one after the other: sectors, each with its size."""
        for start in range(0, len(self.data), SECTOR_BYTES):
            data = self.data[start : start + SECTOR_BYTES]
            position = self.position + start
            yield PendingChange(self.number, position, data)
            if self.size is not None:
                yield PendingChange(
                    self.number, position, size=min(position + len(data), self.size)
                )
        if not self.data:
            yield self


@dataclass(slots=True, eq=False)
class Content:
    """A file: what reads see, what is durable, and the changes in between."""

    number: int
    shown: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    waiting: list[PendingChange] = field(default_factory=list[PendingChange])
    stale: dict[int, bytes] = field(default_factory=dict[int, bytes])  # older durable blocks

    def write(self, number: int, position: int, data: bytes) -> None:
        end = position + len(data)
        grown = end > len(self.shown)
        if position > len(self.shown):
            self.shown.extend(bytes(position - len(self.shown)))
        self.shown[position:end] = data
        start = position - position % SECTOR_BYTES  # a device writes sectors, not bytes
        stop = min(end + -end % SECTOR_BYTES, len(self.shown))
        size = end if grown else None
        self.waiting.append(PendingChange(number, start, bytes(self.shown[start:stop]), size))

    def resize(self, number: int, size: int) -> None:
        _set_size(self.shown, size)
        self.waiting.append(PendingChange(number, size=size))

    def harden(self) -> None:
        """Everything that waits becomes durable."""
        for change in self.waiting:
            first = change.position - change.position % BLOCK_BYTES
            for start in range(first, change.position + len(change.data), BLOCK_BYTES):
                if old := bytes(self.durable[start : start + BLOCK_BYTES]):
                    self.stale[start] = old
        self.durable = _applied(self.durable, self.waiting)
        self.waiting = []

    def drop(self) -> None:
        """A failed sync: pages count as clean without being written; sizes stay to be written."""
        sizes = [change for change in self.waiting if change.size is not None]
        self.waiting = [replace(change, data=b"", position=0) for change in sizes]

    def crash(self, kept: Callable[[PendingChange], bool]) -> None:
        pieces = [piece for change in self.waiting for piece in change.pieces() if kept(piece)]
        self.durable = _applied(self.durable, pieces)
        self.shown = bytearray(self.durable)
        self.waiting = []


def _set_size(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _applied(durable: bytearray, changes: Sequence[PendingChange]) -> bytearray:
    """The bytes after these changes; those beyond the size that was kept are lost."""
    size = len(durable)
    for change in changes:
        end = change.position + len(change.data)
        if change.data:
            if end > len(durable):
                _set_size(durable, end)
            durable[change.position : end] = change.data
        if change.size is not None:
            if change.size < size:
                del durable[change.size :]
            size = change.size
    _set_size(durable, size)
    return durable


@dataclass(slots=True, eq=False)
class Folder:
    """A directory: the names that are shown, and those that are durable."""

    number: int
    shown: dict[str, "Content | Folder"] = field(default_factory=dict[str, "Content | Folder"])
    durable: dict[str, "Content | Folder"] = field(default_factory=dict[str, "Content | Folder"])


Inode = Content | Folder
Name = tuple[Folder, str, Inode | None]  # None: the name goes


@dataclass(frozen=True, slots=True)
class Renaming:
    """Names that change together: a creation and a removal one, a renaming two."""

    number: int
    names: tuple[Name, ...]

    def harden(self) -> None:
        for folder, name, inode in self.names:
            set_name(folder.durable, name, inode)


def set_name(names: dict[str, Inode], name: str, inode: Inode | None) -> None:
    if inode is None:
        del names[name]
    else:
        names[name] = inode


def survivors(
    cut: PowerCut, contents: Sequence[Content], renamings: Sequence[Renaming], random: Random
) -> Callable[[PendingChange], bool]:
    """Which of the waiting changes, in pieces, this power cut keeps."""
    changes = [change for content in contents for change in content.waiting]
    numbers = {change.number for change in changes}
    numbers.update(renaming.number for renaming in renamings)
    last = random.choice(sorted(numbers | {0}))  # 0: before all of them
    match cut:
        case PowerCut.NOTHING:
            return lambda change: False
        case PowerCut.PREFIX:
            return lambda change: change.number <= last
        case PowerCut.REORDERED:
            share = random.random()
            return lambda change: random.random() < share
        case PowerCut.SIZE_LOST:
            return lambda change: change.size is None
        case PowerCut.ZEROED:
            return lambda change: not change.data
        case PowerCut.TORN:
            torn = random.choice(
                [change for change in changes if change.data] or [PendingChange(last)]
            )
            stop = torn.position + random.randrange(max(1, len(torn.data)))  # never all of it
            stop -= stop % SECTOR_BYTES
            return lambda change: (change.number, change.position) < (torn.number, stop)
