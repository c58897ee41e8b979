"""DIR/END: how far the log is known to be durable, noted beside it.

A log cannot say of itself that its end is missing: a last segment that was deleted, emptied or
put back from yesterday looks like a log that was never longer. So the end is noted when a segment
is begun and at a clean stop. A checkpoint notes it by itself: it names the serial it goes up to.

Laws: the note is never ahead of what is durable, so a power cut is never taken for damage. A note
that is behind, or missing, or does not hold, only proves less.
"""

import zlib

import msgspec

from oncemq.storage.disk import Disk
from oncemq.storage.segments.layout import replace_file
from oncemq.storage.shortage import DISK_FULL

NAME = "END"


class End(msgspec.Struct, frozen=True):
    """The segment with this first serial was begun, and everything up to `serial` is durable."""

    segment: int = 0
    serial: int = 0
    checksum: int = 0

    @property
    def seal(self) -> int:
        return zlib.crc32(b"%d %d" % (self.segment, self.serial))


NOTHING = End()


def read_end(disk: Disk, directory: str) -> End:
    """What the note says; nothing, when there is none or it does not hold."""
    if NAME not in disk.names(directory):
        return NOTHING
    file = disk.open(f"{directory}/{NAME}")
    try:
        end = msgspec.json.decode(file.read(0, file.size()), type=End)
    except (msgspec.MsgspecError, OSError):
        return NOTHING
    finally:
        file.close()
    return end if end.checksum == end.seal else NOTHING


def lower_end(disk: Disk, directory: str, segment: int, serial: int) -> None:
    """Let the note say no more than this, durably: the log is about to end there."""
    path, old = f"{directory}/{NAME}", read_end(disk, directory)
    end = End(min(old.segment, segment), min(old.serial, serial))
    if (end.segment, end.serial) == (old.segment, old.serial):
        return
    try:
        _replace(disk, path, end)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        disk.remove(path + ".tmp")
        disk.remove(path)
        disk.sync_directory(directory)


def _replace(disk: Disk, path: str, end: End) -> None:
    sealed = msgspec.structs.replace(end, checksum=end.seal)
    replace_file(disk, path, msgspec.json.encode(sealed))


class EndNote:
    """The note of an open log. The writer's thread writes it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._written = NOTHING

    def write(self, segment: int, serial: int) -> None:
        """Everything up to `serial` is durable. On a full disk the older note stays: it is true."""
        end = End(segment, serial)
        if end == self._written:
            return
        self._written = end
        try:
            _replace(self._disk, self._path, end)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._disk.remove(self._path + ".tmp")
