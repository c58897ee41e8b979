"""The subscriber's side of exactly-once: cursors, what was fetched, what is settled.

Laws: nothing below a cursor is handed out again (G4); offsets are handed out in order and
without gap; what the server does not know to be settled is told with the next request.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar

from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.protocol.patterns import is_pattern
from oncemq.protocol.requests import Settled


class Delivered(Protocol):
    """What the subscriber must know of a message."""

    @property
    def topic(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def subscription_id(self) -> SubscriptionId: ...


M = TypeVar("M", bound=Delivered)


TOLD_MAX = 1_000  # cursors that one request names: a server takes no lists without end
NOTHING_TOLD = Offset(-1)


@dataclass(slots=True)
class Cursor:
    """Where this client stands on a topic."""

    subscription_id: SubscriptionId
    next: Offset  # to be handed out
    told: Offset = NOTHING_TOLD  # what the server has been told, and answered
    taken: Offset = Offset(0)  # behind what was handed out, and may take effect any time


class MessageRun(Protocol[M]):
    """Consecutive messages of one topic, as they came; made into messages when taken."""

    @property
    def topic(self) -> str: ...
    @property
    def subscription_id(self) -> SubscriptionId: ...
    @property
    def first(self) -> Offset: ...
    @property
    def left(self) -> int: ...
    @property
    def size(self) -> int: ...  # bytes it takes while it is kept
    def skip(self, count: int) -> None: ...
    def take(self, count: int) -> list[M]: ...


@dataclass(slots=True)
class PrefetchedMessages(Generic[M]):
    """What was fetched ahead for one topic, or for "any" (the empty name)."""

    stretches: deque[MessageRun[M]] = field(default_factory=deque[MessageRun[M]])
    ahead: Offset = Offset(-1)  # next offset to fetch; -1: from the cursor
    left: int = 0  # fetched and not yet taken
    size: int = 0  # the bytes of what is kept
    more: bool = False  # the server has more than was fetched
    fetch: int = 0  # how many to ask for: grows while there is more

    def keep(self, stretches: Iterable[MessageRun[M]]) -> None:
        """Only these of what was fetched are still wanted."""
        self.stretches = deque(stretches)
        self.left = sum(stretch.left for stretch in self.stretches)
        self.size = sum(stretch.size for stretch in self.stretches)


FETCH_MAX = 50_000


def several(topics: Iterable[str]) -> str:
    """The name of the feed of these topics: names have no line breaks in them."""
    return "\n".join(sorted(set(topics)))


def is_single(topic: str) -> bool:
    """Whether a feed's name is one topic's: not "any", not several, not a pattern's."""
    return bool(topic) and "\n" not in topic and not is_pattern(topic)


class Subscriber(Generic[M]):
    """All cursors and feeds of one client."""

    def __init__(self, cursors: dict[str, tuple[SubscriptionId, Offset]] | None = None) -> None:
        self._cursors = {
            topic: Cursor(subscription_id, cursor)
            for topic, (subscription_id, cursor) in (cursors or {}).items()
        }
        self._untold = dict.fromkeys(self._cursors)  # topics whose cursor the server may not know
        self._feeds: dict[str, PrefetchedMessages[M]] = {}
        self._changes = 0
        self.patterns: dict[str, SubscriptionId] = {}  # subscribed by this start of the client
        self._asked: dict[str, Offset] = {}  # from where the fetch under way of a topic goes

    def feed(self, topic: str) -> PrefetchedMessages[M]:
        """The feed a get reads from. Feeds of one topic and of several exclude each other."""
        feed = self._feeds.get(topic)
        if feed is None:
            # What was fetched the other way is fetched again: the cursors are the truth.
            kept = filter(is_single, self._feeds) if is_single(topic) else ()
            self._feeds = {key: self._feeds[key] for key in kept}
            feed = self._feeds[topic] = PrefetchedMessages()
        return feed

    def want(self, topic: str, limit: int) -> int:
        """How many to fetch for a get of `limit`: as many, then growing while there is more."""
        feed = self.feed(topic)
        grown = min(feed.fetch * 4, FETCH_MAX) if feed.more else 0
        feed.fetch = max(limit, grown)
        self._asked[topic] = feed.ahead
        return feed.fetch

    def came(self, topic: str, stretches: Sequence[MessageRun[M]], *, more: bool) -> None:
        """Messages came for this feed; what is below a cursor is dropped."""
        feed = self.feed(topic)
        asked = self._asked.pop(topic, Offset(-1))
        if asked not in (-1, feed.ahead):
            return  # the feed was put back since: these would leave a gap behind the cursor
        feed.more = more
        for stretch in stretches:
            cursor = self._cursors.get(stretch.topic)
            if cursor is None or cursor.subscription_id != stretch.subscription_id:
                cursor = Cursor(stretch.subscription_id, stretch.first, stretch.first)
                self._cursors[stretch.topic] = cursor
                self._begin_anew(feed, stretch.topic, single=is_single(topic))
            start = max(cursor.next, feed.ahead) if is_single(topic) else cursor.next
            if start > stretch.first and cursor.told > stretch.first:
                # It gives what it was told is settled: a crash took that. Say it again,
                # or it gives the same for good.
                cursor.told = stretch.first
                self._untold[stretch.topic] = None
            self._keep(feed, stretch, start, single=is_single(topic))

    def _begin_anew(self, feed: PrefetchedMessages[M], topic: str, *, single: bool) -> None:
        """The subscription is another one: places and messages of the one before mean nothing."""
        self._untold.pop(topic, None)
        feed.keep(stretch for stretch in feed.stretches if stretch.topic != topic)
        if single:
            feed.ahead = Offset(-1)

    def held(self, topic: str) -> tuple[int, int]:
        """How many messages of a topic are kept to be taken, and their bytes."""
        feed = self._feeds.get(topic)
        return (feed.left, feed.size) if feed else (0, 0)

    def place(self, topic: str) -> Offset:
        """The next offset to come on a topic that has a cursor."""
        feed = self._feeds.get(topic)
        next_ = self._cursors[topic].next
        return next_ if feed is None else Offset(max(next_, feed.ahead))

    def pushed(self, stretch: MessageRun[M]) -> None:
        """Messages came unasked; they go on where the feed of their topic ends, or overlap it."""
        place = self.place(stretch.topic)
        assert stretch.first <= place, "a gap is for the listener to see"
        self._keep(self.feed(stretch.topic), stretch, place, single=True)

    def _keep(
        self, feed: PrefetchedMessages[M], stretch: MessageRun[M], start: Offset, *, single: bool
    ) -> None:
        """Behind what the feed has; what is below `start` was there before."""
        if start > stretch.first:
            stretch.skip(min(start - stretch.first, stretch.left))
        if stretch.left:
            feed.stretches.append(stretch)
            feed.left += stretch.left
            feed.size += stretch.size
            if single:
                feed.ahead = Offset(stretch.first + stretch.left)

    def take(self, topic: str, limit: int) -> list[M]:
        """Up to `limit` fetched messages, oldest first; not settled by this."""
        feed = self.feed(topic)
        taken: list[M] = []
        while feed.stretches and len(taken) < limit:
            stretch = feed.stretches[0]
            before = stretch.left
            cursor = self._cursors.get(stretch.topic)
            if cursor is not None and cursor.next > stretch.first:
                # It came again while the first copy was worked on, which is settled since.
                stretch.skip(min(cursor.next - stretch.first, stretch.left))
            some = stretch.take(min(stretch.left, limit - len(taken)))
            taken = taken + some if taken else some
            if cursor is not None:
                cursor.taken = stretch.first
            feed.left -= before - stretch.left
            if not stretch.left:
                feed.stretches.popleft()
                feed.size -= stretch.size
        return taken

    def hungry(self, topic: str) -> bool:
        """Whether more should be fetched while what is there is worked on."""
        feed = self.feed(topic)
        return feed.more and is_single(topic) and feed.left <= feed.fetch // 2

    def moves(self, messages: list[M]) -> list[tuple[str, SubscriptionId, Offset]]:
        """Where the cursors will stand once these have taken effect; nothing moves yet."""
        moved: list[tuple[str, SubscriptionId, Offset]] = []
        for (topic, subscription_id), end in _ends(messages).items():
            cursor = self._cursors.get(topic)
            if cursor is not None and cursor.subscription_id == subscription_id:
                # Else it ended while they were worked on; another one may have begun elsewhere.
                moved.append((topic, cursor.subscription_id, max(end, cursor.next)))
        return moved

    def over(self, messages: list[M]) -> list[tuple[str, SubscriptionId, Offset]]:
        """The same of subscriptions that ended meanwhile: what was taken of them was taken."""
        places = _ends(messages).items()
        return [(*of, end) for of, end in places if of[1] and not self.is_current(*of)]

    def move(self, moved: list[tuple[str, SubscriptionId, Offset]]) -> None:
        """What `moves` said, and the disk knows, is so."""
        for topic, _, end in moved:
            self._cursors[topic].next = end
            self._untold[topic] = None

    def settle_one(self, message: M) -> None:
        """As `move`: a listener settles each of its messages alone, so this one is quick."""
        topic, offset = message.topic, message.offset
        cursor = self._cursors.get(topic)
        if cursor is not None and cursor.subscription_id == message.subscription_id:
            if cursor.next <= offset:
                cursor.next = Offset(offset + 1)
            self._untold[topic] = None

    def put_back(self, topic: str) -> None:
        """What was taken did not take effect: fetch again from the cursors."""
        self.fetch_again(topic)
        if topic in self._cursors:
            self._cursors[topic].taken = Offset(0)

    def fetch_again(self, topic: str) -> None:
        """Nothing that was fetched is kept; what was taken may take effect yet."""
        self._feeds.pop(topic, None)

    def unasked(self, topic: str) -> None:
        """The fetch under way brings nothing: it was refused, or nobody waits for it any more."""
        self._asked.pop(topic, None)

    def outdated(self, topic: str) -> bool:
        """Whether the fetch under way brings what the feed no longer wants."""
        return self._asked.get(topic, -1) not in (-1, self.feed(topic).ahead)

    def put_back_all(self) -> None:
        """Nothing that was taken and not settled took effect: fetch all of it again."""
        self._feeds.clear()

    def drained(self, topic: str) -> bool:
        """Whether nothing fetched is left."""
        return not self.feed(topic).stretches

    def untold(self) -> tuple[Settled, ...]:
        """What the server has not been told is settled: TOLD_MAX of it, where it is more."""
        untold = (
            Settled(topic, cursor.subscription_id, cursor.next)
            for topic in self._untold
            if (cursor := self._cursors[topic]).next > cursor.told
        )
        return tuple(islice(untold, TOLD_MAX))

    @property
    def has_much_untold(self) -> bool:
        """Whether one request cannot tell everything that is settled."""
        return len(self._untold) > TOLD_MAX

    def told(self, settled: tuple[Settled, ...]) -> None:
        """The server answered a request that said so."""
        for each in settled:
            cursor = self._cursors.get(each.topic)
            if cursor is not None and cursor.subscription_id == each.subscription_id:
                cursor.told = max(cursor.told, each.cursor)
                if cursor.told >= cursor.next:
                    self._untold.pop(each.topic, None)

    def tell_again(self) -> None:
        """The server may have been set back meanwhile: it hears of every cursor once more.

        One beyond its end is refused then, while it is: later the same offset is there again.
        """
        for topic, cursor in self._cursors.items():
            cursor.told = NOTHING_TOLD
            self._untold[topic] = None

    def known(self, moved: Iterable[tuple[str, SubscriptionId, Offset]]) -> None:
        """The server has these cursors, for it moved them itself."""
        self.told(tuple(Settled(*each) for each in moved))

    def recall(self, cursors: dict[str, tuple[SubscriptionId, Offset]]) -> None:
        """Where this client stands, now that no older process of it can go on."""
        for topic, (subscription_id, cursor) in cursors.items():
            known = self._cursors.get(topic)
            if known is None or (known.subscription_id, known.next) < (subscription_id, cursor):
                self._cursors[topic] = Cursor(subscription_id, cursor)
                self._untold[topic] = None
                self._feeds.clear()

    def reached(self, topic: str, subscription_id: SubscriptionId) -> Offset:
        """The next offset this client would hand out, as far as it knows the subscription."""
        known = self.is_current(topic, subscription_id)
        return self._cursors[topic].next if known else Offset(0)

    def known_with(self, on_disk: dict[str, tuple[SubscriptionId, Offset]]) -> list[Settled]:
        """Everything this client knows of its topics: what was handed out, settled or not."""
        places = dict(on_disk)
        for topic, cursor in self._cursors.items():
            whose, place = places.get(topic, (cursor.subscription_id, Offset(0)))
            if cursor.taken > place and whose == cursor.subscription_id:
                places[topic] = whose, cursor.taken
        return [Settled(topic, *place) for topic, place in sorted(places.items())]

    def before(self, topic: str, offset: Offset) -> bool:
        """Whether this client stands on a topic, and somewhere before an offset."""
        cursor = self._cursors.get(topic)
        return cursor is not None and cursor.next < offset

    def is_current(self, topic: str, subscription_id: SubscriptionId) -> bool:
        """Whether this is the subscription that the client has on the topic."""
        cursor = self._cursors.get(topic)
        return cursor is not None and cursor.subscription_id == subscription_id

    def has(self, message: M) -> bool:
        """Whether the subscription that a message came for has not ended (G6)."""
        return self.is_current(message.topic, message.subscription_id)

    def subscribed(self, topic: str, subscription_id: SubscriptionId, cursor: Offset) -> None:
        """The server named the subscription; an unknown one begins where it says."""
        known = self._cursors.get(topic)
        if known is None or known.subscription_id != subscription_id:
            self._cursors[topic] = Cursor(subscription_id, cursor, cursor)
            self._feeds.clear()

    def heard(self, topic: str, subscription_id: SubscriptionId, cursor: Offset) -> None:
        """As `subscribed`, for one of many topics: what the others have come with stays."""
        if topic in self._cursors:
            self.subscribed(topic, subscription_id, cursor)
        else:
            self._cursors[topic] = Cursor(subscription_id, cursor, cursor)

    def next_change(self) -> int:
        """The number of a change to the subscriptions, so that a late copy of it is known."""
        self._changes += 1
        return self._changes

    def forget(self, topic: str) -> None:
        """The subscription ended: nothing fetched for it is handed out any more (G6)."""
        self._cursors.pop(topic, None)
        self._untold.pop(topic, None)
        self._feeds.clear()

    def ended(self, topics: Iterable[str]) -> None:
        """As `forget`, for subscriptions that the server ended: what others have come with stays.

        Others may be in the middle of a get, whose messages must not come again.
        """
        gone = set(topics)
        for topic in gone:
            self._cursors.pop(topic, None)
            self._untold.pop(topic, None)
            self._feeds.pop(topic, None)
        for feed in self._feeds.values():
            feed.keep(stretch for stretch in feed.stretches if stretch.topic not in gone)

    def subscription(self, topic: str) -> SubscriptionId | None:
        """The subscription this client has on a topic, as far as it knows."""
        cursor = self._cursors.get(topic)
        return cursor.subscription_id if cursor else None

    def __len__(self) -> int:
        return len(self._cursors)

    @property
    def topics(self) -> list[str]:
        """The topics this client has a cursor on."""
        return list(self._cursors)


def _ends(messages: Sequence[Delivered]) -> dict[tuple[str, SubscriptionId], Offset]:
    """Behind the last message of each subscription."""
    if not messages:
        return {}
    first, last = messages[0], messages[-1]
    one = first.topic == last.topic and first.subscription_id == last.subscription_id
    if one and last.offset - first.offset == len(messages) - 1:
        messages = (last,)  # offsets are dense: none is another topic's
    return {(each.topic, each.subscription_id): Offset(each.offset + 1) for each in messages}
