"""A batch without an answer, as the outbox keeps it. Light to load: anonymous clients do, too."""

import zlib

import msgspec

from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.step import Body
from oncemq.session.publisher import DAMAGED, PutBatch
from oncemq.wire import batch

LOST = RefusedReply(
    DAMAGED,
    "this put was damaged on the disk of the client that made it, before the server had it: it is "
    "lost, as a person agreed (`once client repair`)",
)


FRAME_BYTES = 100  # of a record beside its body, about


class Unsent(msgspec.Struct, frozen=True):
    """A batch, under the numbers that the disk has for it."""

    topic: str
    topic_id: TopicId
    first_sequence: Sequence
    count: int
    columns: int
    body: Body
    required: bool = False
    lost: bool = False  # its body was damaged on the client's disk
    producer: ProducerId = ProducerId(b"")  # none: the one that the outbox was opened with

    @property
    def size(self) -> int:
        """The bytes that its record takes, about."""
        return len(self.body) + len(self.topic) + FRAME_BYTES

    @property
    def end(self) -> Sequence:
        """The number after its last."""
        return Sequence(self.first_sequence + self.count)


def unsent(parcel: PutBatch, topic_id: TopicId) -> Unsent:
    """What the outbox keeps of a parcel."""
    return Unsent(
        parcel.topic, topic_id, parcel.first_sequence, parcel.count, parcel.columns, parcel.body,
        parcel.required, parcel.refusal == LOST, parcel.producer,
    )  # fmt: skip


def sign(parcel: PutBatch) -> None:
    """The checksum covers whose it is and which numbers it has."""
    seed = batch.seed(parcel.topic, parcel.producer, parcel.first_sequence, parcel.count)
    parcel.checksum = zlib.crc32(parcel.body, seed)


def parcel_of(put: Unsent, producer: ProducerId) -> PutBatch:
    """What an earlier start left: it may have reached the server."""
    parcel = PutBatch(
        put.topic, producer, True, put.count, put.columns, put.body, put.first_sequence,
        tried=True, required=put.required, refusal=LOST if put.lost else None,
    )  # fmt: skip
    sign(parcel)
    return parcel
