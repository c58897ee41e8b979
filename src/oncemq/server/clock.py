"""The server's clock: the wall's time, and never a moment twice.

A wall clock may be set back, by hand or by NTP. Whatever waits then (a long poll, the next try on
a full disk, a lazy commit, housekeeping) would wait for an hour instead of a moment.
Law: it never goes back nor stands still. Set back, it goes on at half speed until the wall's
clock has caught up; set forward, it follows at once.
"""

from collections.abc import Callable

from oncemq.core.names import Micros


class SteadyClock:
    """Microseconds since 1970, from a wall clock and a steady one, both in microseconds."""

    def __init__(self, wall: Callable[[], int], steady: Callable[[], int]) -> None:
        self._wall = wall
        self._steady = steady
        self._last = wall()
        self._seen = steady()

    def __call__(self) -> Micros:
        """Now."""
        half = (self._steady() - self._seen) // 2
        self._seen += 2 * half
        self._last = max(self._wall(), self._last + half)
        return Micros(self._last)
