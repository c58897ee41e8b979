"""What a backup is made of: its manifest, its files, and both seen as a data directory.

BACKUP/MANIFEST   JSON: FORMAT of the log, and each file with its size and checksum
BACKUP/files/     segments and checkpoints, under the names they have in the log; a copy that takes
                  the place of another one has a name of its own, which the manifest says
BACKUP/lock       held (flock) by who writes the backup or restores it
"""

import zlib
from collections.abc import Callable, Sequence

import msgspec

from oncemq.errors import Corrupt, Locked
from oncemq.storage.disk import Disk, DiskView, File, Lock, LockingDisk
from oncemq.storage.segments.layout import Format, must_be_known, stretches

MANIFEST = "MANIFEST"
FOLDERS = ("checkpoints", "log")  # of the log: what a backup has files of

Progress = Callable[[str, int], None]  # the file, and how many bytes of it were copied


class Copied(msgspec.Struct, frozen=True):
    """A file of a backup: `folder`/`name` of the log, its first `size` bytes."""

    folder: str
    name: str
    size: int
    checksum: int
    chain: int = 0  # of a log segment: the chain value of its last frame; 0: not known
    file: str = ""  # its name in the backup; "": the one that it has in the log

    @property
    def place(self) -> str:
        """Where it lies in the backup."""
        return f"files/{self.file or self.name}"


class Manifest(msgspec.Struct, frozen=True):
    """A whole backup."""

    format: Format
    files: tuple[Copied, ...]
    last_serial: int

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


def read_manifest(disk: Disk, backup: str) -> Manifest | None:
    """The manifest of a backup; None when there is none."""
    if MANIFEST not in disk.names(backup):
        return None
    file = disk.open(f"{backup}/{MANIFEST}")
    try:
        manifest = msgspec.json.decode(file.read(0, file.size()), type=Manifest)
    except (msgspec.MsgspecError, OSError) as error:
        raise Corrupt(f"{backup}/{MANIFEST} cannot be read ({error}): it is no backup") from error
    finally:
        file.close()
    must_be_known(backup, manifest.format.format)
    return manifest


def lock_backup(disk: LockingDisk, backup: str) -> Lock:
    """Have a backup for oneself: two writers would remove each other's files."""
    try:
        return disk.lock(f"{backup}/lock")
    except Locked as error:
        raise Locked(
            f"another `once backup` or `once restore` uses {backup}; let it end first "
            f"({error.detail.partition(';')[0]})"
        ) from None


def holds(disk: Disk, backup: str, copied: Copied) -> bool:
    """Whether a file of a backup is there, and is what the manifest says: every byte is read."""
    try:
        file = disk.open(f"{backup}/{copied.place}")
    except FileNotFoundError:
        return False
    try:
        return file.size() == copied.size and checksum_of(file, copied.size) == copied.checksum
    except OSError:
        return False  # what the disk does not give does not hold
    finally:
        file.close()


def checksum_of(file: File, size: int) -> int:
    """The crc32 of the first `size` bytes."""
    checksum = 0
    for _, stretch in stretches(file, size):
        checksum = zlib.crc32(stretch, checksum)
    return checksum


class BackupView(DiskView):
    """The files of a backup under the names that they have in the data directory. To be read."""

    def __init__(self, disk: Disk, directory: str, backup: str, files: Sequence[Copied]) -> None:
        super().__init__(disk)
        self._directory = directory
        self._backup = backup
        self._files = files
        self._places = {each.name: each.place for each in files}

    def names(self, directory: str) -> list[str]:
        if directory == self._directory:
            return list(FOLDERS)
        folder = directory.rpartition("/")[2]
        return sorted(each.name for each in self._files if each.folder == folder)

    def open(self, path: str, create: bool = False) -> File:
        assert not create, "nothing is added to a backup by looking at it"
        return self._disk.open(f"{self._backup}/{self._places[path.rpartition('/')[2]]}")
