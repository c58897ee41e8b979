"""The order of the tests loses none and puts the long ones where two processes begin."""

from hypothesis import given
from hypothesis import strategies as st

from tests.turns import in_turns


@given(long=st.integers(0, 20), short=st.integers(0, 60), processes=st.integers(1, 5))
def test_every_test_has_its_turn(long: int, short: int, processes: int) -> None:
    ordered = in_turns(range(-long, 0), range(short), processes)
    assert sorted(ordered) == list(range(-long, short))


def test_long_ones_begin_in_two_processes() -> None:
    ordered = in_turns(["a", "b", "c"], list("123456789"), 3)
    assert ordered == ["a", "c", "1", "2", "b", "3", "4", "5", "6", "7", "8", "9"]
