"""What the broker owes after one event: facts to store, and answers to give after them.

Law: a reply leaves only when the log is durable up to its `after`. The driver holds it
until then, and a server whose sync failed never sends it.
"""

from typing import NamedTuple

import msgspec

from oncemq.protocol.lost_ranges import LostRange
from oncemq.protocol.names import Offset, Serial, SubscriptionId, TopicId
from oncemq.protocol.records import Record
from oncemq.protocol.replies import Reply

Body = bytes | bytearray | memoryview


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Whom to answer: the route back, and the token of the request."""

    route: bytes
    token: int


class Span(NamedTuple):
    """Stored messages someone may have: from `start` up to, not including, `end`."""

    topic: str
    topic_id: TopicId
    subscription_id: SubscriptionId
    start: Offset
    end: Offset
    lost: LostRange | None = None  # right before `start`: who stands in it is to be told
    goes_on: bool = False  # behind `end` is a hole, and behind that is more


class Deliver(NamedTuple):
    """An answer whose messages the storage still has to give: one span, or the oldest of many."""

    spans: tuple[Span, ...]
    limit: int
    bytes_max: int
    whole: bool = False  # a batch over `bytes_max` goes uncut, alone


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A topic got longer for readers: its messages from `start` up to `end` are visible now."""

    topic_id: TopicId
    start: Offset
    end: Offset


class Write(msgspec.Struct, frozen=True, gc=False):
    """A fact to append, with the body beside it where it has one.

    `seed`: what the body's checksum starts from.
    """

    record: Record
    body: Body | None = None
    seed: int = 0


class Owed(msgspec.Struct, frozen=True, gc=False):
    """An answer, and the serial the log must be durable up to before it may leave."""

    caller: Caller
    answer: Reply | Deliver
    after: Serial = Serial(0)


class Step(msgspec.Struct):
    """The outcome of one event."""

    writes: list[Write] = []
    replies: list[Owed] = []
    shown: list[Shown] = []  # for the live feed, by a sync only
    refusals: int = 0  # of the replies
