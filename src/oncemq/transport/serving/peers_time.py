"""The time that passes for peers: none does while the server hears nobody.

It hears nobody while too much waits for the disk, and while it is away altogether: in a sync that
the loop itself waits for, or on a machine that sleeps. What peers said then lies in the system.
"""

from collections.abc import Callable

AWAY_SECONDS = 1.0  # without a look: what is longer than that counts as away


class PeersTime:
    """Seconds, from a steady clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_out = 0.0
        self._looked: float | None = None

    def __call__(self) -> float:
        """Now."""
        return self._clock() - self._left_out

    def leave_out(self, seconds: float) -> None:
        """So long nobody was heard."""
        self._left_out += seconds

    def look(self) -> float:
        """Now, as the server looks who is late, which it does more often than once a second."""
        if self._looked is not None:
            self.leave_out(max(0.0, self() - self._looked - AWAY_SECONDS))
        self._looked = self()
        return self._looked
