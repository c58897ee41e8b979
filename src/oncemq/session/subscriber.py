"""The subscriber's side of exactly-once: subscriptions as they begin, bring messages, and end.

Three nouns have the state: where the client stands (`cursors`), what came and was not handed out
(`prefetched`), and what the server knows of that (`told`). Here is what concerns them together.

Laws: nothing below a cursor is handed out again (G4); offsets are handed out in order and without
gap; what the server does not know to be settled is told with the next request; nothing of a
subscription that ended is handed out (G6).
"""

from collections.abc import Iterable, Sequence
from typing import Generic

from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.session.cursors import Cursor, Cursors, Moved
from oncemq.session.prefetched import M, MessageRun, Prefetched, PrefetchedMessages, is_single
from oncemq.session.told_cursors import ToldCursors


class Subscriber(Generic[M]):
    """Everything that one client is subscribed to."""

    def __init__(self, cursors: dict[str, tuple[SubscriptionId, Offset]] | None = None) -> None:
        self.cursors = Cursors(cursors)
        self.prefetched: Prefetched[M] = Prefetched(self.cursors)
        self.told = ToldCursors(self.cursors)
        self.patterns: dict[str, SubscriptionId] = {}  # subscribed by this start of the client
        self._changes = 0

    def next_change(self) -> int:
        """The number of a change to the subscriptions, so that a late copy of it is known."""
        self._changes += 1
        return self._changes

    # Subscriptions begin

    def subscribed(self, topic: str, subscription_id: SubscriptionId, cursor: Offset) -> None:
        """The server named the subscription; an unknown one begins where it says."""
        if not self.cursors.is_current(topic, subscription_id):
            self._begin(topic, subscription_id, cursor)
            self.prefetched.put_back_all()

    def heard(self, topic: str, subscription_id: SubscriptionId, cursor: Offset) -> None:
        """As `subscribed`, for one of many topics: what the others have come with stays."""
        if self.cursors.get(topic) is not None:
            self.subscribed(topic, subscription_id, cursor)
        else:
            self._begin(topic, subscription_id, cursor)

    def recall(self, cursors: dict[str, tuple[SubscriptionId, Offset]]) -> None:
        """Where this client stands, now that no older process of it can go on."""
        for topic, (subscription_id, cursor) in cursors.items():
            known = self.cursors.get(topic)
            if known is None or (known.subscription_id, known.next) < (subscription_id, cursor):
                self.cursors.begin(topic, subscription_id, cursor)
                self.told.knows_nothing(topic)
                self.prefetched.put_back_all()

    def _begin(self, topic: str, subscription_id: SubscriptionId, at: Offset) -> None:
        self.cursors.begin(topic, subscription_id, at)
        self.told.begins(topic, at)

    # Messages come, and are settled

    def came(self, topic: str, stretches: Sequence[MessageRun[M]], *, more: bool) -> None:
        """Messages came for this feed; what is below a cursor is dropped."""
        feed, single = self.prefetched.arrives(topic), is_single(topic)
        if feed is None:
            return
        feed.more = more
        for stretch in stretches:
            cursor = self.cursors.get(stretch.topic)
            if cursor is None or cursor.subscription_id != stretch.subscription_id:
                cursor = self._begins_anew(feed, stretch, single=single)
            start = max(cursor.next, feed.ahead) if single else cursor.next
            if start > stretch.first:
                self.told.gave(stretch.topic, stretch.first)
            feed.add(stretch, start, single=single)

    def _begins_anew(
        self, feed: PrefetchedMessages[M], stretch: MessageRun[M], *, single: bool
    ) -> Cursor:
        """The subscription is another one: places and messages of the one before mean nothing."""
        self.told.begins(stretch.topic, stretch.first)
        feed.keep(each for each in feed.stretches if each.topic != stretch.topic)
        if single:
            feed.ahead = Offset(-1)
        return self.cursors.begin(stretch.topic, stretch.subscription_id, stretch.first)

    def move(self, moved: Iterable[Moved]) -> None:
        """What `cursors.moves` said, and the disk knows, is so."""
        for topic, _, end in moved:
            cursor = self.cursors.get(topic)
            assert cursor is not None, "it was there when the move was made"
            cursor.next = end
            self.told.waiting[topic] = None

    def settle_one(self, message: M) -> None:
        """As `move`: a listener settles each of its messages alone, so this one is quick."""
        topic, offset = message.topic, message.offset
        cursor = self.cursors.get(topic)
        if cursor is not None and cursor.subscription_id == message.subscription_id:
            if cursor.next <= offset:
                cursor.next = Offset(offset + 1)
            self.told.waiting[topic] = None

    # Subscriptions end

    def forget(self, topic: str) -> None:
        """The subscription ended: nothing fetched for it is handed out any more (G6)."""
        self._end(topic)
        self.prefetched.put_back_all()

    def ended(self, topics: Iterable[str]) -> None:
        """As `forget`, for subscriptions that the server ended: what others have come with stays.

        Others may be in the middle of a get, whose messages must not come again.
        """
        gone = set(topics)
        for topic in gone:
            self._end(topic)
        self.prefetched.drop(gone)

    def _end(self, topic: str) -> None:
        self.cursors.end(topic)
        self.told.ended(topic)
