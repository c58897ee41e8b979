# pyright: basic
# pyspark's plans are typed loosely.
"""Rows for which the query of a transform fails: found by halves, and left to the letters.

A division by zero, a cast, a function that raises: Spark fails the whole batch, and does not say
for which row. Where each row of the query is made of one message alone, the range of the batch is
halved until the messages are found for which the query fails even alone; then the batch is written
without them. Laws: only a fault of the data is one of a message, never a server that is away or a
worker that died; a query that fails for very many is itself wrong, and fails.
"""

import re
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from oncemq.spark.pipelines.failures import OURS, SparkFailed, failed
from oncemq.spark.pipelines.transforms.dead_letters import Letters, Raised, Ranges
from oncemq.spark.pipelines.transforms.definition import Definition
from oncemq.spark.pipelines.transforms.frames import messages, rows_of

MOST = 100  # messages of one batch
DATA_EXCEPTION = re.compile(r"SQLSTATE: 22\w{3}")
NODE = re.compile(r"^[ :+|-]*(\w+)", re.MULTILINE)
ROW_BY_ROW = {
    "EventTimeWatermark",
    "Filter",
    "Generate",
    "Project",
    "StreamingRelationV2",
    "SubqueryAlias",
    "View",
}


def is_row_by_row(written: DataFrame) -> bool:
    """Whether each row of a streaming query is made of one message alone."""
    frame: Any = written
    plan = frame._jdf.queryExecution().analyzed().treeString()
    return set(NODE.findall(plan)) <= ROW_BY_ROW


def is_of_the_data(error: Exception) -> bool:
    """Whether what a row holds made Spark fail: not what it met on its way."""
    text = str(error)  # has the words of its cause, too
    if OURS.search(text):
        return False
    return isinstance(error, PythonException) or DATA_EXCEPTION.search(text) is not None


class FaultyRows:
    """The rows of batches that failed, without those that made them fail."""

    def __init__(self, letters: Letters, definition: Definition) -> None:
        self._letters, self._definition = letters, definition
        (self._source,) = definition.sources.values()

    def sorted_out(self, spark: SparkSession, number: int) -> DataFrame:
        """The rows and the letters of a batch; the messages that it failed for among these."""
        ranges = self._letters.ranges(self._source, number)
        raised: list[tuple[Ranges, str]] = []
        for topic, (start, stop) in ranges.items():
            for offset, reason in self._found(spark, topic, start, stop):
                raised.append(({topic: (offset, offset + 1)}, reason))
                if len(raised) > MOST:
                    raise SparkFailed(
                        f"the query fails for more than {MOST} messages of one batch: it is not "
                        f"the messages that are at fault. The last was {topic}@{offset}: {reason}"
                    )
        return self._letters.beside(self._rows(spark, ranges, raised), number, raised)

    def _found(
        self, spark: SparkSession, topic: str, start: int, stop: int
    ) -> Iterator[tuple[int, str]]:
        """The offsets for which the query fails, and what it says."""
        try:
            rows = self._rows(spark, {topic: (start, stop)}, ())
            rows.write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            if not is_of_the_data(error):
                raise
            if stop - start == 1:
                yield start, failed(error).detail
                return
            half = (start + stop) // 2
            yield from self._found(spark, topic, start, half)
            yield from self._found(spark, topic, half, stop)

    def _rows(self, spark: SparkSession, ranges: Ranges, but: Raised) -> DataFrame:
        """What the query makes of these offsets, without some."""
        definition = self._definition
        raw = self._letters.read(spark, self._source, ranges)
        for place, _ in but:
            ((topic, (offset, _)),) = place.items()
            raw = raw.where((F.col("topic") != topic) | (F.col("offset") != offset))
        with rows_of(spark, definition, lambda _: raw) as found:
            return messages(found, definition.target)
