"""Gets that wait for a message: who, on what, until when.

Law: a client waits at most once on a topic (and once on "any"); a newer get replaces the
older, so the number of waiters is bounded by clients, not by requests.
"""

from collections.abc import Iterable
from typing import NamedTuple

from oncemq.broker.deadlines import Deadlines
from oncemq.protocol.names import ClientId, Micros
from oncemq.protocol.patterns import is_pattern, matches
from oncemq.protocol.requests import Get
from oncemq.protocol.step import Caller

Key = tuple[ClientId, str]  # the topic's name, or "" for any


class LongPoll(NamedTuple):
    """A get whose answer is put off."""

    caller: Caller
    get: Get
    deadline: Micros


class LongPolls:
    """All waiting gets of a server."""

    def __init__(self) -> None:
        self._waiters: dict[Key, LongPoll] = {}
        self._by_topic: dict[str, dict[Key, None]] = {}
        self._deadlines: Deadlines[Key] = Deadlines()

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiters

    def add(self, waiter: LongPoll) -> None:
        """Let this get wait, instead of an earlier one of the same client and topic."""
        key = (waiter.get.client, waiter.get.topic)
        self._waiters[key] = waiter
        if key[1]:
            self._by_topic.setdefault(key[1], {})[key] = None
        self._deadlines.set(key, waiter.deadline)

    def on_topic(self, topic: str, subscribers: Iterable[ClientId]) -> list[LongPoll]:
        """Take every get that a new message on `topic` answers."""
        keys: list[Key] = list(self._by_topic.get(topic, ()))
        if len(self._waiters) > len(keys):
            for client in subscribers:
                waiter = self._waiters.get((client, ""))
                if waiter is not None and _wants(waiter.get, topic):
                    keys.append((client, ""))
        return [self._take(key) for key in keys]

    def of_client(self, client: ClientId, topics: Iterable[str]) -> list[LongPoll]:
        """Take what this client waits for on these topics, and on any."""
        keys = [(client, topic) for topic in (*topics, "")]
        return [self._take(key) for key in keys if key in self._waiters]

    def of(self, key: Key) -> LongPoll | None:
        """The get that waits there."""
        return self._waiters.get(key)

    def take(self, key: Key) -> LongPoll | None:
        """Take one get, if it waits."""
        return self._take(key) if key in self._waiters else None

    def expired(self, now: Micros) -> list[LongPoll]:
        """Take every get whose wait is over."""
        out: list[LongPoll] = []
        while (key := self._deadlines.take(now)) is not None:
            out.append(self._take(key))
        return out

    def next_deadline(self) -> Micros | None:
        """When `expired` is worth calling again."""
        return self._deadlines.next()

    def _take(self, key: Key) -> LongPoll:
        waiter = self._waiters.pop(key)
        self._deadlines.drop(key)
        if key[1]:
            keys = self._by_topic[key[1]]
            del keys[key]
            if not keys:
                del self._by_topic[key[1]]
        return waiter


def _wants(get: Get, topic: str) -> bool:
    """Whether a get of any topic is one of this topic."""
    return not get.only or any(
        name == topic or (is_pattern(name) and matches(name, topic)) for name in get.only
    )
