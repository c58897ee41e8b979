"""Bugs planted in what listens: see `simulator.planted.planted`."""

from typing import Any

from oncemq.client.engine import listening
from oncemq.protocol.names import Offset
from oncemq.session.cursors import Cursors
from oncemq.session.listener_order import ListenerOrder
from simulator.planted.plant import instead
from simulator.schedule.options import LISTENING


@instead(ListenerOrder, "_offer", LISTENING)
def _passes_over_a_gap_of_the_feed(original: Any) -> Any:
    def offer(self: Any, tuned: Any, stretch: Any) -> None:
        subscriber = self._subscriber
        known = subscriber.cursors.subscription(tuned.topic) == tuned.subscription_id
        if known and stretch.first > subscriber.prefetched.place(tuned.topic):
            subscriber.prefetched.feed(tuned.topic).ahead = stretch.first
        original(self, tuned, stretch)

    return offer


@instead(ListenerOrder, "_offer", LISTENING)
def _keeps_what_is_pushed_beside_what_was_pulled(original: Any) -> Any:
    def offer(self: Any, tuned: Any, stretch: Any) -> None:
        subscriber = self._subscriber
        known = subscriber.cursors.subscription(tuned.topic) == tuned.subscription_id
        if known and stretch.first < subscriber.prefetched.place(tuned.topic):
            feed, first = subscriber.prefetched.feed(tuned.topic), stretch.first
            ahead = Offset(max(feed.ahead, stretch.first + stretch.left))
            feed.add(stretch, first, single=True)
            feed.ahead = ahead
        else:
            original(self, tuned, stretch)

    return offer


class Ghosts(ListenerOrder[Any]):
    """A listener that remembers what it left, and hands out what still comes of it."""

    def subscription(self, topic_id: Any) -> Any:
        """The one it had, of a topic that was left."""
        known: dict[Any, Any] = self.__dict__.setdefault("known", {})
        now = super().subscription(topic_id)
        if now is not None:
            known[topic_id] = now
        return known.get(topic_id)

    def pushed(self, topic_id: Any, end: Any, stretches: Any) -> None:
        """What is of a topic that was left is kept, too."""
        if topic_id not in self.topics:
            self.__dict__.setdefault("ghosts", []).extend(stretches)
        super().pushed(topic_id, end, stretches)

    def take(self, limit: int) -> list[Any]:
        """The dead first."""
        for ghost in self.__dict__.get("ghosts", ()):
            if ghost.left:
                return ghost.take(1)
        return super().take(limit)


@instead(listening, "ListenerOrder", LISTENING)
def _hands_out_a_push_after_the_unsubscribe(_: Any) -> Any:
    return Ghosts


@instead(Cursors, "has", LISTENING)
def _listens_on_after_the_unsubscribe(_: Any) -> Any:
    def has(self: Any, message: Any) -> bool:
        return True

    return has
