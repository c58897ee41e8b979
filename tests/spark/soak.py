"""`make soak-spark RUNS=n`: every fault on real Sparks, n times each.

The chains of `chains.py`, in rounds with a fresh server each; after each round the copies are
compared message by message. One line now and then; the first finding is shown with the batch it
is in and the fault of that batch, its files are kept, and the exit code is then 6. What a chain
showed is recorded after each round, for the reliability card.

A chain keeps about one processor busy, so two processes do half of them each.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import oncemq.spark
from simulator import proof
from simulator.proof import RunTally
from tests.spark.chains import between_queries, in_a_query, killed_drivers, on_a_cluster
from tests.spark.copying import CONFIG
from tests.spark.lanes import Rig
from tests.spark.quick_spark import quick_spark

FOUND = 6
OF_A_ROUND = 10  # runs
TELL_SECONDS = 20.0
HALVES = ("queries", "checkpoints"), ("drivers", "cluster")

Run = Callable[[Rig, RunTally, int], None]


class Told(RunTally):
    """A tally that says now and then how far it is."""

    def __init__(self, chain: str) -> None:
        super().__init__()
        self._chain = chain
        self._begun = self._said = time.monotonic()

    def add(self, what: str, count: float = 1) -> None:
        super().add(what, count)
        if time.monotonic() - self._said >= TELL_SECONDS:
            self.say()

    def say(self) -> None:
        """One line."""
        self._said = time.monotonic()
        counts = {key: f"{count:.0f}" for key, count in self.counts.items()}
        runs, messages = counts.pop("runs", "0"), counts.pop("messages", "0")
        faults = ", ".join(f"{key.removeprefix('fault: Spark: ')} {n}" for key, n in counts.items())
        print(
            f"{self._said - self._begun:6.0f} s  {self._chain}: runs {runs}  messages {messages}  "
            f"findings 0  ({faults})",
            flush=True,
        )


class Chain:
    """One kind of faults, so many runs to go, a round at a time."""

    def __init__(self, name: str, run: Run, runs: int) -> None:
        self._name, self._run = name, run
        self._runs = self._left = runs
        self._tally = Told(name)

    @property
    def done(self) -> bool:
        return not self._left

    def round(self) -> bool:
        """With a server of its own; whether nothing was found."""
        directory = Path(tempfile.mkdtemp(prefix="oncemq-soak-spark-"))
        runs, found = min(self._left, OF_A_ROUND), ""
        try:
            with Rig(directory) as rig:
                self._run(rig, self._tally, runs)
        except Exception:
            found = traceback.format_exc()
        command = f"make soak-spark RUNS={self._runs}"
        counts, failures = self._tally.counts, int(bool(found))
        proof.record(f"spark-soak-{self._name}", command, counts, failures=failures)
        if found:
            print(f"{found}\nfound in {self._name}; see {directory}", flush=True)
            return False
        shutil.rmtree(directory)
        self._left -= runs
        self._tally.say()
        return True


def chains() -> dict[str, Run]:
    """By name."""
    return {
        "queries": lambda *round_: in_a_query(session(), *round_),
        "checkpoints": lambda *round_: between_queries(session(), *round_),
        "drivers": lambda *round_: killed_drivers(*round_, of_each=2),
        "cluster": on_a_cluster,
    }


def session() -> SparkSession:
    """The one Spark of this process."""
    spark = oncemq.spark.session("local[2,4]", app="soak", config=CONFIG)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def in_halves(runs: int) -> int:
    """Each in a process of its own; the worse of their exit codes."""
    command = [sys.executable, "-m", "tests.spark.soak", "--runs", str(runs)]
    halves = [
        subprocess.Popen([*command, *(word for name in half for word in ("--chain", name))])
        for half in HALVES
    ]
    try:
        return max([abs(each.wait()) for each in halves])  # a signal's is negative
    finally:
        for each in halves:
            each.terminate()


def main() -> int:
    known = chains()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--chain", choices=list(known), action="append")
    asked = parser.parse_args()
    os.environ.update(quick_spark())
    if not asked.chain:
        return in_halves(asked.runs)
    left = [Chain(name, known[name], asked.runs) for name in asked.chain]
    while left:  # in turn: whenever it ends, each has had about as many
        if not all(chain.round() for chain in left):
            return FOUND
        left = [chain for chain in left if not chain.done]
    return 0


if __name__ == "__main__":
    sys.exit(main())
