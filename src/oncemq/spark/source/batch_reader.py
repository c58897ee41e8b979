# pyright: basic
# pyarrow carries no types.
"""`spark.read`: what topics hold when the read is planned, cut into tasks."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncemq.spark.columns.layout import Layout
from oncemq.spark.options.reader import SourceOptions
from oncemq.spark.runtime.connections import client
from oncemq.spark.source import planning
from oncemq.spark.source.ranges import TaskRange, TopicRange, ranges
from oncemq.spark.source.reading import read


class BatchReader(DataSourceReader):
    """Plans on the driver; a copy of it reads in each task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._layout = Layout(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: ranges that stay what they are, whatever is put meanwhile."""
        options = self._options
        mq = client(options.server, options.timeout)
        topics = planning.held(mq, planning.names(mq, options))
        stretches: list[TopicRange] = []
        for name, topic in topics.items():
            start = planning.begin(mq, options, topic, keep=False)
            stop = planning.end(mq, options, topic)
            stretches.append(TopicRange(name, topic.topic_id, start, stop))
        return list(
            ranges(stretches, tasks_min=options.tasks_min, task_rows_max=options.task_rows_max)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, TaskRange)
        return read(self._options, self._layout, partition)
