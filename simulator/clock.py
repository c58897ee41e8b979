"""Simulated time and chance: one heap of events, one seed split into named streams.

Laws: time is integer nanoseconds and never goes back; events of one moment run in the order they
were made; what one stream draws changes nothing for the others.
"""

import heapq
from collections.abc import Callable
from hashlib import blake2b
from random import Random

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

Event = Callable[[], object]


class Clock:
    """What happens when."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[tuple[int, int, Event]] = []
        self._made = 0
        self._trace = blake2b(digest_size=16)

    def at(self, moment: int, event: Event) -> None:
        """Let it happen then, or now if that is over."""
        self._made += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._made, event))

    def after(self, delay: int, event: Event) -> None:
        """Let it happen so much later."""
        self.at(self.now + delay, event)

    def run(self, until: int, *, done: Callable[[], bool] | None = None) -> bool:
        """Let everything happen up to `until`, or until `done`; whether it was done."""
        while self._heap and self._heap[0][0] <= until:
            if done is not None and done():
                return True
            self.now, _, event = heapq.heappop(self._heap)
            self.events += 1
            event()
        self.now = max(self.now, until)
        return done is not None and done()

    # The trace: what two runs of one seed must have in common.

    def note(self, what: str) -> None:
        """Something happened that another run must repeat."""
        self._trace.update(f"{self.now} {what}\n".encode())

    @property
    def trace(self) -> str:
        """The digest of everything noted so far."""
        return self._trace.hexdigest()


def stream(seed: int, name: str) -> Random:
    """The random numbers of one concern; the same whatever the others draw."""
    return Random(f"{seed}/{name}")
