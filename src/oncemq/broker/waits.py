"""Who waits for what, until when: one list for long polls, end watches and listeners.

Each of them has its keys and waiters in a `WaitList` of its own; all moments are in one heap, the
broker's, so that the next one is known by one look (`Deadlines.next`).

Laws: a key waits at most once, the one added last counts, so the number of waiters is bounded by
clients and connections, not by requests. A key has one moment, the one set last. The heap holds no
more than twice as many entries as there are keys, and a few: what was set again or dropped does not
pile up until its moment comes.
"""

import heapq
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from oncemq.protocol.names import ClientId, Micros
from oncemq.protocol.patterns import is_pattern, matches
from oncemq.protocol.requests import Get
from oncemq.protocol.step import Caller

SPARE = 64  # entries that are out of date, before it is worth looking at all of them

# What waits, in the heap: keys of one kind are ordered, those of two are never compared.
POLL, WATCH, LISTEN = range(3)

K = TypeVar("K")  # of one kind, and ordered
W = TypeVar("W")


class Deadlines(Generic[K]):
    """A heap of keys by their moments."""

    def __init__(self) -> None:
        self.by_key: dict[K, Micros] = {}
        self._heap: list[tuple[Micros, K]] = []

    def __len__(self) -> int:
        return len(self.by_key)

    def set(self, key: K, moment: Micros) -> None:
        """It is due then, and at no other moment."""
        if self.by_key.get(key) == moment:
            return
        self.by_key[key] = moment
        if len(self._heap) > 2 * len(self.by_key) + SPARE:
            self._heap = [(each, key) for key, each in self.by_key.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (moment, key))

    def drop(self, key: K) -> None:
        """It is never due."""
        self.by_key.pop(key, None)

    def next(self) -> Micros | None:
        """The next moment, if any."""
        while self._heap:
            moment, key = self._heap[0]
            if self.by_key.get(key) == moment:
                return moment
            heapq.heappop(self._heap)
        return None

    def take(self, now: Micros) -> K | None:
        """One key that is due, no longer so from here on."""
        moment = self.next()
        if moment is None or moment > now:
            return None
        key = heapq.heappop(self._heap)[1]
        del self.by_key[key]
        return key


WaitMoments = Deadlines[tuple[int, Any]]  # POLL, WATCH or LISTEN, and the key


class WaitList(Generic[K, W]):
    """Waiters of one kind, by key and by the topics they wait on."""

    def __init__(self, kind: int, moments: WaitMoments) -> None:
        self._kind = kind
        self._moments = moments
        self._waiters: dict[K, tuple[W, tuple[str, ...]]] = {}
        self._by_topic: dict[str, dict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, key: K) -> bool:
        return key in self._waiters

    def keys(self) -> Iterable[K]:
        """Of all that wait."""
        return self._waiters.keys()

    def add(self, key: K, waiter: W, due: Micros, topics: tuple[str, ...] = ()) -> None:
        """Let one wait, instead of an earlier one of the same key."""
        self.take(key)
        self._waiters[key] = waiter, topics
        for name in topics:
            self._by_topic.setdefault(name, {})[key] = None
        self.set_due(key, due)

    def set_due(self, key: K, due: Micros) -> None:
        """The moment to look at this one again."""
        self._moments.set((self._kind, key), due)

    def get(self, key: K) -> W | None:
        """Who waits there."""
        found = self._waiters.get(key)
        return found[0] if found else None

    def on_topic(self, name: str) -> list[K]:
        """Who waits on a topic."""
        return list(self._by_topic.get(name, ()))

    def take(self, key: K) -> W | None:
        """Take one, if it waits."""
        found = self._waiters.pop(key, None)
        if found is None:
            return None
        self._moments.drop((self._kind, key))
        waiter, topics = found
        for name in topics:
            keys = self._by_topic.get(name, {})
            keys.pop(key, None)
            if not keys:
                self._by_topic.pop(name, None)
        return waiter


PollKey = tuple[ClientId, str]  # the topic's name, or "" for any


class LongPoll(NamedTuple):
    """A get whose answer is put off."""

    caller: Caller
    get: Get
    deadline: Micros


class LongPolls:
    """All waiting gets of a server: a client waits at most once on a topic, and once on "any"."""

    def __init__(self, moments: WaitMoments) -> None:
        self._list: WaitList[PollKey, LongPoll] = WaitList(POLL, moments)
        self.of = self._list.get
        self.take = self._list.take

    def __len__(self) -> int:
        return len(self._list)

    def __contains__(self, key: PollKey) -> bool:
        return key in self._list

    def add(self, waiter: LongPoll) -> None:
        """Let this get wait, instead of an earlier one of the same client and topic."""
        topic = waiter.get.topic
        key = (waiter.get.client, topic)
        self._list.add(key, waiter, waiter.deadline, (topic,) if topic else ())

    def on_topic(self, topic: str, subscribers: Iterable[ClientId]) -> list[LongPoll]:
        """Take every get that a new message on `topic` answers."""
        keys = self._list.on_topic(topic)
        if len(self._list) > len(keys):
            for client in subscribers:
                waiter = self._list.get((client, ""))
                if waiter is not None and _wants(waiter.get, topic):
                    keys.append((client, ""))
        return self._taken(keys)

    def of_client(self, client: ClientId, topics: Iterable[str]) -> list[LongPoll]:
        """Take what this client waits for on these topics, and on any."""
        return self._taken((client, topic) for topic in (*topics, ""))

    def _taken(self, keys: Iterable[PollKey]) -> list[LongPoll]:
        found = (self._list.take(key) for key in keys)
        return [waiter for waiter in found if waiter is not None]


def _wants(get: Get, topic: str) -> bool:
    """Whether a get of any topic is one of this topic."""
    return not get.only or any(
        name == topic or (is_pattern(name) and matches(name, topic)) for name in get.only
    )
