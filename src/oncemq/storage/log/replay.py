"""The records of a log, read again from segments that were just verified.

Law: nothing is handed out that changed since: the log is refused then.
"""

from collections.abc import Iterator

from oncemq.errors import Corrupt
from oncemq.protocol.names import Serial
from oncemq.protocol.records import Record
from oncemq.storage.disk import Disk
from oncemq.storage.segments.framing import Frame, scan
from oncemq.storage.segments.segment import HEADER_BYTES


def replayed(
    disk: Disk, segments: list[tuple[str, int]], key: int, begin: int
) -> Iterator[tuple[Serial, Record]]:
    """Every record after `begin`, from files just verified."""
    for frame in replayed_frames(disk, segments, key, begin, bodies=False):
        yield Serial(frame.serial), frame.record()


def replayed_frames(
    disk: Disk, segments: list[tuple[str, int]], key: int, begin: int, *, bodies: bool
) -> Iterator[Frame]:
    """Every record after `begin`, from files just verified."""
    for path, end in segments:
        file = disk.open(path)
        try:
            for frame in scan(file, HEADER_BYTES, end, key, bodies=bodies):
                if not isinstance(frame, Frame) or (bodies and not frame.body_holds()):
                    raise Corrupt(f"{path} changed while it was read, at byte {frame.position}")
                if frame.serial > begin:
                    yield frame
        finally:
            file.close()
