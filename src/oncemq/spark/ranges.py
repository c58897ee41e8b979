"""The tasks of a read: each one range of one topic, the same bytes however often it is run."""

from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Stretch:
    """A part of a topic that one batch reads: offsets from `start` up to `stop`."""

    topic: str
    topic_id: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


class Range(InputPartition):
    """One task's part."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)
        self.stretch = stretch


def ranges(stretches: list[Stretch], *, tasks_min: int, task_rows_max: int) -> list[Range]:
    """Cut into tasks: at least `tasks_min` where there are rows enough, none over the limit.

    The ranges of a topic are in order, and so are their partition numbers: what a query does
    not shuffle stays in the order of the topic.
    """
    stretches = [each for each in stretches if each.rows > 0]
    if not stretches:
        return [Range(Stretch("", 0, 0, 0))]  # a batch has a task, and a sink hears of it
    total = sum(each.rows for each in stretches)
    found: list[Range] = []
    for each in stretches:
        parts = max(-(-each.rows * tasks_min // total), -(-each.rows // task_rows_max))
        parts = min(parts, each.rows)
        cuts = [each.start + each.rows * part // parts for part in range(parts + 1)]
        found += [
            Range(Stretch(each.topic, each.topic_id, start, stop)) for start, stop in pairwise(cuts)
        ]
    return found
