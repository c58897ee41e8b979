"""The benchmark's own code, without Spark: it measures what it says, and goes on without Kafka."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from oncemq import Client

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.spark import kafka
from benchmarks.spark.bare import Ready, Void
from benchmarks.spark.measure import measured
from benchmarks.spark.setting import fill


def test_ways_are_taken_in_turn_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    def way(name: str, seconds: float) -> float:
        done.append(name)
        return seconds

    ways = {"ours": lambda: way("ours", 2.0), "theirs": lambda: way("theirs", 4.0)}
    found = measured("title", ways, rows=8, rounds=2)
    assert done == ["ours", "theirs"] * 3  # one to warm up
    assert found.rates == {"ours": 4.0, "theirs": 2.0}
    assert "title: 8 rows, median of 2" in capsys.readouterr().out


def test_the_bare_source_has_the_rows_it_is_asked_for_and_the_bare_sink_takes_them() -> None:
    reader: Any = Ready({"rows": "100000", "tasks": "3"}).reader(StructType())
    batches = [rows for task in reader.partitions() for rows in reader.read(task)]
    assert len(reader.partitions()) == 3
    assert sum(rows.num_rows for rows in batches) == 100_000
    Void({}).writer(StructType(), overwrite=False).write(iter(batches))


def test_a_topic_is_filled(address: str) -> None:
    fill(address, "full", 25_000)
    with Client(address) as mq:
        assert mq.ends([("full", 0)])[0].end == 25_000


def test_without_maven_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kafka.Unavailable, match="no mvn on PATH"):
        kafka.fetch(tmp_path / "jars")
