"""Tables of offsets as one number: the same as a loop over them."""

import struct
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncemq.wire.offsets import goes_backwards, lengths_in, numbers, table_of

EDGES = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
OFFSETS = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 300) | EDGES, min_size=1, max_size=70)


def packed(offsets: list[int]) -> bytes:
    return struct.pack(f"<{len(offsets)}I", *offsets)


@given(st.lists(st.integers(0, 2**20), max_size=150), st.integers(0, 2**20))
def test_a_table_adds_up_the_lengths_before_each_place(lengths: list[int], first: int) -> None:
    table = table_of(lengths, first)
    assert table == packed(list(accumulate(lengths, initial=first)))
    assert list(numbers(table)) == list(accumulate(lengths, initial=first))
    assert lengths_in(table) == packed(lengths)
    assert not goes_backwards(table)


@given(OFFSETS)
@example([0, 2**31])
@example([2**31 - 1, 2**31 - 2])
@example([5, 4, 6])
@example([7, 7])
def test_a_table_goes_backwards_where_an_end_is_below_its_start(offsets: list[int]) -> None:
    assert goes_backwards(packed(offsets)) == any(b < a for a, b in pairwise(offsets))


@given(OFFSETS)
def test_lengths_are_the_distances_of_a_table_that_does_not_go_backwards(
    offsets: list[int],
) -> None:
    offsets.sort()
    assert lengths_in(packed(offsets)) == packed([b - a for a, b in pairwise(offsets)])


@pytest.mark.parametrize("lengths", [[2**31, 2**31], [2**32 - 1, 1, 0], [2**32]])
def test_more_bytes_than_an_offset_can_say_are_no_table(lengths: list[int]) -> None:
    with pytest.raises(OverflowError):
        table_of(lengths, 0)
    assert table_of([2**31, 2**31 - 1], 0) == packed([0, 2**31, 2**32 - 1])
