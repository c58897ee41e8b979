"""DIR/OPENED: how often this directory was opened, durable before its log is served.

    two slots, 4,096 bytes apart: incarnation 16s · openings u64 · checksum u32

An older disk that comes back under its old name has the same incarnation, and fewer openings than
others remember: it is refilled before it may lead. The slots are written in turn and in place, so
a count is there whatever a crash leaves of the other, and a full disk can be opened.

Law: the count never says more than what was synced. A file that is missing, damaged or of another
incarnation says 0, which everybody who remembers more takes for an older disk: never the reverse.
"""

import struct
import zlib

from oncemq.errors import Locked
from oncemq.storage.disk import Disk, File

NAME = "OPENED"

_SLOT = struct.Struct("<16sQI")
_SLOT_BYTES = 4096


def reserve_openings(disk: Disk, directory: str) -> None:
    """Take the room of the file before the directory counts as one: a full disk can be opened."""
    file = disk.open(f"{directory}/{NAME}", create=True)
    try:
        file.allocate(2 * _SLOT_BYTES)
        file.sync()
    finally:
        file.close()


def count_opening(
    disk: Disk, directory: str, incarnation: bytes, *, again: int | None = None
) -> int:
    """This opening counts: how many there were, with it. Durable when it returns.

    `again`: it is this one still, and counts no more; refused, when there was another since.
    """
    is_new = NAME not in disk.names(directory)
    file = disk.open(f"{directory}/{NAME}", create=True)
    try:
        file.allocate(2 * _SLOT_BYTES)  # room for both, from the first time on
        newest = _newest(file, incarnation)
        if again is not None:
            if newest != again:
                raise Locked(
                    f"{directory} was opened {newest} times, and {again} times when this process "
                    "opened it: another process had it meanwhile. Start this server again"
                )
            return again
        number = newest + 1
        data = incarnation + number.to_bytes(8, "little")
        slot = data + zlib.crc32(data).to_bytes(4, "little")
        file.write([slot], number % 2 * _SLOT_BYTES)
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_directory(directory)
    return number


def _newest(file: File, incarnation: bytes) -> int:
    """The highest count of this incarnation that holds."""
    counts = [0]
    for start in (0, _SLOT_BYTES):
        data = file.read(start, _SLOT.size)
        if len(data) == _SLOT.size:
            its, number, checksum = _SLOT.unpack(data)
            if its == incarnation and zlib.crc32(data[:-4]) == checksum:
                counts.append(number)
    return max(counts)
