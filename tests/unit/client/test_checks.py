"""The limits of what can be asked for: the last that is taken, and the first that is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from oncemq import InvalidRequest, Retention
from oncemq.client.checks import check_limit, check_offset, check_retention, wait_ms_of
from oncemq.client.puts.put_limits import check_outputs

A_LEAP_YEAR = 31_622_400  # in seconds


@pytest.mark.parametrize(
    ("check", "least", "most"),
    [
        (check_limit, 1, 2_147_483_647),
        (check_offset, 0, 4_611_686_018_427_387_903),
        (wait_ms_of, 0, A_LEAP_YEAR),
    ],
)
def test_a_number_is_taken_up_to_its_limits(
    check: Callable[[Any], Any], least: int, most: int
) -> None:
    check(least)
    check(most)
    for number in (least - 1, most + 1):
        with pytest.raises(InvalidRequest):
            check(number)


@pytest.mark.parametrize("number", [-1, 2**70, "7d", 1.5])
def test_a_retention_keeps_a_number_of_milliseconds_and_of_bytes(number: Any) -> None:
    check_retention(Retention(keep_ms=1, keep_bytes=1))
    for retention in (Retention(keep_ms=number), Retention(keep_bytes=number)):
        with pytest.raises(InvalidRequest, match="what a retention keeps"):
            check_retention(retention)


def test_a_wait_in_seconds_is_sent_in_milliseconds() -> None:
    assert wait_ms_of(1.5) == 1500
    assert wait_ms_of(A_LEAP_YEAR) == 31_622_400_000


@pytest.mark.parametrize("topic", ["_audit", "bills.*", "bills.>", "*", "", "a\nb", "caf\udce9"])
def test_what_no_commit_could_name_is_no_output(topic: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_outputs(["good", topic])
    assert refused.value.code == "name_invalid"


def test_a_topic_that_may_be_there_is_an_output() -> None:
    check_outputs(["orders", "_pipelines", "bills*"])  # the last: servers used to make such ones
