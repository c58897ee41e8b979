"""Cutting a log above a serial, before it is opened: what another leader's history does not have.

A replica that wrote what was never committed, and follows another leader now, parts from it at some
serial. What is above goes, with a copy in `torn/`, and the log is opened as if it had ended there.

Laws: nothing is cut that a checkpoint stands for. Each step leaves a log that opens: first END says
no more than what stays, then whole segments go from the newest on, each durably before the next,
then the last one is made shorter. A crash in between leaves a log that is too long: who opened it
with a serial to cut to does so again.
"""

from oncemq.errors import StorageRefused
from oncemq.storage.disk import Disk, File
from oncemq.storage.log.checkpoint import CheckpointFile
from oncemq.storage.segments.end import lower_end
from oncemq.storage.segments.framing import Frame, scan
from oncemq.storage.segments.layout import save_copy, stretches
from oncemq.storage.segments.segment import Header, remove_index, remove_segment
from oncemq.storage.shortage import DISK_FULL


def cut(
    disk: Disk,
    directory: str,
    serial: int,
    *,
    key: int,
    headers: list[Header],
    newest: CheckpointFile | None,
) -> list[str]:
    """Cut what is above a serial; where the copies are. `headers`: of all log segments."""
    if newest is not None and newest.end > serial:
        raise StorageRefused(
            f"{directory} is to be cut above serial {serial}, but its checkpoint {newest.path} "
            f"stands for what came up to {newest.end}: this replica has to be refilled",
            code="cut_below_checkpoint",
        )
    kept = [header for header in headers if header.first_serial <= serial] or headers[:1]
    assert kept[0].first_serial <= serial + 1, "recovery could not begin there"
    last, over = kept[-1], headers[len(kept) :]
    path = f"{directory}/log/{last.name}"
    file = disk.open(path)
    try:
        reached, start = _end_of(file, last, serial, key)
        if reached < serial or not (over or _has_more(file, start)):
            return []  # it is no longer than that; whether it should be, the opening finds out
        copies = [keep_copy(disk, directory, file, last.name, start, "cut")]
        copies += [_keep_whole(disk, directory, header.name) for header in over]
        lower_end(disk, directory, last.first_serial, serial)
        for header in reversed(over):
            remove_segment(disk, f"{directory}/log/{header.name}")
            disk.sync_directory(f"{directory}/log")
        remove_index(disk, path)
        file.truncate(start)
        file.sync()
    finally:
        file.close()
    return copies


def keep_copy(disk: Disk, directory: str, file: File, name: str, start: int, what: str) -> str:
    """Keep what is cut off, for a person to look at; a full disk must be able to start."""
    copy = f"{directory}/torn/{name}-{start}.{what}"
    try:
        save_copy(disk, file, start, copy)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        disk.remove(copy)
        return f"none: the disk is full; {directory}/log/{name} from byte {start} on"
    return copy


def _keep_whole(disk: Disk, directory: str, name: str) -> str:
    file = disk.open(f"{directory}/log/{name}")
    try:
        return keep_copy(disk, directory, file, name, 0, "cut")
    finally:
        file.close()


def _end_of(file: File, header: Header, serial: int, key: int) -> tuple[int, int]:
    """The newest record up to a serial that holds, and where its frame ends."""
    reached, position = header.first_serial - 1, header.size
    for frame in scan(file, position, file.size(), key, bodies=False):
        if not isinstance(frame, Frame) or frame.serial > serial:
            break
        reached, position = frame.serial, frame.end
    return reached, position


def _has_more(file: File, start: int) -> bool:
    """Whether anything but unused room follows."""
    return any(piece.strip(b"\0") for _, piece in stretches(file, file.size(), start))
