"""A listener's rules: what is pushed is taken in order, a gap is seen, and filled by pulling.

The feed promises nothing: its messages may be lost, late, doubled, or of a subscription that ended.
Laws: a topic's messages are handed out in order, without gap, once (G3, G4): what is below the
place reached is dropped, what is beyond it waits for the pull that fills the gap. Nothing of a
topic that was left is handed out (G6). What is kept is bounded; what finds no room is pulled later.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from oncemq.protocol.names import Offset, SubscriptionId, TopicId
from oncemq.protocol.replies import ListenedAnswer
from oncemq.session.prefetched import M, MessageRun
from oncemq.session.subscriber import Subscriber

HELD_BYTES = 4 << 20  # of one topic, waiting to be handed out
EARLY_BYTES = 1 << 20  # of one topic, waiting for a gap before them to be filled


@dataclass(slots=True)
class ListenedTopic(Generic[M]):
    """One topic that is listened to."""

    topic: str
    topic_id: TopicId
    subscription_id: SubscriptionId
    end: Offset  # the furthest end heard of
    early: deque[MessageRun[M]] = field(default_factory=deque[MessageRun[M]])
    early_bytes: int = 0


class ListenerOrder(Generic[M]):
    """Everything one client listens to, on top of its cursors."""

    def __init__(self, subscriber: Subscriber[M]) -> None:
        self._subscriber = subscriber
        self._tuned: dict[TopicId, ListenedTopic[M]] = {}
        self._by_name: dict[str, ListenedTopic[M]] = {}
        self._behind: dict[str, None] = {}  # topics whose end is further than what came
        self._ready: dict[str, None] = {}  # topics with something to hand out
        self.gaps = 0  # seen, and left to a pull
        self.overlaps = 0  # batches pushed that were there already, or in part
        self.late = 0  # topics that had something before they were joined

    @property
    def topics(self) -> list[TopicId]:
        """What to listen to on the feed."""
        return list(self._tuned)

    def joined(self, heard: Iterable[ListenedAnswer]) -> None:
        """The server said what there is to hear, and where it ends: all of it, and nothing else."""
        before, self._tuned = self._tuned, {}
        self._by_name.clear()
        self._behind.clear()
        for each in heard:
            self._subscriber.heard(each.topic, each.subscription_id, each.cursor)
            tuned = before.get(each.topic_id)
            if tuned is None or tuned.subscription_id != each.subscription_id:
                tuned = ListenedTopic[M](each.topic, each.topic_id, each.subscription_id, each.end)
                self.late += self._subscriber.prefetched.place(each.topic) < each.end
            tuned.end = max(tuned.end, each.end)
            self._tuned[each.topic_id] = self._by_name[each.topic] = tuned
            self._see(tuned)
        self._ready = {name: None for name in self._ready if name in self._by_name}

    def subscription(self, topic_id: TopicId) -> SubscriptionId | None:
        """Whose messages of this topic are wanted, if any are."""
        tuned = self._tuned.get(topic_id)
        return tuned.subscription_id if tuned else None

    def pushed(self, topic_id: TopicId, end: Offset, stretches: Sequence[MessageRun[M]]) -> None:
        """The feed said where a topic ends, and brought what came last, or only said so."""
        tuned = self._tuned.get(topic_id)
        if tuned is None:
            return  # left, or its subscription ended: this is from before (G6)
        tuned.end = max(tuned.end, end)
        for stretch in stretches:
            self._offer(tuned, stretch)
        self._see(tuned)

    def pulled(self, topic: str) -> None:
        """Messages of a topic came that were asked for: what waited behind them may follow."""
        tuned = self._by_name.get(topic)
        if tuned is None:
            return
        if self._subscriber.prefetched.feed(topic).more:  # beyond any end that was heard of
            tuned.end = max(tuned.end, Offset(self._subscriber.prefetched.place(topic) + 1))
        early, tuned.early = tuned.early, deque()
        tuned.early_bytes = 0
        for stretch in early:
            self._offer(tuned, stretch)
        self._see(tuned)

    def lacking(self) -> list[str]:
        """The topics to pull now: something is missing, and there is room for it."""
        return [name for name in self._behind if self._has_room(name)]

    def take(self, limit: int) -> list[M]:
        """Up to `limit` messages of one topic; topics take turns. Not settled by this."""
        for name in list(self._ready):
            taken = self._subscriber.prefetched.take(name, limit)
            del self._ready[name]
            if name in self._by_name:
                self._see(self._by_name[name])  # at the end of the line, if there is more
            if taken:
                return taken
        return []

    @property
    def ready(self) -> bool:
        """Whether there is something to hand out."""
        return bool(self._ready)

    def put_back(self) -> None:
        """What was taken and not settled did not take effect: pull again from the cursors."""
        for tuned in self._tuned.values():
            self._subscriber.prefetched.put_back(tuned.topic)
            self._see(tuned)

    def forget(self, topic: str) -> None:
        """The subscription ended, or is another one now: what is on its way is not wanted (G6)."""
        tuned = self._by_name.pop(topic, None)
        if tuned is not None:
            del self._tuned[tuned.topic_id]
            self._behind.pop(topic, None)
            self._ready.pop(topic, None)

    def leave(self) -> None:
        """Listen to nothing any more."""
        for topic in list(self._by_name):
            self.forget(topic)

    # Inside

    def _offer(self, tuned: ListenedTopic[M], stretch: MessageRun[M]) -> None:
        subscriber = self._subscriber
        if subscriber.cursors.subscription(tuned.topic) != tuned.subscription_id:
            return  # subscribed again since: the server will say so
        place = subscriber.prefetched.place(tuned.topic)
        if stretch.first + stretch.left <= place:
            self.overlaps += 1
        elif stretch.first > place:
            self.gaps += not tuned.early
            if tuned.early_bytes + stretch.size <= EARLY_BYTES:
                tuned.early.append(stretch)
                tuned.early_bytes += stretch.size
        elif subscriber.prefetched.held(tuned.topic)[1] < HELD_BYTES:
            self.overlaps += stretch.first < place
            subscriber.prefetched.pushed(stretch)

    def _see(self, tuned: ListenedTopic[M]) -> None:
        """Note whether a topic has something to hand out, and whether something is missing."""
        name, subscriber = tuned.topic, self._subscriber
        if subscriber.cursors.subscription(name) != tuned.subscription_id:
            return
        if subscriber.prefetched.held(name)[0]:
            self._ready[name] = None
        if subscriber.prefetched.place(name) < tuned.end:
            self._behind[name] = None
        else:
            self._behind.pop(name, None)

    def _has_room(self, name: str) -> bool:
        return self._subscriber.prefetched.held(name)[1] < HELD_BYTES // 2
