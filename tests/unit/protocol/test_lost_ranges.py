"""Holes of a topic: where they are, where reading goes on, how far it goes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncemq.protocol.lost_ranges import Holes, LostRange
from oncemq.protocol.names import Offset

spans = st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda each: (each[0], sum(each)))


@given(st.lists(spans, max_size=8), st.integers(0, 45))
def test_holes_are_the_offsets_that_were_added(added: list[tuple[int, int]], at: int) -> None:
    holes = Holes()
    lost = {offset for first, end in added for offset in range(first, end)}
    for first, end in added:
        holes.add(Offset(first), Offset(end))
    kept = holes.above(0)
    assert {offset for first, end in kept for offset in range(first, end)} == lost
    assert all(one.end < other.first for one, other in pairwise(kept)), "those that touch are one"
    assert (holes.at(at) is not None) == (at in lost)
    over = holes.over(Offset(at))
    assert over not in lost
    assert set(range(at, over)) <= lost
    until = holes.up_to(over, Offset(50))
    assert lost.isdisjoint(range(over, until))
    assert until == 50 or until in lost
    assert (holes.ending_at(over) is not None) == (over - 1 in lost)
    assert Holes(kept) == holes


def test_what_is_below_the_lowest_offset_does_not_matter() -> None:
    holes = Holes([(Offset(1), Offset(3)), (Offset(5), Offset(8))])
    assert holes.above(3) == (LostRange(Offset(5), Offset(8)),)
    assert holes.above(6) == (LostRange(Offset(5), Offset(8)),)
    assert holes.above(8) == ()


def test_holes_are_the_same_as_holes_in_the_same_places_and_as_nothing_else() -> None:
    first, other = (Offset(1), Offset(3)), (Offset(1), Offset(4))
    assert Holes([first]) == Holes([first])
    assert [Holes([first]) == each for each in (Holes([other]), Holes(), [first])] == [False] * 3
