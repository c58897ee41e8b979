"""Messages without bytes, as the subscriber's side of the core sees them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oncemq.protocol.names import Offset, SubscriptionId

ID = SubscriptionId(1)


class Note(NamedTuple):
    topic: str
    offset: int
    subscription_id: SubscriptionId = ID


@dataclass
class Batch:
    """Consecutive messages, as a reply or the feed brings them."""

    topic: str
    offsets: range
    subscription_id: SubscriptionId = ID
    taken: int = field(default=0)

    @property
    def first(self) -> Offset:
        return Offset(self.offsets.start + self.taken)

    @property
    def left(self) -> int:
        return len(self.offsets) - self.taken

    @property
    def size(self) -> int:
        return len(self.offsets)

    def skip(self, count: int) -> None:
        self.taken += count

    def take(self, count: int) -> list[Note]:
        start, self.taken = self.taken, self.taken + count
        offsets = self.offsets[start : self.taken]
        return [Note(self.topic, offset, self.subscription_id) for offset in offsets]
