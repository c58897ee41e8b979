"""Machines that are lost, with a client's state and its database: G5 has no silence then, either.

The deed is put into worlds that are drawn without it, so that seeds mean what they meant.
"""

from collections.abc import Generator
from typing import Any

import pytest
from msgspec import structs

from oncemq.client.verbs import inbox_verbs as rules
from oncemq.protocol.replies import NO_OFFSET
from simulator.schedule.cast import SETTLING_MS, Cast, WorldStep
from simulator.schedule.schedule import Schedule, schedule_of
from simulator.world.simulation import run

SEEDS = [5, 11, 17, 29, 35, 41]  # worlds with inboxes whose server does not go back in time


def with_losses(seed: int) -> Schedule:
    """The world of a seed, where each inbox's machine is lost, twice."""
    schedule = schedule_of(seed)
    chaos_ms = schedule.options.chaos_ms
    lost = [
        WorldStep(SETTLING_MS + chaos_ms * part // 10, "lose_machine", who)
        for part in (4, 8)
        for who in Cast(schedule.options).inboxes
    ]
    steps = sorted([*schedule.steps, *lost], key=lambda step: step.at_ms)
    return structs.replace(schedule, steps=tuple(steps))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_database_that_comes_back_empty_gets_all_or_is_told(seed: int) -> None:
    outcome = run(with_losses(seed))
    assert outcome.findings == []
    assert outcome.marks["machine lost"] > 0
    assert outcome.given > 0


@pytest.mark.slow
def test_who_believes_a_journal_that_is_lost_as_well_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = rules._survey  # pyright: ignore[reportPrivateUsage]

    def survey(engine: Any, topic: str) -> Generator[Any, Any, Any]:
        settled = engine.state.cursors()
        places = yield from original(engine, topic)
        return [
            each._replace(has_settled=each.topic in settled, began=NO_OFFSET) for each in places
        ]

    monkeypatch.setattr(rules, "_survey", survey)
    found = [finding for seed in SEEDS for finding in run(with_losses(seed)).findings]
    assert any("past a gap" in finding for finding in found), found
