"""A data directory made of a backup.

Laws: what is there is never overwritten. Until the directory is whole it has a mark (`RESTORING`),
by which everybody knows it for what it is. A restored log has a raised generation: its clients may
have seen what came after the backup. It has its reserve on the disk before anybody serves it: a
disk that is full the moment after leaves a way out.
"""

from collections.abc import Callable

from oncemq.errors import Corrupt, StorageFull, StorageRefused
from oncemq.storage.backup.manifest import (
    FOLDERS,
    MANIFEST,
    Copied,
    Manifest,
    Progress,
    checksum_of,
    lock_backup,
    read_manifest,
)
from oncemq.storage.disk import Disk, LockingDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.segments.layout import (
    RESTORING,
    continue_format,
    must_not_be_half,
    replace_file,
    stretches,
)
from oncemq.storage.segments.openings import reserve_openings
from oncemq.storage.shortage import DISK_FULL

RandomBytes = Callable[[int], bytes]


def restore(
    disk: LockingDisk,
    backup: str,
    directory: str,
    *,
    random_bytes: RandomBytes,
    progress: Progress,
) -> Manifest:
    """Make a data directory of a backup."""
    if MANIFEST not in disk.names(backup):
        raise StorageRefused(f"{backup} has no {MANIFEST}: it is no backup, or was never finished")
    lock = lock_backup(disk, backup)
    try:
        manifest = read_manifest(disk, backup)
        assert manifest is not None
        disk.make_directory(directory)
        names = disk.names(directory)
        must_not_be_half(directory, names)
        if names:
            raise StorageRefused(
                f"{directory} is not empty; restore into a new directory, or move this one away"
            )
        held = disk.lock(f"{directory}/lock")
        try:
            _fill(disk, backup, directory, manifest, random_bytes, progress)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            needed = manifest.size + _reserve(manifest)
            raise StorageFull(
                f"there is no room for the backup in {directory}: it needs {needed:,} bytes, the "
                "reserve of its server included. Remove what is there, and restore onto a disk "
                "that has them"
            ) from error
        finally:
            held.release()
        return manifest
    finally:
        lock.release()


def _fill(
    disk: Disk,
    backup: str,
    directory: str,
    manifest: Manifest,
    random_bytes: RandomBytes,
    progress: Progress,
) -> None:
    """The mark first, FORMAT last; a mark beside FORMAT is removed by the next opening."""
    replace_file(disk, f"{directory}/{RESTORING}", b"")
    for folder in FOLDERS:
        disk.make_directory(f"{directory}/{folder}")
    for each in manifest.files:
        if each.size:  # the oldest backups name segments that were never begun
            _bring_back(disk, backup, directory, each, progress)
    _take_reserve(disk, directory, manifest)
    reserve_openings(disk, directory)
    for folder in FOLDERS:
        disk.sync_directory(f"{directory}/{folder}")
    continue_format(disk, directory, manifest.format, random_bytes)
    disk.remove(f"{directory}/{RESTORING}")


def _reserve(manifest: Manifest) -> int:
    """What a server keeps for small facts and its next checkpoint: see `room`."""
    checkpoints = [each.size for each in manifest.files if each.folder == "checkpoints"]
    return LogOptions().reserve_bytes + sum(checkpoints[-1:])


def _take_reserve(disk: Disk, directory: str, manifest: Manifest) -> None:
    """The unused end of the segment in use, which was not copied."""
    logs = [each for each in manifest.files if each.name.endswith(".log") and each.size]
    file = disk.open(f"{directory}/log/{logs[-1].name}")
    try:
        file.allocate(logs[-1].size + _reserve(manifest))
        file.sync()
    finally:
        file.close()


def _bring_back(disk: Disk, backup: str, directory: str, each: Copied, progress: Progress) -> None:
    path = f"{backup}/{each.place}"
    left = f"{directory} is not complete: remove it, and restore another backup"
    try:
        source = disk.open(path)
    except FileNotFoundError:
        raise Corrupt(f"{path} is missing; {left}") from None
    try:
        copy = disk.open(f"{directory}/{each.folder}/{each.name}", create=True)
        try:
            for position, stretch in stretches(source, each.size):
                copy.write([stretch], position)
                progress(each.name, len(stretch))
            if copy.size() != each.size or checksum_of(copy, each.size) != each.checksum:
                raise Corrupt(f"{path} is not what was backed up; {left}")
            copy.sync()
        finally:
            copy.close()
    finally:
        source.close()
