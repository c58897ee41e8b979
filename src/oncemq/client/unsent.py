"""A batch without an answer, as the outbox keeps it. Light to load: anonymous clients do, too."""

import msgspec

from oncemq.core.names import Sequence, TopicId
from oncemq.core.publisher import Parcel
from oncemq.core.step import Body
from oncemq.wire import batch


class Unsent(msgspec.Struct, frozen=True):
    """A batch, under the numbers that the disk has for it."""

    topic: str
    topic_id: TopicId
    first_sequence: Sequence
    count: int
    columns: int
    body: Body
    required: bool = False

    @property
    def end(self) -> Sequence:
        """The number after its last."""
        return Sequence(self.first_sequence + self.count)


def unsent(parcel: Parcel, topic_id: TopicId) -> Unsent:
    """What the outbox keeps of a parcel."""
    return Unsent(
        parcel.topic, topic_id, parcel.first_sequence, parcel.count, parcel.columns, parcel.body,
        parcel.required,
    )  # fmt: skip


def sign(parcel: Parcel) -> None:
    """The checksum covers whose it is and which numbers it has."""
    seed = batch.seed(parcel.topic, parcel.producer, parcel.first_sequence, parcel.count)
    parcel.checksum = batch.checksum(parcel.body, seed)
