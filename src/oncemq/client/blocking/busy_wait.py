"""Looking for an answer for a moment before sleeping: a core that sleeps is slow to wake up.

Who sleeps until the answer comes gives the core away. It takes 30 to 60 µs until it runs again, and
then it has forgotten what it was doing. So a program that has its cores to itself may ask for this
(ONCEMQ_BUSY_MICROS): who waits for the only answer that is under way looks for it over and over,
for as long as such answers lately took and half as long again, and only then sleeps.

Laws: nobody looks for longer than `most`, and where answers lately took as long, nobody looks at
all. After each look in vain every other process that wants this core is let go first (the server
may be one), and other threads get Python's lock. One that has it for longer than `most` computes:
beside it who sleeps is woken at once, and who looks waits for it; so nobody looks for a second.
"""

import time
from collections.abc import Callable
from os import sched_yield

from oncemq.client.state.paths import BUSY_MICROS, busy_micros
from oncemq.errors import ConfigError

MICRO = 1_000_000
AS_LONG = 1.5  # times what answers took
REST_SECONDS = 1.0  # without looking, where others compute on this core

Found = list[tuple[int, int]]
Poll = Callable[[float], Found]  # as of `select.poll`, in milliseconds


class BusyWait:
    """The waits of one client for an answer; of one thread at a time."""

    def __init__(
        self,
        most_micros: int,
        clock: Callable[[], float] = time.perf_counter,
        step_aside: Callable[[], None] = sched_yield,
    ) -> None:
        self._most = most_micros / MICRO
        self._clock = clock
        self._step_aside = step_aside
        self._recent = 2 * self._most  # how long answers lately took, at worst, in seconds
        self._rests_until = 0.0  # others compute on this core

    def wait(self, poll: Poll, pause: float) -> Found:
        """What is readable, as soon as something is; nothing when the time is over."""
        begun = self._clock()
        found = Found()
        if self._recent < self._most and begun >= self._rests_until:
            found = self._look(poll, begun, min(AS_LONG * self._recent, self._most, pause))
        if not found:
            found = poll(pause * 1000)
        # One slow answer is believed at once, and forgotten after three quick ones.
        self._recent = min(max(self._clock() - begun, self._recent * 3 / 4), 2 * self._most)
        return found

    def _look(self, poll: Poll, begun: float, seconds: float) -> Found:
        clock, before, until = self._clock, begun, begun + seconds
        while True:
            found, now = poll(0), clock()
            if now - before > self._most:
                self._rests_until = now + REST_SECONDS
            if found or now >= until:
                return found
            before = now
            self._step_aside()


def busy_wait_asked_for() -> BusyWait | None:
    """As ONCEMQ_BUSY_MICROS says; None: who waits sleeps at once."""
    most = most_micros_asked_for()
    return BusyWait(most) if most else None


def most_micros_asked_for() -> int:
    """What ONCEMQ_BUSY_MICROS says, or none."""
    text = busy_micros().strip()
    if text and not text.isdecimal():
        raise ConfigError(f"variable {BUSY_MICROS}: {text!r} is no number of microseconds")
    return int(text or 0)
