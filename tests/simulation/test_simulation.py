"""Whole simulated worlds: fresh seeds for a while, and every schedule that ever failed.

SIM_SECONDS says for how long fresh seeds run (30 by default), SIM_SEED from which on; without it
they follow from the commit, so that every commit sees new ones and a red one stays red. SIM_WORLDS
says how many of the first worlds run (150). A failure names its seed; `make sim SEED=n` replays it.
"""

import os
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec import structs

from simulator import marks, proof
from simulator.campaign import campaign
from simulator.schedule.cast import WorldStep
from simulator.schedule.options import FAULTS, WorldOptions, options_of
from simulator.schedule.schedule import load, schedule_of
from simulator.shrink import kinds, shrink
from simulator.world import simulation
from simulator.world.simulation import run
from tests.harness.seeds import SECONDS, first_seed

WORLDS = int(os.environ.get("SIM_WORLDS", "150"))
KEPT = sorted((Path(__file__).parent.parent / "regress").glob("*.json"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_first_worlds_break_nothing() -> None:
    """The same ones each time."""
    total = campaign(0, 240, most=WORLDS)
    total.record("make test", "simulation-first-worlds")
    print(total)
    assert not total.failures, f"replay with: make sim SEED={min(total.failures)}"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
def test_fresh_seeds_break_nothing_and_reach_every_mark() -> None:
    first = first_seed()
    print(f"seeds from {first} on")
    total = campaign(first, SECONDS)
    total.record("make sim")
    print(total)
    assert not total.failures, f"replay with: make sim SEED={min(total.failures)}"
    assert total.unseen == []


RARE_WORLDS: dict[str, Callable[[WorldOptions], WorldOptions | None]] = {
    "client stale_state": lambda each: structs.replace(
        each, faults=("stale", "client_kill"), mishaps=14
    ),
    "backup restored twice": lambda each: each if each.back else None,
}


@pytest.mark.slow
@pytest.mark.parametrize("mark", marks.RARE)
def test_a_rare_thing_is_seen_in_worlds_that_have_more_of_it(mark: str) -> None:
    worlds = (RARE_WORLDS[mark](options_of(seed)) for seed in count())
    seen = 0
    for options in islice((each for each in worlds if each is not None), 30):
        outcome = run(schedule_of(options.seed, options))
        assert outcome.findings == []
        seen += bool(outcome.marks.get(mark))
    assert seen >= 3


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_schedule_that_failed_once_fails_no_more(path: Path) -> None:
    findings = run(load(path)).findings
    proof.record(f"regress-{path.stem}", "make test", {"schedules": 1}, failures=len(findings))
    assert findings == []


def test_schedules_are_kept() -> None:
    assert KEPT


def test_every_fault_is_on_in_some_worlds_and_off_in_others() -> None:
    worlds = [set(options_of(seed).faults) for seed in range(40)]
    assert all(0 < sum(fault in world for world in worlds) < 40 for fault in FAULTS)


def test_a_campaign_too_small_for_the_marks_is_not_blamed_for_them() -> None:
    assert campaign(0, 0.0).unseen == []
    assert marks.missing({}) == list(marks.SOMETIMES)


# ------------------------------------------------------------------ runs that crash


def test_a_run_that_crashes_is_a_failure_of_its_seed_and_the_next_seed_is_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crashes(options: WorldOptions) -> NoReturn:
        raise RuntimeError(f"world {options.seed}")

    monkeypatch.setattr(simulation, "Cast", crashes)
    total = campaign(3, 60, most=2)
    assert total.histories == 2
    assert list(total.failures) == [3, 4]
    (finding,) = total.failures[4]
    assert finding.startswith("crashed in test_simulation.py, line ")
    assert finding.endswith(": RuntimeError: world 4")


def test_a_schedule_that_crashes_is_shrunk_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(_simulation: object, step: WorldStep, _client: object) -> NoReturn:
        raise RuntimeError(f"at {step.at_ms} ms")

    monkeypatch.setattr(simulation.Simulation, "_get", crashes)
    (step,) = shrink(schedule_of(0)).steps
    assert step.do == "get"


# ------------------------------------------------------------------ shrinking


def test_a_failing_schedule_is_shrunk_to_the_steps_that_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oncemq.broker.state.topic import Topic

    monkeypatch.setattr(Topic, "settled", property(lambda self: self.end))  # frees everything
    schedule = next(each for each in map(schedule_of, range(50)) if run(each).findings)
    small = shrink(schedule)
    assert kinds(run(small).findings) & kinds(run(schedule).findings)
    assert len(small.steps) <= min(12, len(schedule.steps) // 2)


def test_a_schedule_that_does_not_fail_is_not_touched() -> None:
    schedule = schedule_of(0)
    assert shrink(schedule) is schedule


def test_a_schedule_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    schedule = schedule_of(3)
    schedule.save(tmp_path / "kept.json")
    assert load(tmp_path / "kept.json") == schedule
