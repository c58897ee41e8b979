"""The facts about stages and commits: what is hidden, what became visible together, and whose.

Law: a commit is one record. What must be known with it is a field of a kind of its own, a subclass,
never a second record that a crash could part from it.
"""

import msgspec

from oncemq.protocol.names import (
    ANONYMOUS_EPOCH,
    ClientId,
    Epoch,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    TopicId,
    owner_producer,
)
from oncemq.protocol.structs import RecordStruct, Run


class StageMade(RecordStruct, frozen=True, array_like=True):
    """A stage began: a hidden topic whose batches are `MessagesStaged` under its id."""

    kind = 16
    stage_id: TopicId
    name: ProducerId
    timestamp: Micros


class StageDropped(RecordStruct, frozen=True, array_like=True):
    """Nothing more of a stage will be published: given up, or silent for long enough."""

    kind = 17
    stage_id: TopicId


class StagesEnded(RecordStruct, frozen=True, array_like=True):
    """Closed stages whose messages now lie in their topics, where compaction copied them."""

    kind = 43
    stage_ids: tuple[TopicId, ...]


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages a topic got by a commit: `count` from `stage_offset` of a stage on.

    `first_offset` is -1 when nobody wanted them: the numbers advance, the messages are not kept.
    """

    topic_id: TopicId
    first_offset: Offset
    count: int
    first_sequence: Sequence  # of the owner on the topic
    stage_id: TopicId
    stage_offset: Offset
    message_bytes: int  # about


class Settlement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cursor that a commit moved."""

    topic_id: TopicId
    client: ClientId
    cursor: Offset


class Committed(RecordStruct, frozen=True, array_like=True):
    """All of it or nothing: topics get their parts, cursors move, the owner's number is used."""

    kind = 18
    owner: str
    number: int
    lasting: bool
    timestamp: Micros
    parts: tuple[Part, ...]
    cursors: tuple[Settlement, ...]
    closing: bool  # nothing more of the stages named will be published

    def run(self, part: Part) -> Run:
        """How a topic's readers see a part: as messages that the owner put."""
        epoch = Epoch(1) if self.lasting else ANONYMOUS_EPOCH
        producer = owner_producer(self.owner)
        return Run(part.count, producer, epoch, part.first_sequence, self.timestamp)


class ContentsCommitted(Committed, frozen=True, array_like=True):
    """A commit that says what its messages are: a repeat with others is then told from one."""

    kind = 41
    contents: int  # an order-independent sum over all its messages; see `wire.contents`


class PartKept(RecordStruct, frozen=True, array_like=True):
    """In a cold segment: a part of a commit whose own record was let go."""

    kind = 19
    topic_id: TopicId
    first_offset: Offset
    count: int
    stage_id: TopicId
    stage_offset: Offset
    message_bytes: int
    run: Run

    @classmethod
    def of(cls, commit: Committed, part: Part) -> "PartKept":
        """One part of a commit, standing alone."""
        return cls(
            part.topic_id,
            part.first_offset,
            part.count,
            part.stage_id,
            part.stage_offset,
            part.message_bytes,
            commit.run(part),
        )


class OwnersForgotten(RecordStruct, frozen=True, array_like=True):
    """Owners that ended with their process and were silent for long enough."""

    kind = 20
    owners: tuple[str, ...]


class OwnerBound(RecordStruct, frozen=True, array_like=True):
    """An owner's numbers belong to this bond from now on: nobody else commits under its name."""

    kind = 28
    owner: str
    bond: str
    timestamp: Micros


class OwnerBoundAlone(OwnerBound, frozen=True, array_like=True):
    """The bond is this owner's alone: no other owner commits under it."""

    kind = 42
