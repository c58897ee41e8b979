"""Replicas of a shard in a world of faults: no law breaks, and each broken rule is caught."""

import pytest

from simulator import proof
from simulator.replicas.leaders_cut import LeadersCut
from simulator.replicas.planted_rules import BROKEN_RULES
from simulator.replicas.replica_world import ReplicaWorld
from simulator.replicas.witness import Broken

SEEDS = 400
MORE_SEEDS = 2_000
SEARCHED = 1_500  # seeds, for one that catches a broken rule
KEPT_SEEDS = {  # what each once showed
    1848: "a log that parts early and is longer than the files that the leader has",
    882: "a disk that is emptied, then set back, after what it acknowledged",
}


def broken_by(seed: int) -> str | None:
    """What broke in this history; every third one ends with leaders that are cut off."""
    world = ReplicaWorld(seed) if seed % 3 else LeadersCut(seed)
    try:
        world.run()
    except Broken as broken:
        return str(broken)
    return None


def catch(bug: str) -> int | None:
    """The first seed that notices this broken rule."""
    with BROKEN_RULES[bug]():
        return next((seed for seed in range(SEARCHED) if broken_by(seed)), None)


def test_no_law_of_the_replicas_breaks() -> None:
    assert {seed: why for seed in range(SEEDS) if (why := broken_by(seed))} == {}


@pytest.mark.slow
def test_no_law_of_the_replicas_breaks_in_thousands_of_histories() -> None:
    seeds = range(SEEDS, SEEDS + MORE_SEEDS)
    broken = {seed: why for seed in seeds if (why := broken_by(seed))}
    proof.record("replicas", "make test", {"histories": len(seeds)}, failures=len(broken))
    assert broken == {}


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_what_once_broke_holds(seed: int) -> None:
    assert broken_by(seed) is None


def test_a_history_is_the_same_for_the_same_seed() -> None:
    ends: list[tuple[int, list[int]]] = []
    for _ in range(2):
        world = ReplicaWorld(7)
        world.run()
        ends.append((world.around.now, world.witness.chains))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("bug", BROKEN_RULES)
def test_a_broken_rule_is_caught(bug: str) -> None:
    assert catch(bug) is not None, f"no history of {SEARCHED} noticed {bug}"


def test_what_can_go_wrong_does() -> None:
    marks: set[str] = set()
    for seed in range(60):
        world = ReplicaWorld(seed)
        world.run()
        marks |= world.marks
    assert marks == {"disk emptied", "disk set back", "older directory refused"}
