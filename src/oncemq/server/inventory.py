"""At the start: does the log hold what the state says is kept?

A segment that recovery did not have to read may be missing altogether; it would look like one
that compaction deleted. Law (G9): a topic with a hole is refused, not served with a gap.
"""

from collections.abc import Sequence
from typing import Protocol

from oncemq.core.names import Offset, TopicId
from oncemq.core.shard import Shard
from oncemq.core.stages import Stage
from oncemq.errors import Corrupt


class Extent(Protocol):
    """What one segment holds of a topic."""

    @property
    def first_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class Holdings(Protocol):
    """The part of the log that knows what it holds."""

    def extents(self, topic_id: TopicId) -> Sequence[Extent]: ...
    def staged_from(self, topic_id: TopicId, offset: int, stage_id: TopicId) -> int | None: ...


def check(shard: Shard, log: Holdings) -> None:
    """Raise Corrupt for the first topic whose kept messages are not all there."""
    for topic in shard.topics.values():
        missing = _hole(log, topic.id, topic.low, topic.end)
        if missing is not None:
            raise Corrupt(
                f"topic {topic.name!r} keeps offsets {topic.low} to {topic.end - 1}, but "
                f"{topic.name}@{missing} is in no segment: a file of the log is missing. Put it "
                "back from a backup, or run `once repair`"
            )
    for stage in shard.stages.by_id.values():
        missing = _hole(log, stage.id, stage.low(shard.low_of), stage.end)
        if missing is not None:  # the stage knows only a bound: ask the log what is needed
            missing = _hole(log, stage.id, _needed_from(shard, log, stage), stage.end)
        if missing is not None:
            names = [shard.name_of(topic_id) for topic_id in stage.shares] or ["none yet"]
            raise Corrupt(
                f"message {missing} of a stage is in no segment, but topics keep it (published "
                f"to: {', '.join(names[:5])}): a file of the log is missing. Put it back from a "
                "backup, or run `once repair`"
            )


def _hole(log: Holdings, topic_id: TopicId, low: Offset, end: Offset) -> int | None:
    """The first offset from `low` up to `end` that no segment holds."""
    offset = int(low)
    for extent in log.extents(topic_id) if low < end else ():
        if extent.first_offset <= offset < extent.end_offset:
            offset = extent.end_offset
    return offset if offset < end else None


def _needed_from(shard: Shard, log: Holdings, stage: Stage) -> Offset:
    """From where on a stage is really needed: what topics keep of it, what may be published."""
    lowest = int(stage.published if stage.is_open else stage.end)
    for topic_id, share in stage.shares.items():
        low = shard.low_of(topic_id)
        if low is not None and low < share.end:
            needed = log.staged_from(topic_id, low, stage.id)
            lowest = lowest if needed is None else min(lowest, needed)
    return Offset(lowest)
