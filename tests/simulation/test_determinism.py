"""One seed, one history: to the last bit, in any process."""

import os
import subprocess
import sys

import pytest

from simulator.clock import Clock, stream
from simulator.schedule.options import options_of
from simulator.schedule.schedule import schedule_of
from simulator.world.simulation import run

SEEDS = (2, 5, 23)

TRACES = """
import logging
logging.disable(logging.CRITICAL)
from simulator.schedule.schedule import schedule_of
from simulator.world.simulation import run
for seed in {seeds}:
    print(run(schedule_of(seed)).trace)
"""


def traces(hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", TRACES.format(seeds=SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_trace_twice(seed: int) -> None:
    first, second = run(schedule_of(seed)), run(schedule_of(seed))
    assert (first.trace, first.events, first.marks) == (second.trace, second.events, second.marks)


def test_other_seeds_give_other_traces() -> None:
    assert len({run(schedule_of(seed)).trace for seed in SEEDS}) == len(SEEDS)


@pytest.mark.slow
def test_no_hash_seed_changes_a_trace() -> None:
    assert traces("1") == traces("4711") == [run(schedule_of(seed)).trace for seed in SEEDS]


def test_a_seed_means_the_same_world_whenever_it_is_asked_for() -> None:
    assert options_of(7) == options_of(7)
    assert schedule_of(7) == schedule_of(7)


def test_streams_do_not_disturb_each_other() -> None:
    net, disk = stream(1, "net"), stream(1, "disk")
    undisturbed = stream(1, "disk").random()
    net.random()
    assert disk.random() == undisturbed != stream(1, "net").random()


def test_events_of_one_moment_run_in_the_order_they_were_made() -> None:
    clock, seen = Clock(), []
    clock.at(5, lambda: seen.append("c"))
    clock.at(3, lambda: (seen.append("a"), clock.after(0, lambda: seen.append("b"))))
    clock.at(5, lambda: seen.append("d"))
    clock.run(10)
    assert (seen, clock.now) == (["a", "b", "c", "d"], 10)
