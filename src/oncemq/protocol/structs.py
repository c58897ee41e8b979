"""What requests, replies and records have in common: a number for their kind, for good.

Which kinds there are is said once, by the unions `Request` (protocol/requests), `Reply`
(protocol/replies), `Record` (protocol/records) and `OutboxRecord` (protocol/outbox_records). They
are closed: a `match` over one of them that forgets a kind does not pass the type checker.
"""

from typing import Annotated, ClassVar

import msgspec

from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    SubscriptionId,
)

# What a request may say in one field: beyond it, the request is refused as it is decoded, before
# memory is taken for it, and a refusal or a line in the log is made of it. What a name may have is
# less, and is said in words (`names.name_fault`).
TEXT_MAX = 1_000  # characters, or bytes
ENTRIES_MAX = 50_000  # of each list
FEW = msgspec.Meta(max_length=ENTRIES_MAX)
_SHORT = msgspec.Meta(max_length=TEXT_MAX)
Text = Annotated[str, _SHORT]
ShortBytes = Annotated[bytes, _SHORT]
ShortClientId = Annotated[ClientId, _SHORT]
ShortProducerId = Annotated[ProducerId, _SHORT]


class RequestStruct(msgspec.Struct, frozen=True, array_like=True):
    """One question. `opcode` is its number on the wire."""

    opcode: ClassVar[int]


class ReplyStruct(msgspec.Struct, frozen=True, array_like=True):
    """One answer. `opcode` is its number on the wire."""

    opcode: ClassVar[int]


class RecordStruct(msgspec.Struct, frozen=True, array_like=True):
    """One fact. `kind` is its number on disk."""

    kind: ClassVar[int]


class Settled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything below `cursor` took effect at the subscriber."""

    topic: Text
    subscription_id: SubscriptionId
    cursor: Offset


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive messages of one producer inside a batch. A put is one run."""

    count: int
    producer: ProducerId
    producer_epoch: Epoch  # of the client that put it; 0: the producer ends with its process
    first_sequence: Sequence
    timestamp: Micros
