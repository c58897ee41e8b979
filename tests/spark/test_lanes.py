"""The judge of the copies: what is wrong is found, and told with its batch and its fault."""

import pytest

from tests.spark.copying import PER_BATCH
from tests.spark.lanes import Row, differences

ROWS: list[Row] = [(b"k", b"%d" % n) for n in range(3 * PER_BATCH)]
PLAN = {1: "task dies"}


def test_a_copy_that_is_one() -> None:
    assert differences(ROWS, list(ROWS), PLAN) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (ROWS[:20] + ROWS[23:], "3 lost, from b'20' of batch 1 (task dies) on"),
        (ROWS[:21] + ROWS[20:], "1 doubled, from b'20' of batch 1 (task dies) on"),
        (ROWS + ROWS[40:], "20 doubled, from b'40' of batch 2 (no fault) on"),
        ([ROWS[1], ROWS[0], *ROWS[2:]], "2 reordered, from b'1' of batch 0 (no fault) on"),
        ([*ROWS[:-1], (b"other", ROWS[-1][1])], "1 lost, from b'59' of batch 2 (no fault) on"),
    ],
)
def test_what_is_wrong_is_told_by_batch_and_fault(found: list[Row], told: str) -> None:
    assert told in differences(ROWS, found, PLAN)


def test_what_was_never_due() -> None:
    more: list[Row] = [(b"k", b"999")]
    (told,) = differences(ROWS, ROWS + more, PLAN)
    assert told.startswith("1 not due, from b'999'")
