"""Messages that a topic has lost for good, and that a person agreed to go on without.

Law: a hole has a name, first offset and end, wherever it is met. Readers are told of it and go
on behind it; what is missing without being a hole is damage, and is refused.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from oncemq.protocol.names import Offset


class LostRange(NamedTuple):
    """Lost messages: from `first` up to, not including, `end`."""

    first: Offset
    end: Offset


class Holes:
    """All holes of one topic or stage, in order; those that touch are one."""

    __slots__ = ("_holes",)

    def __init__(self, holes: Iterable[tuple[Offset, Offset]] = ()) -> None:
        self._holes = [LostRange(*each) for each in holes]

    def __bool__(self) -> bool:
        return bool(self._holes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Holes) and self._holes == other._holes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Holes({self._holes})"

    def add(self, first: Offset, end: Offset) -> None:
        """These are lost too."""
        kept: list[LostRange] = []
        for hole in self._holes:
            if hole.end < first or end < hole.first:
                kept.append(hole)
            else:
                first, end = min(first, hole.first), max(end, hole.end)
        self._holes = sorted([*kept, LostRange(first, end)])

    def at(self, offset: int) -> LostRange | None:
        """The hole that an offset lies in."""
        before = self._before(offset)
        return before if before is not None and offset < before.end else None

    def ending_at(self, offset: int) -> LostRange | None:
        """The hole right before an offset."""
        before = self._before(offset)
        return before if before is not None and offset == before.end else None

    def over(self, offset: Offset) -> Offset:
        """Where reading goes on: behind the hole that an offset lies in, or right there."""
        hole = self.at(offset)
        return hole.end if hole else offset

    def up_to(self, offset: Offset, end: Offset) -> Offset:
        """How far messages go from `offset` on: to the next hole, or to `end`."""
        after = bisect_right(self._holes, offset, key=lambda hole: hole.first)
        return min(end, self._holes[after].first) if after < len(self._holes) else end

    def above(self, low: int) -> tuple[LostRange, ...]:
        """Those that still matter when everything below `low` is gone."""
        return tuple(hole for hole in self._holes if hole.end > low)

    def _before(self, offset: int) -> LostRange | None:
        at = bisect_right(self._holes, offset, key=lambda hole: hole.first) - 1
        return self._holes[at] if at >= 0 else None
