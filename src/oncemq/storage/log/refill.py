"""A directory filled with the files of another replica, whatever was in it before.

    DIR/REFILLING   while it is filled; without FORMAT beside it: that was cut off, and begins anew

Laws: the mark comes first, then FORMAT goes, then all else; FORMAT comes back last, with a new
incarnation. So whatever a crash leaves is the old log as it was, or a directory that says that it
is half filled, or the new log. The promised epoch (EPOCH) stays through all of it, and so does what
recovery and repair have put aside.
"""

import re
from collections.abc import Callable, Iterable

from oncemq.errors import StorageRefused
from oncemq.storage.disk import File, LockingDisk
from oncemq.storage.log.pinned_files import PinnedFile
from oncemq.storage.segments.end import NAME as END
from oncemq.storage.segments.layout import REFILLING, Format, adopt_format, replace_file
from oncemq.storage.segments.openings import NAME as OPENED
from oncemq.storage.segments.openings import reserve_openings

FOLDERS = ("checkpoints", "log")
_NAMES = {
    "checkpoints": re.compile(r"[0-9]{20}\.ckpt"),
    "log": re.compile(r"[0-9]{20}(\.log|-[0-9]{6,}\.cold)"),
}


class Refill:
    """Fills one directory; its lock is held until `finish` or `give_up`."""

    def __init__(self, disk: LockingDisk, directory: str, files: Iterable[PinnedFile]) -> None:
        self._disk = disk
        self._directory = directory
        self._files = {each.name: each for each in files}
        self._open: dict[str, File] = {}
        for each in self._files.values():
            if each.folder not in FOLDERS or not _NAMES[each.folder].fullmatch(each.name):
                raise StorageRefused(
                    f"{each.folder}/{each.name} was sent, which is no file of a log",
                    code="frames_refused",
                )
        disk.make_directory(directory)
        self._lock = disk.lock(f"{directory}/lock")
        try:
            self._clear()
        except BaseException:
            self.give_up()
            raise

    def write(self, name: str, position: int, data: bytes) -> None:
        """Some bytes of a file, in any order."""
        each = self._files[name]
        assert position + len(data) <= each.size, f"{name} is sent beyond its end"
        if name not in self._open:
            path = f"{self._directory}/{each.folder}/{name}"
            self._open[name] = self._disk.open(path, create=True)
        self._open[name].write([data], position)

    def finish(self, form: Format, random_bytes: Callable[[int], bytes]) -> Format:
        """All of it was written: make it durable, then a log of the shard that `form` names.

        The next opening verifies every frame of it.
        """
        for name, each in self._files.items():
            file = self._open.get(name)
            if file is None or file.size() != each.size:
                raise StorageRefused(f"{name} was not sent whole", code="frames_refused")
            file.sync()
        for folder in FOLDERS:
            self._disk.sync_directory(f"{self._directory}/{folder}")
        reserve_openings(self._disk, self._directory)
        made = adopt_format(self._disk, self._directory, form, random_bytes)
        self._disk.remove(f"{self._directory}/{REFILLING}")
        self._disk.sync_directory(self._directory)
        self.give_up()
        return made

    def give_up(self) -> None:
        """Close everything; a directory that is half filled says so."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._lock.release()

    def _clear(self) -> None:
        disk, directory = self._disk, self._directory
        replace_file(disk, f"{directory}/{REFILLING}", b"")
        if "FORMAT" in disk.names(directory):
            disk.remove(f"{directory}/FORMAT")
            disk.sync_directory(directory)
        for folder in FOLDERS:
            disk.make_directory(f"{directory}/{folder}")
            for name in disk.names(f"{directory}/{folder}"):
                disk.remove(f"{directory}/{folder}/{name}")
            disk.sync_directory(f"{directory}/{folder}")
        for name in (END, OPENED):
            if name in disk.names(directory):
                disk.remove(f"{directory}/{name}")
        disk.sync_directory(directory)
