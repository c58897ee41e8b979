"""Where a client stands on each topic: the next offset to get, and what was handed out.

Laws: a cursor moves only forward, and only on the subscription that it is of: the next one on the
topic has a cursor of its own. Messages of a subscription that ended move no cursor; what was taken
of them was taken all the same, and is told apart (`over`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.protocol.requests import Settled


class Delivered(Protocol):
    """What must be known of a message to settle it."""

    @property
    def topic(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def subscription_id(self) -> SubscriptionId: ...


Moved = tuple[str, SubscriptionId, Offset]  # topic, subscription, the next offset it gets


@dataclass(slots=True)
class Cursor:
    """Where this client stands on a topic."""

    subscription_id: SubscriptionId
    next: Offset  # to be handed out
    taken: Offset = Offset(0)  # behind what was handed out, and may take effect any time


class Cursors:
    """Those of one client, by topic."""

    def __init__(self, known: dict[str, tuple[SubscriptionId, Offset]] | None = None) -> None:
        self.by_topic = {topic: Cursor(*each) for topic, each in (known or {}).items()}

    def __len__(self) -> int:
        return len(self.by_topic)

    @property
    def topics(self) -> list[str]:
        """The topics this client has a cursor on."""
        return list(self.by_topic)

    def get(self, topic: str) -> Cursor | None:
        """The topic's, if there is one."""
        return self.by_topic.get(topic)

    def begin(self, topic: str, subscription_id: SubscriptionId, at: Offset) -> Cursor:
        """A subscription of which nothing is known here begins at this offset."""
        cursor = self.by_topic[topic] = Cursor(subscription_id, at)
        return cursor

    def end(self, topic: str) -> None:
        """The subscription is over."""
        self.by_topic.pop(topic, None)

    # Moving

    def moves(self, messages: Sequence[Delivered]) -> list[Moved]:
        """Where the cursors will stand once these have taken effect; nothing moves yet."""
        moved: list[Moved] = []
        for (topic, subscription_id), end in _ends(messages).items():
            cursor = self.by_topic.get(topic)
            if cursor is not None and cursor.subscription_id == subscription_id:
                # Else it ended while they were worked on; another one may have begun elsewhere.
                moved.append((topic, cursor.subscription_id, max(end, cursor.next)))
        return moved

    def over(self, messages: Sequence[Delivered]) -> list[Moved]:
        """The same of subscriptions that ended meanwhile: what was taken of them was taken."""
        places = _ends(messages).items()
        return [(*of, end) for of, end in places if of[1] and not self.is_current(*of)]

    # Questions

    def subscription(self, topic: str) -> SubscriptionId | None:
        """The subscription this client has on a topic, as far as it knows."""
        cursor = self.by_topic.get(topic)
        return cursor.subscription_id if cursor else None

    def is_current(self, topic: str, subscription_id: SubscriptionId) -> bool:
        """Whether this is the subscription that the client has on the topic."""
        cursor = self.by_topic.get(topic)
        return cursor is not None and cursor.subscription_id == subscription_id

    def has(self, message: Delivered) -> bool:
        """Whether the subscription that a message came for has not ended (G6)."""
        return self.is_current(message.topic, message.subscription_id)

    def before(self, topic: str, offset: Offset) -> bool:
        """Whether this client stands on a topic, and somewhere before an offset."""
        cursor = self.by_topic.get(topic)
        return cursor is not None and cursor.next < offset

    def reached(self, topic: str, subscription_id: SubscriptionId) -> Offset:
        """The next offset this client would hand out, as far as it knows the subscription."""
        known = self.is_current(topic, subscription_id)
        return self.by_topic[topic].next if known else Offset(0)

    def known_with(self, on_disk: dict[str, tuple[SubscriptionId, Offset]]) -> list[Settled]:
        """Everything this client knows of its topics: what was handed out, settled or not."""
        places = dict(on_disk)
        for topic, cursor in self.by_topic.items():
            whose, place = places.get(topic, (cursor.subscription_id, Offset(0)))
            if cursor.taken > place and whose == cursor.subscription_id:
                places[topic] = whose, cursor.taken
        return [Settled(topic, *place) for topic, place in sorted(places.items())]


def _ends(messages: Sequence[Delivered]) -> dict[tuple[str, SubscriptionId], Offset]:
    """Behind the last message of each subscription."""
    if not messages:
        return {}
    first, last = messages[0], messages[-1]
    one = first.topic == last.topic and first.subscription_id == last.subscription_id
    if one and last.offset - first.offset == len(messages) - 1:
        messages = (last,)  # offsets are dense: none is another topic's
    return {(each.topic, each.subscription_id): Offset(each.offset + 1) for each in messages}
