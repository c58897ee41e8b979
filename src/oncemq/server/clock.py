"""The server's clock, in three readings: for waits, for timestamps and for ages.

A wall clock is set, by hand or by NTP, forward and back, by seconds or by days; a steady clock
does not know the date. Laws:

- What waits (a long poll, a lazy commit, the next try on a full disk) goes by the steady clock.
- Timestamps follow the wall's clock, and never go back. Set back, they go on at half speed until
  the wall has caught up. Set forward by minutes or more, they follow only when a second look, a
  minute later, shows the same: a clock that was wrong for a moment leaves no trace.
- Ages (of idempotency keys, guests, stages, messages under retention) grow no faster than the
  steady clock while the server runs, and by an hour at most while it is down: what is to be kept
  for a time is kept for at least that time, whatever the wall says. A clock that was set forward
  makes things stay longer, by as much.
"""

import logging
from collections.abc import Callable

from oncemq.broker.expiry import Calendar
from oncemq.protocol.names import Micros

NEAR_MICROS = 10_000  # apart by less than this, two clocks are the same
STEP_MICROS = 120_000_000  # set forward by more than this is told, and looked at twice
SECOND_LOOK_MICROS = 60_000_000
DOWN_MICROS = 3_600_000_000  # how much older things become at most while the server is down

logger = logging.getLogger("oncemq.server")


class SteadyClock:
    """Microseconds that never jump, from a wall clock and a steady one.

    `last_timestamp`: the newest that the log has. `ticks`: of both clocks, in a microsecond; the
    system's are asked as they are, since each function in between is one more call for each put.
    """

    def __init__(
        self,
        wall: Callable[[], int],
        steady: Callable[[], int],
        last_timestamp: int | None = None,
        *,
        ticks: int = 1,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._ticks = ticks
        self._seen = steady() // ticks
        self._base = wall() // ticks - self._seen
        self._ahead = 0  # of the timestamps
        self._passed = 0  # that the timestamps have passed over, and ages leave out
        if last_timestamp:
            self._passed = max(0, wall() // ticks - last_timestamp - DOWN_MICROS)
        self._suspected: int | None = None  # since when the wall is far ahead
        self._is_behind = False
        # Where timestamps and ages are, beside `now`; as of the last call.
        self.calendar = Calendar(self._ahead, self._passed)

    def __call__(self) -> Micros:
        """Now, for what waits: the steady clock, counted from the wall's time at the start."""
        steady = self._steady() // self._ticks
        now = self._base + steady
        gap = self._wall() // self._ticks - now - self._ahead
        if -NEAR_MICROS < gap < NEAR_MICROS:
            self._seen, self._suspected, self._is_behind = steady, None, False
        else:
            self._look(steady, gap)
        return Micros(now)

    def steady(self) -> Micros:
        """The same without a look at the wall: for how long something takes."""
        return Micros(self._base + self._steady() // self._ticks)

    def _look(self, steady: int, gap: int) -> None:
        """The wall's clock is not where the timestamps are, by so much."""
        half = (steady - self._seen) // 2
        self._seen += 2 * half
        if gap < -STEP_MICROS and not self._is_behind:
            logger.warning("clock set back seconds=%d", -gap // 1_000_000)
        self._is_behind = gap < -STEP_MICROS
        if gap <= STEP_MICROS:
            self._suspected = None
        elif self._suspected is None:
            self._suspected = steady
            logger.warning("clock set forward seconds=%d; looking again", gap // 1_000_000)
        if gap < 0:
            self._ahead -= min(-gap, half)
        elif self._suspected is None or steady - self._suspected >= SECOND_LOOK_MICROS:
            if self._suspected is not None:
                logger.warning("clock followed seconds=%d", gap // 1_000_000)
                self._suspected = None
            self._ahead += gap
            self._passed += gap
        self.calendar = Calendar(self._ahead, self._passed)
