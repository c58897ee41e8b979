"""The offsets one subscription was given, in the order it was given them.

Law: each once, in order. Memory grows with what is wrong, not with the number of offsets.
"""

from bisect import bisect_right
from collections.abc import Iterator


class SeenOffsets:
    """Which offsets were seen, as ranges: one for a run without gap, however long."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int) -> bool:
        """Note an offset; False when it was seen before."""
        starts, ends = self._starts, self._ends
        if ends and offset == ends[-1]:
            ends[-1] += 1
            return True
        place = bisect_right(starts, offset)
        if place and offset < ends[place - 1]:
            return False
        before = bool(place) and ends[place - 1] == offset
        after = place < len(starts) and starts[place] == offset + 1
        if before and after:
            ends[place - 1] = ends.pop(place)
            del starts[place]
        elif before:
            ends[place - 1] += 1
        elif after:
            starts[place] = offset
        else:
            starts.insert(place, offset)
            ends.insert(place, offset + 1)
        return True

    def offsets(self) -> Iterator[int]:
        """Every offset, the lowest first."""
        for start, end in zip(self._starts, self._ends, strict=True):
            yield from range(start, end)

    def unseen(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges between `start` and `end` that were not seen."""
        for seen, until in zip(self._starts, self._ends, strict=True):
            if start < min(seen, end):
                yield start, min(seen, end)
            start = max(start, until)
        if start < end:
            yield start, end


class Course:
    """What was given, as far as it must be known to judge the next and the whole."""

    def __init__(self) -> None:
        self.count = 0
        self.first = -1
        self.highest = -1
        self._extent = SeenOffsets()

    def give(self, offset: int) -> str:
        """The next one: the kind of finding it is, or nothing."""
        late = offset < self.highest
        self.first = offset if not self.count else min(self.first, offset)
        self.highest = max(self.highest, offset)
        self.count += 1
        if not self._extent.add(offset):
            return "redelivered"
        return "reordered" if late else ""

    def settle(self, start: int, cursor: int) -> None:
        """What nobody noted, from `start` on and behind the highest, is settled up to `cursor`."""
        for offset in range(max(start, self.highest + 1), cursor):
            self.give(offset)

    def join(self, later: "Course") -> Iterator[tuple[str, int]]:
        """Go on with what another one was given: the findings that only both together show."""
        for offset in later.offsets():
            if kind := self.give(offset):
                yield kind, offset

    def offsets(self) -> Iterator[int]:
        """Every offset once, the lowest first."""
        return self._extent.offsets()

    def missing(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """What is missing between `start` and `end`: the kind of finding, and the range."""
        for low, high in self._extent.unseen(start, end):
            if not self.count or low > self.highest:
                yield "lost_tail", low, high
            elif high <= self.first:
                yield "lost_prefix", low, high
            else:
                yield "lost_middle", low, high
