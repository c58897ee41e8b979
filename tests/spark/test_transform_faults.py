"""Messages for which a query fails are found by halves; what is not their fault fails. No Spark."""

from typing import Any

import pytest
from pyspark.errors import PySparkException, PythonException

from oncemq.spark.pipelines import Definition, Source, Target
from oncemq.spark.pipelines.failures import SparkFailed
from oncemq.spark.pipelines.transforms.faults import MOST, FaultyRows, is_of_the_data

DIVIDED = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
DEFINITION = Definition(
    name="x",
    sources={"a": Source(topic="a")},
    target=Target(topic="b"),
    sql="SELECT 1",
    dead="a.dead",
)


class Letters:
    """What a batch has read, and what is written in its place."""

    def __init__(self, **ranges: tuple[int, int]) -> None:
        self._ranges = ranges

    def ranges(self, source: Source, number: int) -> dict[str, tuple[int, int]]:
        return self._ranges

    def beside(self, rows: Any, number: int, raised: Any) -> Any:
        return [(topic, start, why) for place, why in raised for topic, (start, _) in place.items()]


class Rows:
    """What the query makes of a range: fails when a bad message is among it."""

    def __init__(self, faults: dict[tuple[str, int], str]) -> None:
        self._faults = faults
        self.jobs = 0

    def __call__(self, spark: Any, ranges: dict[str, tuple[int, int]], but: Any) -> "Rows":
        ((topic, (start, stop)), *_) = ranges.items()
        self._within = [self._faults.get((topic, offset)) for offset in range(start, stop)]
        return self

    @property
    def write(self) -> "Rows":
        return self

    def format(self, name: str) -> "Rows":
        return self

    mode = format

    def save(self) -> None:
        self.jobs += 1
        for said in filter(None, self._within):
            raise PySparkException(said)


def sorted_out(
    monkeypatch: pytest.MonkeyPatch, faults: dict[tuple[str, int], str], **ranges: tuple[int, int]
) -> tuple[Any, int]:
    rows = Rows(faults)
    found = FaultyRows(Letters(**ranges), DEFINITION)  # type: ignore[arg-type]
    monkeypatch.setattr(found, "_rows", rows)
    return found.sorted_out(None, 3), rows.jobs  # type: ignore[arg-type]


def test_the_bad_ones_are_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {("a", 700): DIVIDED, ("b", 3): DIVIDED}
    found, jobs = sorted_out(monkeypatch, faults, a=(0, 1000), b=(3, 4))
    assert [(topic, offset) for topic, offset, _ in found] == [("a", 700), ("b", 3)]
    assert all("Division by zero" in why for _, _, why in found)
    assert jobs < 25


def test_a_query_that_fails_for_very_many_is_itself_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {("a", offset): DIVIDED for offset in range(1000)}
    with pytest.raises(SparkFailed, match=f"fails for more than {MOST} messages of one batch"):
        sorted_out(monkeypatch, faults, a=(0, 1000))


def test_what_is_met_on_the_way_is_no_fault_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    away = "Traceback (most recent call last)\noncemq.errors.Unreachable: no answer"
    with pytest.raises(PySparkException, match="no answer"):
        sorted_out(monkeypatch, {("a", 1): away}, a=(0, 4))


@pytest.mark.parametrize(
    ("error", "of_the_data"),
    [
        (PySparkException(DIVIDED), True),
        (PythonException("ValueError: odd"), True),
        (PythonException("oncemq.errors.Unreachable: no answer"), False),
        (PySparkException("Python worker exited unexpectedly (crashed)"), False),
        (PySparkException("[UNRESOLVED_COLUMN] no column. SQLSTATE: 42703"), False),
    ],
)
def test_whose_fault_it_is(error: Exception, of_the_data: bool) -> None:
    assert is_of_the_data(error) is of_the_data
