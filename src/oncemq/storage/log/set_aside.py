"""A damaged log put aside as a whole, so that its replica may begin anew from a peer.

    DIR/damaged/N/   FORMAT, END, OPENED, log/ and checkpoints/ as they were; WHY: what was found

Laws: nothing is copied and nothing is removed, so what could be read before can be read after it;
the folder is a directory that `once repair` works on. FORMAT goes first and the segments last: what
a crash leaves is records without a FORMAT, which are refused, and put aside into the same folder;
or an empty directory. The promised epoch (EPOCH) stays, unless it is what cannot be read. There are
`KEPT` of them at most: a disk that damages what it is given again and again needs a person.
"""

import shlex

from oncemq.errors import Corrupt, StorageRefused
from oncemq.storage.disk import Disk
from oncemq.storage.segments.end import NAME as END
from oncemq.storage.segments.layout import replace_file
from oncemq.storage.segments.openings import NAME as OPENED
from oncemq.storage.segments.promised_epoch import NAME as EPOCH
from oncemq.storage.segments.promised_epoch import PromisedEpoch

FOLDER = "damaged"
KEPT = 3
WHY = "WHY"
PARTS = ("FORMAT", END, OPENED, "checkpoints", "log")  # in this order


def set_aside(disk: Disk, directory: str, why: str) -> str:
    """Put a log aside whose lock is held; where it is now."""
    there = disk.names(directory)
    moved = [name for name in (*_unreadable_promise(disk, directory), *PARTS) if name in there]
    target = _target(disk, directory, moved)
    disk.make_directory(target)
    if WHY not in disk.names(target):
        replace_file(disk, f"{target}/{WHY}", f"{why}\n".encode())
    for name in moved:
        disk.rename(f"{directory}/{name}", f"{target}/{name}")
        disk.sync_directory(target)
        disk.sync_directory(directory)
    return target


def kept_aside(disk: Disk, directory: str) -> list[str]:
    """The logs that were put aside, oldest first."""
    try:
        names = disk.names(f"{directory}/{FOLDER}")
    except FileNotFoundError:
        return []
    return [f"{directory}/{FOLDER}/{name}" for name in sorted(names, key=_number)]


def remove_some(disk: Disk, aside: str) -> bool:
    """Remove one file of a log that was put aside, or the empty folder; whether that was all."""
    for folder in ("checkpoints", "log"):
        if folder in disk.names(aside):
            for name in disk.names(f"{aside}/{folder}"):
                disk.remove(f"{aside}/{folder}/{name}")
                return False
            disk.remove(f"{aside}/{folder}")
    for name in disk.names(aside):
        disk.remove(f"{aside}/{name}")
    disk.remove(aside)
    parent = aside.rpartition("/")[0]
    if not disk.names(parent):
        disk.remove(parent)
    return True


def _target(disk: Disk, directory: str, moved: list[str]) -> str:
    """A new folder; or the newest one, if a crash came before all of the log was in it."""
    kept = kept_aside(disk, directory)
    if kept and not set(moved) & set(disk.names(kept[-1])):
        return kept[-1]
    if len(kept) >= KEPT:
        place = shlex.quote(f"{directory}/{FOLDER}")
        raise StorageRefused(
            f"the log in {directory} was damaged {KEPT} times, and is damaged again, before this "
            f"server was in sync once: its disk changes what it is given. Give it another disk; or "
            f"look after this one, and remove {place} once the other servers are in sync",
            code="damaged_again",
        )
    number = 1 + max((_number(each.rpartition("/")[2]) for each in kept), default=0)
    return f"{directory}/{FOLDER}/{number}"


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0


def _unreadable_promise(disk: Disk, directory: str) -> tuple[str, ...]:
    try:
        PromisedEpoch(disk, directory)
    except Corrupt:
        return (EPOCH,)
    return ()
