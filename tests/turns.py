"""In which order the tests run: the long ones first, so that the end does not wait for one.

Each process of pytest-xdist gets one part of the list, all of the same length, and steals from the
end of another's when it has done its own. So the long tests are dealt to the heads of two parts:
most of them start Sparks, and more than two of those at once only make each slower.
"""

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

HANDS = 2
T = TypeVar("T")


def in_turns(long: Sequence[T], short: Sequence[T], processes: int) -> list[T]:
    """All of them, as so many processes take them."""
    ordered: list[T] = []
    rest = iter(short)
    total = len(long) + len(short)
    for process in range(processes):
        size = (total - len(ordered)) // (processes - process)
        head = long[process :: min(HANDS, processes)] if process < HANDS else []
        ordered += head
        ordered += islice(rest, max(0, size - len(head)))
    return ordered
