"""A topic copied to another by Spark, from a checkpoint on: the query that all faults happen to.

Light to import: drivers that are killed start a hundred times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.faults import faulty

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.authenticate.socketTimeout": "180s",  # a busy machine
    # Quick to start matters more than quick at last.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
PER_BATCH = 20  # rows of a micro-batch
TOO_SLOW = "Python worker failed to connect back"  # Spark gives it ten seconds, whatever is set


@dataclass(frozen=True)
class Given:
    """What a driver must know of a lane."""

    address: str
    name: str
    check: str
    marks: str
    plan: dict[int, str]

    @property
    def target(self) -> str:
        return f"{self.name}-copy"


def start_copying(spark: SparkSession, given: Given, *, available: bool = True) -> StreamingQuery:
    """Copy a lane, from its checkpoint on: what there is now, or for ever."""
    sink = "oncemq"
    if given.plan:
        sink = given.name
        spark.dataSource.register(faulty(sink, given.plan, Path(given.marks)))
    writer = (
        spark.readStream.format("oncemq")
        .options(server=given.address, subscribe=given.name, startingOffsets="earliest")
        .options(minPartitions="2", maxOffsetsPerTrigger=str(PER_BATCH))
        .load()
        .select("key", "value")
        .writeStream.format(sink)
        .options(server=given.address, topic=given.target, checkpointLocation=given.check)
    )
    return (writer.trigger(availableNow=True) if available else writer).start()


def copy_all(spark: SparkSession, given: Given) -> None:
    """Copy what there is now."""
    to_its_end(lambda: start_copying(spark, given))


def to_its_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has ended. On a very busy machine it may need more than one start."""
    while True:
        query = start()
        try:
            query.awaitTermination()
            return query
        except PySparkException as error:
            if TOO_SLOW not in str(error):
                raise
