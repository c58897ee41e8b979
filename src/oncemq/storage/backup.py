"""A copy of a log's files, taken while its server runs, and a data directory made from it.

    BACKUP/MANIFEST   JSON: FORMAT of the log, and each file with its size and checksum
    BACKUP/files/     segments and checkpoints, under the names they have in the log

Why files: sealed segments, cold segments and checkpoints never change under their name, so a
second backup copies only new ones, and nothing is asked of the server. Only the segment in use
grows: what holds of it, frame by frame, is its copy.

Laws: the manifest is written last, so a backup that was cut off leaves the one before as it was.
A file that both name only grew: the older manifest knows how much of it was its own. A set of files
counts only if nothing vanished while it was copied: compaction replaces segments by others. A
restored log has a raised generation: its clients may have seen what came after the backup.
"""

import zlib
from collections.abc import Callable, Iterator

import msgspec

from oncemq.errors import Corrupt, StorageRefused
from oncemq.storage.disk import Disk, File
from oncemq.storage.framing import STRETCH_BYTES, Bad, frame_key
from oncemq.storage.layout import Format, continue_format, read_format, replace_file
from oncemq.storage.segment import COLD, read_header, scan_cold
from oncemq.storage.verify import verify

PASSES_MAX = 20  # each is followed by another only when compaction took a file away meanwhile
MANIFEST = "MANIFEST"

Progress = Callable[[str, int], None]  # the file, and how many bytes of it were copied


class Copied(msgspec.Struct, frozen=True):
    """A file of a backup: `folder`/`name`, its first `size` bytes."""

    folder: str
    name: str
    size: int
    checksum: int


class Manifest(msgspec.Struct, frozen=True):
    """A whole backup."""

    format: Format
    files: tuple[Copied, ...]
    last_serial: int

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


class Report(msgspec.Struct, frozen=True):
    """What a backup did."""

    last_serial: int
    files: int
    size: int
    copied_files: int
    copied_bytes: int


def read_manifest(disk: Disk, backup: str) -> Manifest | None:
    """The manifest of a backup; None when there is none."""
    if MANIFEST not in disk.names(backup):
        return None
    file = disk.open(f"{backup}/{MANIFEST}")
    try:
        return msgspec.json.decode(file.read(0, file.size()), type=Manifest)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{backup}/{MANIFEST} cannot be read ({error}): it is no backup") from error
    finally:
        file.close()


def back_up(disk: Disk, directory: str, backup: str, *, progress: Progress) -> Report:
    """Bring a backup up to the log of a directory, whether or not a server runs on it."""
    form = read_format(disk, directory)
    if form is None:
        raise StorageRefused(f"{directory} has no FORMAT file: it is not a data directory")
    disk.make_directory(f"{backup}/files")
    before = read_manifest(disk, backup)
    if before is not None and before.format != form:
        raise StorageRefused(
            f"{backup} is the backup of another log, or of this one before it went back in time "
            "(a restore, or accepted loss); back up into another directory"
        )
    known = {each.name: each for each in before.files} if before else {}
    work = _BackUp(disk, directory, backup, form, known, progress)
    files = work.run()
    manifest = Manifest(form, tuple(files), work.last_serial)
    disk.sync_directory(f"{backup}/files")
    replace_file(disk, f"{backup}/{MANIFEST}", msgspec.json.format(msgspec.json.encode(manifest)))
    kept = {each.name for each in files}
    for name in disk.names(f"{backup}/files"):
        if name not in kept:
            disk.remove(f"{backup}/files/{name}")
    return Report(work.last_serial, len(files), manifest.size, work.copied_files, work.copied_bytes)


class _BackUp:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        backup: str,
        form: Format,
        known: dict[str, Copied],
        progress: Progress,
    ) -> None:
        self.disk, self.directory, self.backup = disk, directory, backup
        self.key = frame_key(form.identity)
        self.known = known
        self.progress = progress
        self.last_serial = 0
        self.copied_files = 0
        self.copied_bytes = 0

    def run(self) -> list[Copied]:
        """Copy until nothing vanished while we did."""
        for _ in range(PASSES_MAX):
            names = self._names()
            try:
                files = [self._copy(folder, name, last=last) for folder, name, last in names]
            except FileNotFoundError:
                continue
            still = {name for _, name, _ in self._names()}
            if all(each.name in still for each in files):
                return files
        raise StorageRefused(
            f"files of {self.directory} were replaced in each of {PASSES_MAX} passes; back up "
            "again when the server has less to compact"
        )

    def _names(self) -> list[tuple[str, str, bool]]:
        """Checkpoints first: the log that is copied after them goes further than they do."""
        ends = {"checkpoints": (".ckpt",), "log": (".cold", ".log")}
        found = [
            (folder, name)
            for folder, suffixes in ends.items()
            for name in self.disk.names(f"{self.directory}/{folder}")
            if name.endswith(suffixes)
        ]
        logs = [name for _, name in found if name.endswith(".log")]
        return [(folder, name, name == max(logs, default="")) for folder, name in found]

    def _copy(self, folder: str, name: str, *, last: bool) -> Copied:
        source = self.disk.open(f"{self.directory}/{folder}/{name}")
        try:
            known = self.known.get(name)
            if known is not None and known.size == source.size() and not last:
                return known  # what does not grow does not change
            target = f"{self.backup}/files/{name}"
            copy = self.disk.open(f"{target}.tmp", create=True)
            try:
                copy.truncate(0)
                for position, stretch in _stretches(source, source.size()):
                    copy.write([stretch], position)
                    self.progress(name, len(stretch))
                size = self._holds(copy, folder, name, last=last)
                copy.truncate(size)
                copy.sync()
                checksum = checksum_of(copy, size)
            finally:
                copy.close()
        finally:
            source.close()
        self.disk.rename(f"{target}.tmp", target)
        copied = self.known[name] = Copied(folder, name, size, checksum)
        self.copied_files += 1
        self.copied_bytes += size
        return copied

    def _holds(self, copy: File, folder: str, name: str, *, last: bool) -> int:
        """How much of a copied segment holds; all of it has to, but for the segment in use."""
        if folder != "log":
            return copy.size()
        header = read_header(copy)
        if header is None:
            if last:
                return 0  # about to be begun
            raise Corrupt(f"{name}: the header does not hold; run `once repair`")
        if header.form == COLD:
            bad = scan_cold(copy, header, self.key)
            if isinstance(bad, Bad):
                raise Corrupt(f"{name} is damaged at byte {bad.position}: {bad.why}")
            return copy.size()
        found = verify(copy, header, self.key)
        if found.bad is not None and not last:
            raise Corrupt(f"{name} is damaged at byte {found.bad.position}: {found.bad.why}")
        self.last_serial = max(self.last_serial, found.last_serial)
        return found.end if last else copy.size()


def restore(
    disk: Disk,
    backup: str,
    directory: str,
    *,
    random_bytes: Callable[[int], bytes],
    progress: Progress,
) -> Manifest:
    """Make a data directory of a backup. What is there is never overwritten."""
    manifest = read_manifest(disk, backup)
    if manifest is None:
        raise StorageRefused(f"{backup} has no {MANIFEST}: it is no backup, or was never finished")
    disk.make_directory(directory)
    if disk.names(directory):
        raise StorageRefused(
            f"{directory} is not empty; restore into a new directory, or move this one away"
        )
    for folder in ("log", "checkpoints"):
        disk.make_directory(f"{directory}/{folder}")
    for each in manifest.files:
        if each.size == 0:
            continue
        source = disk.open(f"{backup}/files/{each.name}")
        copy = disk.open(f"{directory}/{each.folder}/{each.name}", create=True)
        try:
            for position, stretch in _stretches(source, each.size):
                copy.write([stretch], position)
                progress(each.name, len(stretch))
            if copy.size() != each.size or checksum_of(copy, each.size) != each.checksum:
                raise Corrupt(
                    f"{backup}/files/{each.name} is not what was backed up; {directory} is not "
                    "complete: remove it, and restore another backup"
                )
            copy.sync()
        finally:
            source.close()
            copy.close()
    for folder in ("log", "checkpoints"):
        disk.sync_directory(f"{directory}/{folder}")
    continue_format(disk, directory, manifest.format, random_bytes)
    return manifest


def checksum_of(file: File, size: int) -> int:
    """The crc32 of the first `size` bytes."""
    checksum = 0
    for _, stretch in _stretches(file, size):
        checksum = zlib.crc32(stretch, checksum)
    return checksum


def _stretches(file: File, size: int) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < size:
        stretch = file.read(position, min(STRETCH_BYTES, size - position))
        if not stretch:
            return
        yield position, stretch
        position += len(stretch)
