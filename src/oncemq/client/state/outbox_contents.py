"""What one edition of an outbox holds: its records, replayed.

Law: the same records give the same batches under the same numbers, as the publisher had them in
memory when it wrote the last of them.
"""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from typing import assert_never

from msgspec.structs import replace

from oncemq.client.state.unsent import Unsent
from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.outbox_records import (
    OutboxBatch,
    OutboxDone,
    OutboxLane,
    OutboxLost,
    OutboxOpened,
    OutboxPut,
    OutboxResumed,
)
from oncemq.protocol.records import Marked
from oncemq.storage.disk import Buffer
from oncemq.storage.segments.framing import Frame

LaneKept = tuple[TopicId, Sequence, ProducerId]  # the topic, the next number, and whose
Batches = deque[tuple[int, Unsent]]  # each with the serial it was recorded under


class OutboxContents:
    """The batches without an answer, and where the producer's numbers go on."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self.producer: ProducerId | None = None  # None: the edition was never completed
        self.lanes: dict[str, LaneKept] = {}
        self._batches: dict[str, Batches] = {}
        for frame in frames:
            self.apply(frame)

    @property
    def pending(self) -> list[Unsent]:
        """In the order they were recorded."""
        pending = sorted(chain.from_iterable(self._batches.values()), key=itemgetter(0))
        return [batch for _, batch in pending]

    def add(self, serial: int, batch: Unsent) -> None:
        """A batch was recorded."""
        self._drop_answered(batch)
        self._of(batch.topic).append((serial, batch))
        self.lanes[batch.topic] = (batch.topic_id, batch.end, batch.producer)

    def apply(self, frame: Frame) -> None:
        """One record more, which holds, as its body does."""
        record = frame.outbox_record()
        match record:
            case OutboxLane():
                self.lanes[record.topic] = (record.topic_id, record.next_sequence, record.producer)
            case OutboxBatch() | OutboxPut():
                self.add(frame.serial, _unsent(record, frame.body))
            case OutboxLost():
                self.add(frame.serial, lost_batch(record))
            case OutboxDone():
                batches = self._of(record.topic)
                while batches and batches[0][1].first_sequence < record.next_sequence:
                    batches.popleft()
            case OutboxResumed():
                self._renumber(record)
            case OutboxOpened():
                self.producer = record.producer
            case Marked():
                pass
            case _:
                assert_never(record)

    def _of(self, topic: str) -> Batches:
        return self._batches.setdefault(topic, deque())

    def _drop_answered(self, batch: Unsent) -> None:
        """A number is given again only when whatever had it is answered: on a full disk, the
        answer was not noted."""
        batches = self._of(batch.topic)
        while batches and batches[-1][1].end > batch.first_sequence:
            batches.pop()

    def _renumber(self, record: OutboxResumed) -> None:
        sequence = record.first
        batches: Batches = deque()
        for serial, batch in self._of(record.topic):
            if batch.first_sequence in record.gone or _was_answered(batch, record):
                continue
            first = batch.first_sequence
            if first >= record.kept_below:
                first, sequence = sequence, Sequence(sequence + batch.count)
            renumbered = replace(batch, topic_id=record.topic_id, first_sequence=first)
            batches.append((serial, renumbered))
        self._batches[record.topic] = batches
        producer = self.lanes[record.topic][2]
        self.lanes[record.topic] = (record.topic_id, sequence, producer)


def _was_answered(batch: Unsent, record: OutboxResumed) -> bool:
    """Whether a batch that got no new number is not one that the server has, either.

    Its answer was not noted when the others were renumbered: the disk was full, or a kill came.
    """
    return batch.first_sequence < record.kept_below and batch.end > record.first


def lost_batch(record: OutboxBatch | OutboxLost) -> Unsent:
    """The place of a batch whose body is damaged."""
    return Unsent(
        record.topic, record.topic_id, record.first_sequence, record.count, 0, b"",
        lost=True, producer=record.producer,
    )  # fmt: skip


def _unsent(record: OutboxBatch | OutboxPut, body: Buffer | None) -> Unsent:
    if isinstance(record, OutboxPut):
        required, producer, body = False, ProducerId(b""), record.body
    else:
        required, producer = record.required, record.producer
    assert body is not None
    return Unsent(
        record.topic, record.topic_id, record.first_sequence, record.count, record.columns,
        bytes(body), required, producer=producer,
    )  # fmt: skip
