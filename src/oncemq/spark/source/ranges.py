"""The tasks of a read: each has ranges of topics, the same bytes however often it is run."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

# A task costs Spark some ten milliseconds. Where there are many topics with few rows, a task reads
# several of them: no more rows than these, and no more than a sixteenth of all.
JOINED_ROWS = 50_000
JOINED_SHARE = 16


@dataclass(frozen=True)
class TopicRange:
    """A part of a topic that one batch reads: offsets from `start` up to `stop`."""

    topic: str
    topic_id: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


class TaskRange(InputPartition):
    """One task's part: of one topic, or of several that have few rows each."""

    def __init__(self, *stretches: TopicRange) -> None:
        super().__init__(stretches)
        self.stretches = stretches


def ranges(stretches: list[TopicRange], *, tasks_min: int, task_rows_max: int) -> list[TaskRange]:
    """The tasks: at least `tasks_min` where there are rows enough, none over the limit.

    The ranges of a topic are in order, and so are their partition numbers: what a query does
    not shuffle stays in the order of the topic.
    """
    found = cut(stretches, tasks_min=tasks_min, task_rows_max=task_rows_max)
    if not found:
        return [TaskRange()]  # a batch has a task, and a sink hears of it
    total = sum(each.rows for each in found)
    rows_max = min(JOINED_ROWS, task_rows_max, total // max(tasks_min, JOINED_SHARE))
    return list(_joined(found, rows_max))


def cut(stretches: list[TopicRange], *, tasks_min: int, task_rows_max: int) -> list[TopicRange]:
    """The rows that there are, in at least so many parts, none over the limit."""
    stretches = [each for each in stretches if each.rows > 0]
    total = sum(each.rows for each in stretches)
    found: list[TopicRange] = []
    for each in stretches:
        parts = max(-(-each.rows * tasks_min // total), -(-each.rows // task_rows_max))
        parts = min(parts, each.rows)
        cuts = [each.start + each.rows * part // parts for part in range(parts + 1)]
        found += [
            TopicRange(each.topic, each.topic_id, start, stop) for start, stop in pairwise(cuts)
        ]
    return found


def _joined(stretches: list[TopicRange], rows_max: int) -> Iterator[TaskRange]:
    """Neighbours in one task as long as it has no more rows than this."""
    together: list[TopicRange] = []
    rows = 0
    for each in stretches:
        if together and rows + each.rows > rows_max:
            yield TaskRange(*together)
            together, rows = [], 0
        together.append(each)
        rows += each.rows
    yield TaskRange(*together)
