"""Faults in chains, one after the other on one checkpoint: in `make test` once, in a soak often.

Each chain injects each of its faults `runs` times, compares the copies message by message, and
counts. A driver's death costs a new Java, so each catches four queries, each at a point of its
own: all wait there until the last has come, and then the driver is killed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from oncemq.spark.runtime.cluster import standalone
from simulator.proof import RunTally
from tests.e2e.processes import until
from tests.spark.copying import TOO_SLOW, Given, copy_all, start_copying
from tests.spark.faults import DRIVER_DIES, END_A_QUERY
from tests.spark.lanes import Lane, Rig
from tests.spark.quick_spark import quick_spark

ROOT = Path(__file__).parents[2]
START_SECONDS = 240.0  # of a driver, on a busy machine
SPARE = 8  # deaths in vain, on a machine too busy for all of the queries
TOO_BUSY = "drivers that did not start on a busy machine"
RESTART = "restart from the checkpoint"

IN_A_QUERY = (
    "task raises",
    "task dies",
    "commit is slow",
    "commit raises",
    "commit raises after it published",
    "server dies in the write",
    "server dies before the commit",
    "server dies after the commit",
)
ON_A_CLUSTER = ("task is slow", "executor dies")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


def in_a_query(spark: SparkSession, rig: Rig, tally: RunTally, runs: int, name: str = "in") -> None:
    """Tasks, commits and the server fail in batch after batch of one query."""
    lane = Lane(rig, name, _plan(IN_A_QUERY, runs))
    lane.fill(len(lane.plan) + 1)
    ends = sum(fault in END_A_QUERY for fault in lane.plan.values())
    for _ in range(ends):
        with pytest.raises(StreamingQueryException, match="on purpose"):
            copy_all(spark, lane.given)
    copy_all(spark, lane.given)
    tally.fault(_told(RESTART), ends)
    _count(tally, lane)


def _plan(faults: Sequence[str], runs: int) -> dict[int, str]:
    """One fault a batch, from the first batch on."""
    return dict(enumerate([*faults] * runs))


def _count(tally: RunTally, lane: Lane) -> None:
    """All is copied, and every fault happened."""
    tally.add("messages", lane.compare())
    assert lane.struck() == len(lane.plan), f"{lane.name}: not every fault struck"
    for fault in lane.plan.values():
        _tell(tally, fault)


def _tell(tally: RunTally, fault: str) -> None:
    tally.add("runs")
    tally.fault(_told(fault))


def _told(fault: str) -> str:
    return f"Spark: {fault}"


# ------------------------------------------------------------------ between two starts of a query

NOT_THE_ONE = "deleted and made anew"
NOT_THE_NEXT = "copied, moved, or is an older copy"


def last(directory: Path) -> list[Path]:
    """The newest file of a directory of the checkpoint, with its checksum."""
    number = max(int(each.name) for each in directory.iterdir() if each.name.isdecimal())
    return [directory / str(number), directory / f".{number}.crc"]


def lose_commit(check: Path) -> None:
    """Then the last batch is run again."""
    for each in last(check / "commits"):
        each.unlink()


def lose_offsets(check: Path) -> None:
    for each in last(check / "offsets"):
        each.unlink()


def lose_batch(check: Path) -> None:
    """Then the last batch is planned again."""
    lose_commit(check)
    lose_offsets(check)


def lose_metadata(check: Path) -> None:
    """Then Spark does not know the query's id."""
    for name in ("metadata", ".metadata.crc"):
        (check / name).unlink(missing_ok=True)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {  # and what is said, if it is refused
    "commit file of the last batch lost": (lose_commit, ""),
    "offsets file of the last batch lost": (lose_offsets, NOT_THE_NEXT),
    "offsets and commit of the last batch lost": (lose_batch, ""),
    "metadata file lost": (lose_metadata, "metadata file is missing"),  # by Spark itself
    "checkpoint deleted": (shutil.rmtree, NOT_THE_ONE),
}
OLDER = "checkpoint restored from a backup"


def between_queries(
    spark: SparkSession, rig: Rig, tally: RunTally, runs: int, name: str = "between"
) -> None:
    """A query is stopped, its checkpoint hurt, and started again; what is refused is put back."""
    lane = Lane(rig, name, {})
    for _ in range(runs):
        stop_and_go_on(spark, lane)
        _tell(tally, RESTART)
        for fault, (damage, refusal) in DAMAGE.items():
            hurt_checkpoint(spark, lane, damage, refusal)
            _tell(tally, fault)
        restore_a_backup(spark, lane)
        _tell(tally, OLDER)
        tally.add("messages", lane.compare())


def stop_and_go_on(spark: SparkSession, lane: Lane) -> None:
    """A query that runs for ever is stopped when it has published something, then goes on."""

    def commits() -> int:
        return len(list(lane.check.glob("commits/[0-9]*")))

    lane.fill(3)
    before = commits()
    query = start_copying(spark, lane.given, available=False)
    until(lambda: commits() > before or not query.isActive, START_SECONDS)
    query.stop()
    copy_all(spark, lane.given)
    lane.compare()


def hurt_checkpoint(
    spark: SparkSession, lane: Lane, damage: Callable[[Path], None], refusal: str
) -> None:
    """The query goes on with a hurt checkpoint; or says why not, and nothing is published."""
    saved = lane.check.with_suffix(".saved")
    shutil.copytree(lane.check, saved)
    damage(lane.check)
    done = lane.copied
    lane.fill(1)
    if refusal:
        with pytest.raises(PySparkException, match=refusal):
            copy_all(spark, lane.given)
        lane.compare(done)
        shutil.rmtree(lane.check)
        saved.rename(lane.check)
    else:
        shutil.rmtree(saved)
        copy_all(spark, lane.given)
        lane.compare()


def restore_a_backup(spark: SparkSession, lane: Lane) -> None:
    """A copy of the checkpoint from batches ago comes back: refused."""
    saved, present = lane.check.with_suffix(".saved"), lane.check.with_suffix(".present")
    shutil.copytree(lane.check, saved)
    lane.fill(1)  # the refusals left more
    copy_all(spark, lane.given)
    lane.check.rename(present)
    saved.rename(lane.check)
    with pytest.raises(StreamingQueryException, match=NOT_THE_NEXT):
        copy_all(spark, lane.given)
    lane.compare()
    shutil.rmtree(lane.check)
    present.rename(lane.check)


# ------------------------------------------------------------------ drivers of their own


class Driver:
    """A driver with its Java: a group of processes."""

    def __init__(
        self, rig: Rig, lanes: Sequence[Given], master: str, config: dict[str, str] | None = None
    ) -> None:
        told = {"master": master, "config": config or {}, "lanes": [asdict(each) for each in lanes]}
        self._log = rig.directory / "driver.log"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", json.dumps(told)],
                cwd=ROOT,
                env={**os.environ, **quick_spark()},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def kill_when(self, ready: Callable[[], bool]) -> bool:
        """kill -9 of all of it, as soon as this is so; False when the machine was too busy."""
        try:
            until(
                lambda: ready() or self._process.poll() is not None,
                START_SECONDS,
                what="all of a driver's queries at their points",
            )
            assert ready() or TOO_SLOW in self.said, f"ended by itself: {self.said}"
            return ready()
        finally:
            self._kill()

    def finish(self, seconds: float) -> bool:
        """Wait until all is copied; False when the machine was too busy."""
        try:
            code = self._process.wait(seconds)
        finally:
            self._kill()
        assert code == 0 or TOO_SLOW in self.said, self.said
        return code == 0

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def killed_drivers(
    rig: Rig, tally: RunTally, runs: int, *, of_each: int = 1, name: str = "driver"
) -> None:
    """Drivers killed, one after the other; each catches its queries at all of the four points."""
    lanes = [
        Lane(rig, f"{name}-{number}", _plan([fault], 2 * runs + SPARE))
        for number, fault in enumerate(DRIVER_DIES * of_each)
    ]
    lives = 0
    while lives * of_each < runs:
        lives += _kill_a_driver(rig, tally, lanes)
    left = [replace(lane.given, plan={}) for lane in lanes]
    while not Driver(rig, left, f"local[{2 * len(lanes)},4]").finish(START_SECONDS):
        tally.add(TOO_BUSY)
    tally.add("messages", sum(lane.compare() for lane in lanes))


def _kill_a_driver(rig: Rig, tally: RunTally, lanes: Sequence[Lane]) -> bool:
    """False when the machine was too busy for a query to start: then this was no run."""
    before = [lane.struck() for lane in lanes]
    for lane in lanes:
        lane.fill(1)

    def all_there() -> bool:
        return all(lane.struck() > n for lane, n in zip(lanes, before, strict=True))

    # A task that waits to be killed takes a place.
    driver = Driver(rig, [lane.given for lane in lanes], f"local[{2 * len(lanes)},4]")
    if not driver.kill_when(all_there):
        tally.add(TOO_BUSY)
        return False
    for lane in lanes:  # the deaths before are made up for; the batch of this one is there or not
        after = lane.plan[0].endswith("after the commit")
        lane.compare(lane.struck() - (not after))
        _tell(tally, lane.plan[0])
        tally.fault(_told(RESTART))  # the next driver's
    return True


def on_a_cluster(rig: Rig, tally: RunTally, runs: int, name: str = "cluster") -> None:
    """Slow tasks, which are run twice at a time, and executors killed, on two machines' worth."""
    lane = Lane(rig, name, _plan(ON_A_CLUSTER, runs))
    lane.fill(len(lane.plan) + 1)
    with standalone(workers=2) as master:
        while not Driver(rig, [lane.given], master, SPECULATION).finish(START_SECONDS + 60 * runs):
            tally.add(TOO_BUSY)
    _count(tally, lane)
