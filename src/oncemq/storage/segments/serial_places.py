"""Where in a log segment some of its records lie: from the nearest one, a reader walks on.

Noted about every 64 KiB, so that it takes little memory. Owned by the loop thread.
"""

from array import array
from bisect import bisect_left

STEP_BYTES = 64 << 10


class SerialPlaces:
    """Serials and the byte positions of their frames, both growing."""

    __slots__ = ("_positions", "_serials", "due")

    def __init__(self) -> None:
        self._serials = array("Q")
        self._positions = array("Q")
        self.due = 0  # the position from which on the next one is noted

    def note(self, serial: int, position: int) -> None:
        """A frame lies there; passed over when one close to it, or behind it, is known."""
        if position >= self.due:
            self._positions.append(position)
            self._serials.append(serial)
            self.due = position + STEP_BYTES

    def before(self, serial: int, end: int) -> int | None:
        """The position of the nearest known frame before a serial, and before the byte `end`."""
        at = min(bisect_left(self._serials, serial), bisect_left(self._positions, end))
        return self._positions[at - 1] if at else None
