"""How old a timestamp is, though the clock was set forward since.

Timestamps follow the date. When the date is set forward by eight days and stays there, they pass
over eight days in which no time went by; so they do over most of the time that a server was down
(see `server.clock`). Each such step is a fact in the log, `ClockNoted`: which timestamp was the
newest before it, and how much was passed over. The age of a timestamp leaves out the steps after
it.

Law: nothing is ever taken for older than it is, whatever was restarted in between. Where steps are
too many to be kept one by one, two become one behind the later of them, and what was stored between
them is taken for younger than it is.
"""

from collections.abc import Iterable
from typing import NamedTuple

from oncemq.protocol.names import Micros
from oncemq.protocol.records import ClockNoted

STEPS_MAX = 64


class ClockStep(NamedTuple):
    """Timestamps passed over so much time, right behind this one."""

    after: Micros
    passed: int


class Ages:
    """The steps that a shard's timestamps have made."""

    def __init__(self) -> None:
        self._steps: list[ClockStep] = []  # in order

    def apply(self, record: ClockNoted) -> None:
        """Remember a step. One that is known, as from a checkpoint, changes nothing."""
        newest = self._steps[-1].after if self._steps else -1
        if record.passed and record.after > newest:
            self._steps.append(ClockStep(record.after, record.passed))
        if len(self._steps) > STEPS_MAX:
            first, second = self._steps[:2]
            self._steps[:2] = [ClockStep(second.after, first.passed + second.passed)]

    def at(self, now: Micros) -> "Reading":
        """Ages as of a timestamp."""
        return Reading(now, self._steps)

    def capture(self) -> tuple[tuple[int, int], ...]:
        """As a checkpoint keeps them."""
        return tuple(self._steps)

    def restore(self, steps: Iterable[tuple[int, int]]) -> None:
        """As a checkpoint kept them."""
        self._steps = [ClockStep(Micros(after), passed) for after, passed in steps]


class Reading:
    """Ages as of now."""

    def __init__(self, now: Micros, steps: list[ClockStep]) -> None:
        self.now = now
        self._steps = steps

    def before(self, age: int) -> Micros:
        """The newest timestamp that is so old."""
        newest = int(self.now)
        for after, passed in reversed(self._steps):
            since = max(0, newest - after - passed)
            if age <= since:
                break
            age -= since
            newest = min(newest, after)
        return Micros(newest - age)
