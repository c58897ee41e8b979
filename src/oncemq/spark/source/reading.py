# pyright: basic
# pyarrow carries no types.
"""What a task does: read its ranges, every row of them and no other, and say so when it cannot."""

from collections.abc import Iterator

import pyarrow as pa

from oncemq.client.blocking.client import Client
from oncemq.client.verbs.columns import ColumnBatch, RangeLost
from oncemq.errors import NoSuchTopic, Refused
from oncemq.spark.columns.layout import Layout
from oncemq.spark.options.reader import SourceOptions
from oncemq.spark.runtime.connections import client
from oncemq.spark.source.data_loss import lost, no_longer_kept
from oncemq.spark.source.ranges import TaskRange, TopicRange


def read(options: SourceOptions, layout: Layout, task: TaskRange) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    mq = client(options.server, options.timeout)
    for stretch in task.stretches:
        yield from layout.rows(_batches(mq, stretch, fail=options.fail_on_data_loss))


def _batches(mq: Client, stretch: TopicRange, *, fail: bool) -> Iterator[ColumnBatch]:
    """Every batch of the stretch; what is missing of it is an error, or skipped when told to."""
    position = stretch.start
    while position < stretch.stop:
        try:
            for each in mq.read_columns(stretch.topic, position, stretch.stop):
                if each.topic_id != stretch.topic_id:
                    lost(f"topic {stretch.topic!r} was deleted and made again", fail=fail)
                    return
                yield each
                position = each.end_offset
            missing = position < stretch.stop
        except RangeLost as hole:
            lost(hole.detail, fail=fail)
            position = min(hole.end_offset, stretch.stop)
            continue
        except NoSuchTopic:
            lost(f"topic {stretch.topic!r} was deleted", fail=fail)
            return
        except Refused as refused:
            if refused.code != "offset_out_of_range":
                raise
            missing = True
        if missing:
            position = _after_gap(mq, stretch, position, fail=fail)


def _after_gap(mq: Client, stretch: TopicRange, position: int, *, fail: bool) -> int:
    """Where to go on after rows that are not there."""
    held = mq.ends([(stretch.topic, 0)])
    low, end = (held[0].low, held[0].end) if held else (0, 0)
    stop = min(low, stretch.stop) if position < low else stretch.stop
    lost(no_longer_kept(stretch.topic, position, stop, low=low, end=end), fail=fail)
    return stop
