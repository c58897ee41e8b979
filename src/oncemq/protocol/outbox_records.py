"""The facts in a client's outbox: puts on their way, and where a producer's numbers go on."""

from typing import get_args

from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.structs import RecordStruct


class OutboxLane(RecordStruct, frozen=True, array_like=True):
    """In a client's outbox: where a producer's numbers on a topic go on."""

    kind = 64
    topic: str
    topic_id: TopicId
    next_sequence: Sequence
    producer: ProducerId = ProducerId(b"")  # none: the one of `OutboxOpened`


class OutboxPut(RecordStruct, frozen=True, array_like=True):
    """As `OutboxBatch`, with the body inside the record. Read, and not written any more."""

    kind = 65
    topic: str
    topic_id: TopicId
    first_sequence: Sequence
    count: int
    columns: int
    checksum: int
    body: bytes


class OutboxDone(RecordStruct, frozen=True, array_like=True):
    """In a client's outbox: everything below `next_sequence` has its receipt or its refusal."""

    kind = 66
    topic: str
    next_sequence: Sequence


class OutboxOpened(RecordStruct, frozen=True, array_like=True):
    """In a client's outbox: who numbers puts to topics that it has nothing of.

    Before it, a copy was under way.
    """

    kind = 67
    producer: ProducerId


class OutboxBatch(RecordStruct, frozen=True, array_like=True):
    """In a client's outbox: a batch that must reach the server, once. Its body lies beside it."""

    kind = 68
    topic: str
    topic_id: TopicId
    first_sequence: Sequence
    count: int
    columns: int
    required: bool = False
    producer: ProducerId = ProducerId(b"")  # none: the one of `OutboxOpened`


class OutboxLost(RecordStruct, frozen=True, array_like=True):
    """In a client's outbox: a batch that was damaged. Its numbers were given, and perhaps used.

    So the server is asked whether it has it; if not, it is refused, and those behind it move up.
    """

    kind = 70
    topic: str
    topic_id: TopicId
    first_sequence: Sequence
    count: int
    producer: ProducerId = ProducerId(b"")  # none: the one of `OutboxOpened`


class OutboxResumed(RecordStruct, frozen=True, array_like=True):
    """In a client's outbox: how its batches for a topic are numbered from here on.

    Those in `gone` (by their first number so far) were refused. Of the others, those with a
    number below `kept_below` keep it, the rest is numbered from `first` on, in their order.
    """

    kind = 69
    topic: str
    topic_id: TopicId
    kept_below: Sequence
    first: Sequence
    gone: tuple[Sequence, ...]


OutboxRecord = (
    OutboxLane | OutboxPut | OutboxDone | OutboxOpened | OutboxBatch | OutboxResumed | OutboxLost
)
OUTBOX_RECORDS: dict[int, type[OutboxRecord]] = {
    record.kind: record for record in get_args(OutboxRecord)
}
