"""Going on after damage, when a person has said so. Nothing is thrown away.

Laws: whatever is taken out of the log is first in DIR/quarantine/, durably. The chain is cut
at its first damage and what lies beyond goes with it: records in the middle cannot be left
out of a fold. A segment the checkpoints cover holds only messages that matter, so it is
salvaged: every batch that still holds goes into a cold segment in its place. The log's
generation is raised before anything is taken out of it: clients that saw what is lost are told.
"""

from collections.abc import Callable, Sequence

from oncemq.errors import StorageRefused
from oncemq.protocol.records import Committed, MessagesStored, PartKept
from oncemq.protocol.replies import NO_OFFSET
from oncemq.storage.compaction.compaction import ColdWriter, Moved
from oncemq.storage.disk import Disk, LockingDisk
from oncemq.storage.repair.diagnosis import diagnose_files
from oncemq.storage.repair.findings import Damage, Diagnosis, valid_frames
from oncemq.storage.repair.forgiving import ForgivingFile
from oncemq.storage.repair.lost_format import find_format
from oncemq.storage.segments.framing import Frame, frame_key
from oncemq.storage.segments.index import BlockCache
from oncemq.storage.segments.layout import FormatHole, raise_generation, read_format, save_copy
from oncemq.storage.segments.segment import COLD, Header, remove_index, remove_segment

__all__ = ["Diagnosis", "accept_loss", "diagnose"]


def diagnose(disk: LockingDisk, directory: str) -> Diagnosis:
    """What is damaged, what it would cost, what can be done. Changes nothing."""
    lock = disk.lock(f"{directory}/lock")
    try:
        return diagnose_files(disk, directory)
    finally:
        lock.release()


def accept_loss(
    disk: LockingDisk,
    directory: str,
    *,
    random_bytes: Callable[[int], bytes],
    holes: Sequence[FormatHole] = (),
    known: int = 0,
) -> Diagnosis:
    """Go on without what is damaged; what that was, as diagnosed before.

    `holes`: of the topics, also of a log that is sound in itself. They are written down as agreed
    to, and the next server refuses every other one. `known`: the newest generation that the log
    knows.
    """
    lock = disk.lock(f"{directory}/lock")
    try:
        found = diagnose_files(disk, directory)
        if found.healthy and not holes:
            return found
        if not found.mendable:
            raise StorageRefused(
                f"{directory}: no checkpoint fits what is left of the log, so its state cannot "
                "be rebuilt; restore the directory from a backup"
            )
        form, _ = find_format(disk, directory)
        disk.make_directory(f"{directory}/quarantine")
        if found.format_fault:
            _copy_format(disk, directory)
        raise_generation(disk, directory, random_bytes, old=form, known=known, agreed=holes)
        for damage in found.damages:
            if damage.covered:
                _salvage(disk, directory, damage)
        for path in found.checkpoints:
            _quarantine(disk, directory, path)
        for name in reversed(found.beyond):  # newest first: until the last step, damage shows
            _quarantine(disk, directory, f"{directory}/log/{name}")
        for damage in found.damages:
            if not damage.covered:
                _cut(disk, directory, damage)
        return found
    finally:
        lock.release()


def _copy_format(disk: Disk, directory: str) -> None:
    """Keep what is left of the file that is written again."""
    if "FORMAT" not in disk.names(directory):
        return
    file = ForgivingFile(disk.open(f"{directory}/FORMAT"))
    try:
        save_copy(disk, file, 0, f"{directory}/quarantine/FORMAT")
    finally:
        file.close()


def _quarantine(disk: Disk, directory: str, path: str) -> None:
    folder, _, name = path.rpartition("/")
    if name.endswith(".log"):
        remove_index(disk, path)
    disk.rename(path, f"{directory}/quarantine/{name}")
    disk.sync_directory(f"{directory}/quarantine")
    disk.sync_directory(folder)


def _cut(disk: Disk, directory: str, damage: Damage) -> None:
    """End the log before the damage."""
    if damage.position == 0:
        _quarantine(disk, directory, damage.path)
        return
    name = damage.path.rpartition("/")[2]
    file = ForgivingFile(disk.open(damage.path))
    try:
        copy = f"{directory}/quarantine/{name}-{damage.position}.cut"
        save_copy(disk, file, damage.position, copy)
        file.truncate(damage.position)
        file.sync()
    finally:
        file.close()


def _salvage(disk: Disk, directory: str, damage: Damage) -> None:
    """Put what still holds of a covered segment into a cold segment in its place."""
    form = read_format(disk, directory)
    assert form is not None
    folder, _, name = damage.path.rpartition("/")
    file = ForgivingFile(disk.open(damage.path))
    try:
        save_copy(disk, file, 0, f"{directory}/quarantine/{name}")
        kept = [
            moved
            for frame in valid_frames(file, 0, frame_key(form.identity))
            for moved in _whole(frame, file.read(frame.body_position, frame.body_bytes))
        ]
    finally:
        file.close()
    if kept and damage.home is not None:
        edition = int(name[21:27]) + 1 if name.endswith(".cold") else 1
        header = Header(
            COLD,
            form.identity,
            damage.home,
            last_serial=max(moved.serial for moved in kept),
            edition=edition,
            sources=(name,),
        )
        cold = ColdWriter(disk, f"{folder}/{header.name}", header)
        try:
            for moved in sorted(kept, key=_topic_order):
                cold.add(moved)
            cold.publish(BlockCache())
        finally:
            cold.close()
    remove_segment(disk, damage.path)
    disk.sync_directory(folder)


def _topic_order(moved: Moved) -> tuple[int, int]:
    return moved.record.topic_id, moved.record.first_offset


def _whole(frame: Frame, body: bytes) -> list[Moved]:
    """The batch of a frame, if its body holds too, or the parts of a commit."""
    record = frame.record()
    if not frame.holds(body):
        return []
    if isinstance(record, MessagesStored | PartKept):
        return [Moved(frame.serial, record, frame.seed, frame.body_checksum, body)]
    if not isinstance(record, Committed):
        return []
    kept = [PartKept.of(record, each) for each in record.parts if each.first_offset != NO_OFFSET]
    return [Moved(frame.serial, part, 0, 0, b"") for part in kept]
