"""Checks at the start that the log holds what the state says is kept.

A segment that recovery did not have to read may be missing altogether; it would look like one
that compaction deleted. Laws (G9): a topic with a hole that nobody agreed to is refused, not
served with a gap. What a person agreed to (`once repair --accept-loss` wrote it into FORMAT), and
nothing else, becomes a fact of the log, and readers are told of it by name.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from oncemq.broker.state.shard import Shard
from oncemq.broker.state.stages import StagedMessages
from oncemq.errors import Corrupt
from oncemq.protocol.lost_ranges import Holes
from oncemq.protocol.names import Offset, TopicId
from oncemq.protocol.records import MessagesLost
from oncemq.storage.segments.layout import FormatHole


class HeldExtent(Protocol):
    """What one segment holds of a topic."""

    @property
    def first_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class Holdings(Protocol):
    """The part of the log that knows what it holds."""

    def extents(self, topic_id: TopicId) -> Sequence[HeldExtent]: ...
    def staged_from(self, topic_id: TopicId, offset: int) -> dict[int, int]: ...
    def gaps(self, topic_id: TopicId, low: int, end: int) -> Iterable[tuple[int, int]]: ...


class Missing(NamedTuple):
    """Messages that are kept, as the state says, and are in no segment."""

    record: MessagesLost
    topic: str  # for a stage: the topics that it was published to

    def __str__(self) -> str:
        first, end = self.record.first_offset, self.record.end_offset
        return f"{self.topic}@{first} up to @{end} ({end - first} messages)"


def take(shard: Shard, log: Holdings, *, agreed: Sequence[FormatHole]) -> list[Missing]:
    """What is to be noted as lost at this start; Corrupt when anything lacks beyond that."""
    if not agreed:
        check(shard, log)
        return []
    found = missing(shard, log)
    for each in found:
        offset = beyond(each.record, agreed)
        if offset is not None:
            raise Corrupt(
                f"{each} is in no segment, and nobody agreed to lose it from offset {offset} on: "
                "a file of the log is missing. Put it back from a backup, or run `once repair`"
            )
    return found


def beyond(lost: MessagesLost, agreed: Sequence[FormatHole]) -> int | None:
    """The first of these messages that is in none of the holes; None when all are."""
    offset: int = lost.first_offset
    for topic_id, first, end in sorted(agreed):
        if topic_id == lost.topic_id and first <= offset < end:
            offset = end
    return offset if offset < lost.end_offset else None


def check(shard: Shard, log: Holdings) -> None:
    """Raise Corrupt for the first topic whose kept messages are not all there.

    Whole segments only: to look for more would read every index at every start.
    """
    for topic in shard.topics.values():
        missing = _hole(log, topic.id, topic.low, topic.end, topic.lost)
        if missing is not None:
            raise Corrupt(
                f"topic {topic.name!r} keeps offsets {topic.low} to {topic.end - 1}, but "
                f"{topic.name}@{missing} is in no segment: a file of the log is missing. Put it "
                "back from a backup, or run `once repair`"
            )
    looked_up: dict[TopicId, dict[int, int]] = {}  # very many stages may have been copied before
    for stage in shard.stages.by_id.values():
        low = stage.low(shard.low_of)
        missing = _hole(log, stage.id, low, stage.end, stage.lost)
        if missing is not None:  # the stage knows only a bound: ask the log what is needed
            needed = _needed_from(shard, log, stage, looked_up)
            missing = _hole(log, stage.id, needed, stage.end, stage.lost)
        if missing is not None:
            raise Corrupt(
                f"message {missing} of a stage is in no segment, but topics keep it (published "
                f"to: {_published_to(shard, stage)}): a file of the log is missing. Put it back "
                "from a backup, or run `once repair`"
            )


def missing(shard: Shard, log: Holdings) -> list[Missing]:
    """Everything that is kept and in no segment, and not known to be lost: to the offset."""
    found: list[Missing] = []
    for topic in shard.topics.values():
        gaps = log.gaps(topic.id, topic.low, topic.end)
        found += [Missing(each, topic.name) for each in _unknown(topic.id, gaps, topic.lost)]
    looked_up: dict[TopicId, dict[int, int]] = {}
    for stage in shard.stages.by_id.values():
        gaps = log.gaps(stage.id, _needed_from(shard, log, stage, looked_up), stage.end)
        name = f"a stage published to {_published_to(shard, stage)}"
        found += [Missing(each, name) for each in _unknown(stage.id, gaps, stage.lost)]
    return found


def _unknown(
    topic_id: TopicId, gaps: Iterable[tuple[int, int]], lost: Holes
) -> Iterator[MessagesLost]:
    for first, end in gaps:
        known = lost.at(first)
        if known is None or known.end < end:
            yield MessagesLost(topic_id, Offset(first), Offset(end))


def _published_to(shard: Shard, stage: StagedMessages) -> str:
    names = [shard.name_of(topic_id) for topic_id in stage.shares] or ["no topic yet"]
    return ", ".join(names[:5])


def _hole(log: Holdings, topic_id: TopicId, low: Offset, end: Offset, lost: Holes) -> int | None:
    """The first offset from `low` up to `end` that no segment holds and that is not known lost."""
    offset = lost.over(low)
    for extent in log.extents(topic_id) if offset < end else ():
        if extent.first_offset <= offset < extent.end_offset:
            offset = lost.over(Offset(extent.end_offset))
    return offset if offset < end else None


def _needed_from(
    shard: Shard, log: Holdings, stage: StagedMessages, looked_up: dict[TopicId, dict[int, int]]
) -> Offset:
    """From where on a stage is really needed: what topics keep of it, what may be published."""
    lowest = int(stage.published if stage.is_open else stage.end)
    for topic_id, share in stage.shares.items():
        low = shard.low_of(topic_id)
        if low is not None and low < share.end:
            if topic_id not in looked_up:
                looked_up[topic_id] = log.staged_from(topic_id, low)
            lowest = min(lowest, looked_up[topic_id].get(stage.id, lowest))
    return Offset(lowest)
