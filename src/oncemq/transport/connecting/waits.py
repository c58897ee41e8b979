"""How long a client waits before it tries a server again: longer each time, and never exactly."""

from collections.abc import Callable

RECONNECT_MICROS = 20_000  # quick at first: a restarted server is back within a second
RECONNECT_MAX_MICROS = 1_000_000


class ReconnectWaits:
    """The waits of one client's end.

    Laws: each is up to twice as long as the one before, up to the longest, until a connection was
    of use. Half of it is left to chance, so that clients of a restarted server do not come at once.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance  # at least 0, less than 1
        self._next = RECONNECT_MICROS

    def after_failure(self) -> int:
        """Microseconds until the next try."""
        wait, self._next = self._next, min(2 * self._next, RECONNECT_MAX_MICROS)
        return wait - int(self._chance() * wait / 2)

    def after_use(self) -> None:
        """The server answered: begin with short waits again."""
        self._next = RECONNECT_MICROS
