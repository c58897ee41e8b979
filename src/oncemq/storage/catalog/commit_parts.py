"""Messages that a topic got by a commit: from where they lie, in a stage, to what a reader gets.

Law: the stage's batch is verified before anything is cut out of it; the slice then counts as the
topic's own, and whoever gives it on computes its checksum anew.
"""

from collections import OrderedDict
from typing import NamedTuple

from oncemq.protocol.names import Offset, Sequence, TopicId
from oncemq.protocol.records import Committed, MessagesStored, PartKept, Record, Run
from oncemq.protocol.replies import NO_OFFSET
from oncemq.wire import batch

COMMITS_KEPT = 8

Parts = dict[tuple[int, int], PartKept]  # by topic and first offset


class DecodedCommits:
    """The last commits that were read: one with very many parts is decoded once, not for each."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Parts] = OrderedDict()

    def get(self, path: str, position: int) -> Parts | None:
        """The parts of the commit that lies there, if it was read a moment ago."""
        return self._kept.get((path, position))

    def keep(self, path: str, position: int, parts: Parts) -> None:
        """Remember it, instead of the one kept longest."""
        self._kept[path, position] = parts
        if len(self._kept) > COMMITS_KEPT:
            self._kept.popitem(last=False)


class StoredBatch(NamedTuple):
    """A batch as it was stored: the record, what its checksum starts from, the body.

    `published`: cut out of a stage, and verified; the record has no checksum yet.
    """

    record: MessagesStored
    seed: int
    body: bytes
    published: bool = False


def parts_of(record: Record) -> Parts:
    """All that a commit (or a part that stands alone) gave to topics."""
    found = [record] if isinstance(record, PartKept) else []
    if isinstance(record, Committed):
        given = (part for part in record.parts if part.first_offset != NO_OFFSET)
        found = [PartKept.of(record, part) for part in given]
    return {(part.topic_id, part.first_offset): part for part in found}


def published(part: PartKept, staged: StoredBatch, *, start: int, stop: int) -> StoredBatch:
    """Messages `start` to `stop` of a stage, out of one of its batches, as the part's topic's."""
    record, body = staged.record, staged.body
    first, last = start - record.first_offset, stop - record.first_offset
    if (first, last) != (0, record.count):
        body = batch.cut(body, record.count, record.columns, start=first, stop=last)
    before = start - part.stage_offset
    run = Run(
        stop - start,
        part.run.producer,
        part.run.producer_epoch,
        Sequence(part.run.first_sequence + before),
        part.run.timestamp,
    )
    made = MessagesStored(
        TopicId(part.topic_id),
        Offset(part.first_offset + before),
        run.count,
        record.columns,
        0,
        (run,),
    )
    return StoredBatch(made, 0, body, published=True)
