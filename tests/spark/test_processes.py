"""Spark's own processes killed, each for real: the output is compared message by message."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.conftest import PER_BATCH, copied

from oncemq import Client
from oncemq.spark.cluster import standalone
from oncemq.spark.java import carried_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def drive(address: str, tmp_path: Path) -> Callable[..., None]:
    """Run a driver to its end, on the Java that pip brought; every fault must have struck."""

    def run(faults: dict[int, str], master: str = "local[2,4]") -> None:
        given = {
            "address": address,
            "check": str(tmp_path / "check"),
            "rows": str(PER_BATCH),
            "faults": faults,
            "marks": str(tmp_path),
            "master": master,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.driver", json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, "JAVA_HOME": carried_home() or ""},
            capture_output=True,
            text=True,
            timeout=240,
        )
        dies = any(fault.startswith("driver") for fault in faults.values())
        assert (done.returncode != 0) == dies, done.stderr[-2000:]
        assert [f for n, f in faults.items() if not (tmp_path / f"{n} {f}").exists()] == []

    return run


def test_a_driver_killed_before_and_after_the_commit(
    mq: Client, orders, drive, copy, run: int
) -> None:
    drive({1: "driver dies before the commit"})
    assert copied(mq) == orders[:PER_BATCH]
    drive({1: "driver dies after the commit"})
    assert copied(mq) == orders[: 2 * PER_BATCH]
    copy()  # another Spark, the same checkpoint
    assert copied(mq) == orders


def test_a_cluster_with_a_slow_task_and_a_dying_executor(
    mq: Client, orders, drive, run: int
) -> None:
    with standalone(workers=2) as master:
        drive({0: "task is slow", 1: "executor dies"}, master)
    assert copied(mq) == orders
