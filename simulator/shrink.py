"""Making a failing schedule small: ddmin over its steps, then simpler steps.

Law: what comes out fails in the same way as what went in: with a finding of the same kind.
"""

import msgspec

from simulator.schedule.cast import Value, WorldStep
from simulator.schedule.schedule import Schedule
from simulator.trial import outcome_of

PLAINER: dict[str, Value] = {
    "again": 1,
    "count": 1,
    "size": 8,
    "down_ms": 1,
    "hold_ms": 1,
    "older": False,
    "fails": False,
}


def kinds(findings: list[str]) -> set[str]:
    """What was broken, without where."""
    return {finding.split(":", 1)[0] for finding in findings}


def shrink(schedule: Schedule, *, tries: int = 400) -> Schedule:
    """A schedule with as few steps as can be found that fails like this one."""
    wanted = kinds(outcome_of(schedule).findings)
    return Shrinking(schedule, wanted, tries).shrunk() if wanted else schedule


class Shrinking:
    """One search for a smaller schedule."""

    def __init__(self, schedule: Schedule, wanted: set[str], tries: int) -> None:
        self._schedule = schedule
        self._wanted = wanted
        self._tries = tries

    def shrunk(self) -> Schedule:
        """Drop steps, make the rest plainer, and drop once more."""
        steps = self._drop(list(self._schedule.steps))
        steps = self._drop(self._plainer(steps))
        return self._with(steps)

    def _with(self, steps: list[WorldStep]) -> Schedule:
        return msgspec.structs.replace(self._schedule, steps=tuple(steps))

    def _fails(self, steps: list[WorldStep]) -> bool:
        if self._tries <= 0:
            return False
        self._tries -= 1
        return bool(kinds(outcome_of(self._with(steps)).findings) & self._wanted)

    def _drop(self, steps: list[WorldStep]) -> list[WorldStep]:
        """ddmin: leave out ever smaller parts, as long as it still fails."""
        parts = 2
        while len(steps) > 1:
            size = -(-len(steps) // parts)
            for start in range(0, len(steps), size):
                fewer = steps[:start] + steps[start + size :]
                if self._fails(fewer):
                    steps, parts = fewer, max(2, parts - 1)
                    break
            else:
                if size == 1:
                    break
                parts = min(len(steps), parts * 2)
        return steps

    def _plainer(self, steps: list[WorldStep]) -> list[WorldStep]:
        for number, step in enumerate(steps):
            for name, value in PLAINER.items():
                if step.args.get(name, value) != value:
                    plain = msgspec.structs.replace(step, args={**step.args, name: value})
                    tried = [*steps[:number], plain, *steps[number + 1 :]]
                    if self._fails(tried):
                        steps, step = tried, plain
        return steps
