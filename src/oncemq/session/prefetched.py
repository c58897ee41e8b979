"""Messages that came and were not handed out yet, in feeds: one of a topic, of several, or of any.

Laws: a feed holds consecutive messages from a cursor on, and hands them out once, in order (G3,
G4); feeds of one topic and of several exclude each other, since a message would be in two. What was
put back, or fetched for a place where its feed no longer ends, is dropped: the cursors are the
truth.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.protocol.patterns import is_pattern
from oncemq.session.cursors import Cursors, Delivered

M = TypeVar("M", bound=Delivered)

FETCH_MAX = 50_000


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


def several(topics: Iterable[str]) -> str:
    """The name of the feed of these topics: names have no line breaks in them."""
    return "\n".join(sorted(set(topics)))


def is_single(topic: str) -> bool:
    """Whether a feed's name is one topic's: not "any", not several, not a pattern's."""
    return bool(topic) and "\n" not in topic and not is_pattern(topic)


@dataclass(slots=True)
class PrefetchedMessages(Generic[M]):
    """What was fetched ahead for one topic, or for "any" (the empty name)."""

    stretches: deque[MessageRun[M]] = field(default_factory=deque[MessageRun[M]])
    ahead: Offset = Offset(-1)  # next offset to fetch; -1: from the cursor
    left: int = 0  # fetched and not yet taken
    size: int = 0  # the bytes of what is kept
    more: bool = False  # the server has more than was fetched
    fetch: int = 0  # how many to ask for: grows while there is more

    def add(self, stretch: MessageRun[M], start: Offset, *, single: bool) -> None:
        """Behind what the feed has; what is below `start` was there before."""
        if start > stretch.first:
            stretch.skip(min(start - stretch.first, stretch.left))
        if stretch.left:
            self.stretches.append(stretch)
            self.left += stretch.left
            self.size += stretch.size
            if single:
                self.ahead = Offset(stretch.first + stretch.left)

    def keep(self, stretches: Iterable[MessageRun[M]]) -> None:
        """Only these of what was fetched are still wanted."""
        self.stretches = deque(stretches)
        self.left = sum(stretch.left for stretch in self.stretches)
        self.size = sum(stretch.size for stretch in self.stretches)


class Prefetched(Generic[M]):
    """The feeds of one client, on top of its cursors."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._feeds: dict[str, PrefetchedMessages[M]] = {}
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

    # Fetching

    def want(self, topic: str, limit: int) -> int:
        """How many to fetch for a get of `limit`: as many, then growing while there is more."""
        feed = self.feed(topic)
        grown = min(feed.fetch * 4, FETCH_MAX) if feed.more else 0
        feed.fetch = max(limit, grown)
        self._asked[topic] = feed.ahead
        return feed.fetch

    def arrives(self, topic: str) -> PrefetchedMessages[M] | None:
        """The feed that the fetch under way is for; None when it was put back since.

        What comes then would leave a gap behind the cursor.
        """
        feed = self.feed(topic)
        asked = self._asked.pop(topic, Offset(-1))
        return feed if asked in (-1, feed.ahead) else None

    def unasked(self, topic: str) -> None:
        """The fetch under way brings nothing: it was refused, or nobody waits for it any more."""
        self._asked.pop(topic, None)

    def outdated(self, topic: str) -> bool:
        """Whether the fetch under way brings what the feed no longer wants."""
        return self._asked.get(topic, -1) not in (-1, self.feed(topic).ahead)

    def hungry(self, topic: str) -> bool:
        """Whether more should be fetched while what is there is worked on."""
        feed = self.feed(topic)
        return feed.more and is_single(topic) and feed.left <= feed.fetch // 2

    # Pushed messages

    def place(self, topic: str) -> Offset:
        """The next offset to come on a topic that has a cursor."""
        cursor, feed = self._cursors.get(topic), self._feeds.get(topic)
        assert cursor is not None, "who listens to a topic has a cursor on it"
        return cursor.next if feed is None else Offset(max(cursor.next, feed.ahead))

    def pushed(self, stretch: MessageRun[M]) -> None:
        """Messages came unasked; they go on where the feed of their topic ends, or overlap it."""
        place = self.place(stretch.topic)
        assert stretch.first <= place, "a gap is for the listener to see"
        self.feed(stretch.topic).add(stretch, place, single=True)

    # Handing out

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

    def drained(self, topic: str) -> bool:
        """Whether nothing fetched is left."""
        return not self.feed(topic).stretches

    def held(self, topic: str) -> tuple[int, int]:
        """How many messages of a topic are kept to be taken, and their bytes."""
        feed = self._feeds.get(topic)
        return (feed.left, feed.size) if feed else (0, 0)

    # Going back

    def put_back(self, topic: str) -> None:
        """What was taken did not take effect: fetch again from the cursors."""
        self.fetch_again(topic)
        cursor = self._cursors.get(topic)
        if cursor is not None:
            cursor.taken = Offset(0)

    def fetch_again(self, topic: str) -> None:
        """Nothing that was fetched is kept; what was taken may take effect yet."""
        self._feeds.pop(topic, None)

    def put_back_all(self) -> None:
        """Nothing that was taken and not settled took effect: fetch all of it again."""
        self._feeds.clear()

    def drop(self, topics: Container[str]) -> None:
        """Nothing of these is handed out any more; what others have come with stays."""
        self._feeds = {name: feed for name, feed in self._feeds.items() if name not in topics}
        for feed in self._feeds.values():
            feed.keep(each for each in feed.stretches if each.topic not in topics)
