"""Who waits for the end of a topic to move: readers that keep their own cursor, such as Spark.

Law: a connection waits for one such answer at a time; a newer question replaces the older, so
the number of watchers is bounded by connections, not by requests.
"""

from typing import NamedTuple

from oncemq.broker.recorder import Recorder
from oncemq.broker.state.topic import Topic
from oncemq.broker.waits import WATCH, WaitList, WaitMoments
from oncemq.protocol.names import Micros, Offset
from oncemq.protocol.replies import NO_OFFSET, Ends, TopicEnd
from oncemq.protocol.requests import WatchEnds
from oncemq.protocol.step import Caller, Step


class EndWatch(NamedTuple):
    """A question whose answer is put off."""

    caller: Caller
    watch: WatchEnds
    deadline: Micros


class EndWatches:
    """All watchers of a server."""

    def __init__(self, scribe: Recorder, moments: WaitMoments) -> None:
        self._scribe = scribe
        self._shard = scribe.shard
        self._watchers: WaitList[bytes, EndWatch] = WaitList(WATCH, moments)  # by the route back

    def __len__(self) -> int:
        return len(self._watchers)

    def watch(self, step: Step, caller: Caller, watch: WatchEnds, now: Micros) -> None:
        """Where topics end, now or once that changes."""
        self._watchers.take(caller.route)
        wait_ms = min(watch.wait_ms, self._scribe.rules.wait_ms_max)
        if wait_ms <= 0 or self._differs(watch):
            self._scribe.answer(step, caller, self._ends(watch))
            return
        deadline = Micros(now + wait_ms * 1000)
        names = tuple(name for name, _ in watch.topics)
        self._watchers.add(caller.route, EndWatch(caller, watch, deadline), deadline, names)

    def moved(self, step: Step, name: str) -> None:
        """A topic's end moved, or the topic came or went: tell who watches it."""
        for route in self._watchers.on_topic(name):
            self.answer(step, route)

    def answer(self, step: Step, route: bytes) -> None:
        """End a wait, also one that is over: the same end is an answer, too."""
        watcher = self._watchers.take(route)
        if watcher is not None:
            self._scribe.answer(step, watcher.caller, self._ends(watcher.watch))

    def _differs(self, watch: WatchEnds) -> bool:
        named = ((self._shard.by_name.get(name), end) for name, end in watch.topics)
        return any(topic is None or topic.visible != end for topic, end in named)

    def _ends(self, watch: WatchEnds) -> Ends:
        topics = (self._shard.by_name.get(name) for name, _ in watch.topics)
        return Ends(
            tuple(
                TopicEnd(topic.name, topic.id, topic.low, topic.visible, self._agreed(watch, topic))
                for topic in topics
                if topic is not None
            ),
            self._shard.log_id,
            self._shard.generation,
        )

    def _agreed(self, watch: WatchEnds, topic: Topic) -> Offset:
        if not watch.generation:
            return NO_OFFSET
        if self._shard.generations.has(watch.generation):
            return topic.agreed(watch.generation)
        return topic.low  # of another branch: nobody can say, so all that is held may be new
