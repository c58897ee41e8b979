"""Where a stored batch lies, and what is read from there.

Law: what does not hold is never given: a frame that is not the one the index points at is damage.
"""

import msgspec

from oncemq.errors import Corrupt
from oncemq.protocol.records import MessagesStored
from oncemq.storage.catalog.commit_parts import Parts, StoredBatch, parts_of
from oncemq.storage.disk import File
from oncemq.storage.segments.entries import Entry
from oncemq.storage.segments.framing import Frame, parse
from oncemq.storage.segments.segment import Segment

LARGE_BYTES = 64 << 10
HEAD_BYTES = 4 << 10


class BatchPlace(msgspec.Struct, frozen=True):
    """Where a stored batch lies. Good until the next `Log.complete`."""

    segment: Segment
    position: int
    size: int
    first_offset: int
    count: int
    is_part: bool = False  # of a commit: the messages lie in a stage
    last_timestamp: int = 0


def read_parts(file: File, place: BatchPlace, key: int) -> tuple[Frame, Parts]:
    """The frame of a commit, and what it gave to topics."""
    frame = parse(memoryview(file.read(place.position, place.size)), 0, place.position, key)
    if not isinstance(frame, Frame):
        raise damaged(place)
    return frame, parts_of(frame.record())


def read_frame(
    file: File, place: BatchPlace, key: int, *, verify: bool
) -> tuple[Frame, StoredBatch]:
    """The frame at a place, and the batch it holds."""
    large = place.size > LARGE_BYTES
    frame = read_head(file, place, key, HEAD_BYTES if large else place.size)
    if frame.body is None:  # large: read the body alone, so that it is not copied again
        body = file.read(frame.body_position, frame.body_bytes)
    else:
        body = bytes(frame.body)
    return frame, stored_in(frame, place, body, verify=verify)


def read_head(file: File, place: BatchPlace, key: int, size: int) -> Frame:
    """The frame at a place, from its first bytes: so many, or more with very many runs."""
    frame = parse(memoryview(file.read(place.position, size)), 0, place.position, key)
    if isinstance(frame, int) and size < place.size:
        frame = parse(memoryview(file.read(place.position, frame)), 0, place.position, key)
    if not isinstance(frame, Frame):
        raise damaged(place)
    return frame


def stored_in(frame: Frame, place: BatchPlace, body: bytes, *, verify: bool) -> StoredBatch:
    """The batch that a frame and its body are."""
    record = frame.record()
    if (
        not isinstance(record, MessagesStored)
        or record.first_offset != place.first_offset
        or len(body) != frame.body_bytes
        or (verify and not frame.holds(body))
    ):
        raise damaged(place)
    return StoredBatch(record, frame.seed, body)


def place_of(segment: Segment, entry: Entry) -> BatchPlace:
    """Where an entry of a segment's index points."""
    return BatchPlace(
        segment,
        entry.position,
        entry.size,
        entry.first_offset,
        entry.count,
        entry.is_part,
        entry.last_timestamp,
    )


def damaged(place: BatchPlace) -> Corrupt:
    """What a reader is told of a batch that is not what was written."""
    return Corrupt(
        f"{place.segment.path}: the batch at byte {place.position} (offset {place.first_offset}) "
        "is not what was written; stop the server and run `once repair`"
    )
