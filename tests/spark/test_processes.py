"""Spark's own processes killed, each for real: the output is compared message by message."""

from pathlib import Path

import pytest

from simulator import proof
from tests.spark.chains import killed_drivers, on_a_cluster
from tests.spark.lanes import Rig

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_driver_killed_before_and_after_the_write_and_the_commit(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig, proof.campaign("spark-drivers") as tally:
        killed_drivers(rig, tally, runs=1)
    said = (tmp_path / "driver.log").read_text()
    assert "replaced a statically registered data source" not in said  # by a local session


def test_a_cluster_with_a_slow_task_and_a_dying_executor(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig, proof.campaign("spark-cluster") as tally:
        on_a_cluster(rig, tally, runs=1)
