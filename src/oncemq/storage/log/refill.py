"""A directory filled with the files of another replica, whatever was in it before.

    DIR/REFILLING   while it is filled; without FORMAT beside it: that was cut off, and begins anew

Laws: the mark comes first, then FORMAT goes, then all else; FORMAT comes back last, with a new
incarnation. So whatever a crash leaves is the old log as it was, or a directory that says that it
is half filled, or the new log. The promised epoch (EPOCH) stays through all of it, and so does what
recovery and repair have put aside.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from oncemq.errors import StorageRefused
from oncemq.protocol.replicas.messages import RefillFile
from oncemq.storage.disk import File, Lock, LockingDisk
from oncemq.storage.log.pinned_files import PinnedFile
from oncemq.storage.segments.end import NAME as END
from oncemq.storage.segments.layout import REFILLING, Format, adopt_format, replace_file
from oncemq.storage.segments.openings import NAME as OPENED
from oncemq.storage.segments.openings import reserve_openings
from oncemq.storage.segments.segment import HEADER_BYTES

FOLDERS = ("checkpoints", "log")
_NAMES = {
    "checkpoints": re.compile(r"[0-9]{20}\.ckpt"),
    "log": re.compile(r"[0-9]{20}(\.log|-[0-9]{6,}\.cold)"),
}


def files_to_fill(offered: Sequence[RefillFile]) -> list[PinnedFile]:
    """What another replica offers, as the files of a directory; refused, if they cannot be."""
    files: dict[str, PinnedFile] = {}
    for each in offered:
        folder = next((one for one in FOLDERS if _NAMES[one].fullmatch(each.name)), None)
        if folder is None or each.name in files:
            raise _no_file_of_a_log(each.name)
        if each.size < HEADER_BYTES:
            raise StorageRefused(
                f"{each.name} of {each.size} bytes was offered, which has no room for a header",
                code="frames_refused",
            )
        files[each.name] = PinnedFile(folder, each.name, each.size)
    if not any(each.folder == "log" for each in files.values()):
        raise StorageRefused("no segment of a log was offered", code="frames_refused")
    return list(files.values())


def discard(disk: LockingDisk, directory: str) -> None:
    """Empty a directory that was filled with files that do not hold: it is to be filled again."""
    Refill(disk, directory, ()).give_up()


def _no_file_of_a_log(name: str) -> StorageRefused:
    return StorageRefused(f"{name} was sent, which is no file of a log", code="frames_refused")


class Refill:
    """Fills one directory; its lock is held until `finish` or `give_up`."""

    def __init__(
        self,
        disk: LockingDisk,
        directory: str,
        files: Iterable[PinnedFile],
        *,
        lock: Lock | None = None,  # of the directory, if it is held
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._files = {each.name: each for each in files}
        self._open: dict[str, File] = {}
        self._sealed: set[str] = set()
        for each in self._files.values():
            if each.folder not in FOLDERS or not _NAMES[each.folder].fullmatch(each.name):
                raise _no_file_of_a_log(f"{each.folder}/{each.name}")
        disk.make_directory(directory)
        self._lock = lock or disk.lock(f"{directory}/lock")
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

    def seal(self, name: str) -> None:
        """All of a file was written: make it durable."""
        file = self._open.get(name)
        if file is None or file.size() != self._files[name].size:
            raise StorageRefused(f"{name} was not sent whole", code="frames_refused")
        file.sync()
        file.close()
        del self._open[name]
        self._sealed.add(name)

    def finish(self, form: Format, random_bytes: Callable[[int], bytes]) -> Format:
        """All of it was written: make it durable, then a log of the shard that `form` names.

        The next opening verifies every frame of it.
        """
        for name in self._files.keys() - self._sealed:
            self.seal(name)
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
