"""Who waits for the end of a topic to move: readers that keep their own cursor, such as Spark.

Laws: a connection waits for one such answer at a time; a newer question replaces the older. What
all of them name is bounded, also while connections come and go: beyond it the oldest wait is over
at once, which is an answer as at its end, and whoever is there asks again.
"""

from typing import NamedTuple

from oncemq.broker.recorder import Recorder
from oncemq.broker.state.topic import Topic
from oncemq.broker.waits import WATCH, WaitList, WaitMoments
from oncemq.protocol.names import Generation, Micros, Offset
from oncemq.protocol.replies import NO_OFFSET, Ends, TopicEnd
from oncemq.protocol.requests import WatchEnds
from oncemq.protocol.step import Caller, Step

NAMES_MAX = 1_000_000  # that all watchers wait on; each takes about 150 bytes
WATCHER_NAMES = 5  # one takes as much as so many names, beside its own


class EndWatch(NamedTuple):
    """A question whose answer is put off."""

    caller: Caller
    names: tuple[str, ...]  # as the shard has them, each once
    generation: Generation


class EndWatches:
    """All watchers of a server."""

    def __init__(self, scribe: Recorder, moments: WaitMoments) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._watchers: WaitList[bytes, EndWatch] = WaitList(WATCH, moments)  # by the route back
        self._names = 0  # that they wait on

    def __len__(self) -> int:
        return len(self._watchers)

    def watch(self, step: Step, caller: Caller, watch: WatchEnds, now: Micros) -> None:
        """Where topics end, now or once that changes."""
        self._take(caller.route)
        wait_ms = min(watch.wait_ms, self._scribe.rules.wait_ms_max)
        if wait_ms <= 0 or self._differs(watch):
            names = tuple(name for name, _ in watch.topics)
            self._scribe.answer(step, caller, self._ends(names, watch.generation))
            return
        by_name = self._shard.by_name
        names = tuple(by_name[name].name for name in dict(watch.topics))
        watcher = EndWatch(caller, names, watch.generation)
        self._watchers.add(caller.route, watcher, Micros(now + wait_ms * 1000), names)
        self._names += len(names) + WATCHER_NAMES
        while self._names > NAMES_MAX:
            self.answer(step, next(iter(self._watchers.keys())))

    def moved(self, step: Step, name: str) -> None:
        """A topic's end moved, or the topic came or went: tell who watches it."""
        for route in self._watchers.on_topic(name):
            self.answer(step, route)

    def answer(self, step: Step, route: bytes) -> None:
        """End a wait, also one that is over: the same end is an answer, too."""
        watcher = self._take(route)
        if watcher is not None:
            ends = self._ends(watcher.names, watcher.generation)
            self._scribe.answer(step, watcher.caller, ends)

    def _take(self, route: bytes) -> EndWatch | None:
        watcher = self._watchers.take(route)
        if watcher is not None:
            self._names -= len(watcher.names) + WATCHER_NAMES
        return watcher

    def _differs(self, watch: WatchEnds) -> bool:
        named = ((self._shard.by_name.get(name), end) for name, end in watch.topics)
        return any(topic is None or topic.visible != end for topic, end in named)

    def _ends(self, names: tuple[str, ...], generation: Generation) -> Ends:
        topics = (self._shard.by_name.get(name) for name in names)
        return Ends(
            tuple(
                TopicEnd(
                    topic.name, topic.id, topic.low, topic.visible, self._agreed(topic, generation)
                )
                for topic in topics
                if topic is not None
            ),
            self._shard.log_id,
            self._shard.generation,
        )

    def _agreed(self, topic: Topic, generation: Generation) -> Offset:
        if not generation:
            return NO_OFFSET
        if self._shard.generations.has(generation):
            return topic.agreed(generation)
        return topic.low  # of another branch: nobody can say, so all that is held may be new
