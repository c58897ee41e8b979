"""What requests have in common."""

from typing import ClassVar

import msgspec

from oncemq.protocol.names import Offset, SubscriptionId


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One question. `opcode` is its number on the wire, for good."""

    opcode: ClassVar[int]


class Settled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything below `cursor` took effect at the subscriber."""

    topic: str
    subscription_id: SubscriptionId
    cursor: Offset
