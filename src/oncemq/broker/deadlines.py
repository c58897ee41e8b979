"""Moments at which something is due, the next one first.

Law: a key has one moment, the one set last. The heap holds no more than twice as many entries as
there are keys, and a few: what was set again or dropped does not pile up until its moment comes.
"""

import heapq
from typing import Generic, TypeVar

from oncemq.protocol.names import Micros

SPARE = 64  # entries that are out of date, before it is worth looking at all of them

K = TypeVar("K")  # of one kind, and ordered


class Deadlines(Generic[K]):
    """A heap of keys by their moments."""

    def __init__(self) -> None:
        self._moments: dict[K, Micros] = {}
        self._heap: list[tuple[Micros, K]] = []

    def __len__(self) -> int:
        return len(self._moments)

    def set(self, key: K, moment: Micros) -> None:
        """It is due then, and at no other moment."""
        if self._moments.get(key) == moment:
            return
        self._moments[key] = moment
        if len(self._heap) > 2 * len(self._moments) + SPARE:
            self._heap = [(each, key) for key, each in self._moments.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (moment, key))

    def drop(self, key: K) -> None:
        """It is never due."""
        self._moments.pop(key, None)

    def next(self) -> Micros | None:
        """The next moment, if any."""
        while self._heap:
            moment, key = self._heap[0]
            if self._moments.get(key) == moment:
                return moment
            heapq.heappop(self._heap)
        return None

    def take(self, now: Micros) -> K | None:
        """One key that is due, no longer so from here on."""
        moment = self.next()
        if moment is None or moment > now:
            return None
        key = heapq.heappop(self._heap)[1]
        del self._moments[key]
        return key
