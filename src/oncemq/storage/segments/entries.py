"""Entries of an index: which messages lie at which position, in columns of plain numbers."""

from array import array
from bisect import bisect_right
from typing import NamedTuple

import msgspec

SIZE_BITS = 32
SIZE_MASK = (1 << SIZE_BITS) - 1
PART = 1 << 31  # in a count: the entry is a part
COUNT_MASK = PART - 1


class Extent(NamedTuple):
    """What one segment holds of one topic."""

    first_offset: int
    end_offset: int
    first_timestamp: int
    last_timestamp: int
    bytes: int  # of this segment
    message_bytes: int  # wherever they lie


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One stored batch, or a part of a commit: where its frame lies."""

    first_offset: int
    count: int
    position: int
    size: int
    is_part: bool = False
    last_timestamp: int = 0


class Entries:
    """Columns of entries in offset order."""

    __slots__ = (
        "bytes", "first_timestamp", "message_bytes", "offsets", "positions", "shapes", "timestamps",
    )  # fmt: skip

    def __init__(self, first_timestamp: int = 0) -> None:
        self.offsets = array("Q")
        self.positions = array("Q")
        self.timestamps = array("Q")  # of each batch's last message
        self.shapes = array("Q")  # is it a part << 63 | messages << 32 | bytes of the frame
        self.bytes = self.message_bytes = 0
        self.first_timestamp = first_timestamp

    def __len__(self) -> int:
        return len(self.offsets)

    def entry(self, at: int) -> Entry:
        shape = self.shapes[at]
        count = shape >> SIZE_BITS
        return Entry(
            self.offsets[at],
            count & COUNT_MASK,
            self.positions[at],
            shape & SIZE_MASK,
            count > COUNT_MASK,
            self.timestamps[at],
        )

    def at_offset(self, offset: int) -> int:
        """The place of the entry holding `offset`, or of the first one after it."""
        at = bisect_right(self.offsets, offset) - 1
        if at >= 0 and offset < self.offsets[at] + (self.shapes[at] >> SIZE_BITS & COUNT_MASK):
            return at
        return at + 1

    def columns(self) -> tuple["array[int]", ...]:
        return self.offsets, self.positions, self.timestamps, self.shapes

    @property
    def extent(self) -> Extent:
        last = self.entry(len(self) - 1)
        return Extent(
            self.offsets[0],
            last.first_offset + last.count,
            self.first_timestamp,
            self.timestamps[-1],
            self.bytes,
            self.message_bytes,
        )
