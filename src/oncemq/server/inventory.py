"""At the start: does the log hold what the state says is kept?

A segment that recovery did not have to read may be missing altogether; it would look like one
that compaction deleted. Law (G9): a topic with a hole is refused, not served with a gap.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from oncemq.core.names import TopicId
from oncemq.core.topic import Topic
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


def check(topics: Iterable[Topic], log: Holdings) -> None:
    """Raise Corrupt for the first topic whose kept messages are not all there."""
    for topic in topics:
        offset = int(topic.low)
        for extent in log.extents(topic.id):
            if extent.first_offset <= offset < extent.end_offset:
                offset = extent.end_offset
        if offset < topic.end:
            raise Corrupt(
                f"topic {topic.name!r} keeps offsets {topic.low} to {topic.end - 1}, but "
                f"{topic.name}@{offset} is in no segment: a file of the log is missing. Put it "
                "back from a backup, or run `once repair`"
            )
