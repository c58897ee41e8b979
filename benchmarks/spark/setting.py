"""What the sections of the benchmark share: the session, the servers, the rows."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.spark.bare import KEY_BYTES, SCHEMA, VALUE_BYTES
from benchmarks.spark.kafka import Kafka
from oncemq import Client
from oncemq.protocol.records import Retention

PUT_ROWS = 20_000  # at a time
PARTITIONS = 4  # of Kafka's topics that have several
STREAM_BATCHES = 5  # that a stream of all the rows is cut into


@dataclass(frozen=True)
class Setting:
    """One run."""

    spark: SparkSession
    server: str
    kafka: Kafka | None
    scratch: Path
    rows: int
    rounds: int
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self, name: str) -> str:
        """A name, or a directory's, that nobody had before."""
        return str(self.scratch / f"{name}-{next(self._numbers)}")

    def ours(self, tasks: int = 2, **options: str) -> DataFrame:
        """A batch read of our topic."""
        given = {"subscribe": "orders", "minPartitions": str(tasks), **options}
        source = self.spark.read.format("oncemq").options(server=self.server, **given)
        return source.schema(SCHEMA).load()

    def ready(self, tasks: int = 2) -> DataFrame:
        """A batch read of Arrow batches that are there already."""
        source = self.spark.read.format("ready").options(rows=self.rows, tasks=tasks)
        return source.load()

    @property
    def parquet(self) -> str:
        """Where the rows stand as Parquet."""
        return str(self.scratch / "parquet")

    @property
    def messages(self) -> DataFrame:
        """The rows as messages to be written."""
        return self.spark.read.parquet(self.parquet).select("key", "value")

    def run(self, stream: DataStreamWriter) -> float:
        """A stream from its beginning until all that is there is done.

        Says how many seconds the rows took in the micro-batches after the first one, which has
        to start what the others use; `small` tells what that costs.
        """
        stream = stream.option("checkpointLocation", self.fresh("checkpoint"))
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        full = self.rows // STREAM_BATCHES // 2  # Kafka rounds, and leaves a few rows to the end
        batches = [each for each in query.recentProgress if each.numInputRows > full][1:]
        took = sum(each.durationMs["triggerExecution"] for each in batches) / 1000
        return took * self.rows / sum(each.numInputRows for each in batches)


def into_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def fill(server: str, topic: str, rows: int) -> None:
    """A topic that keeps its messages, with this many."""
    with Client(server) as mq:
        mq.create_topic(topic, Retention(forever=True))
        payloads = [random.randbytes(VALUE_BYTES) for _ in range(min(rows, PUT_ROWS))]
        for first in range(0, rows, PUT_ROWS):
            count = min(PUT_ROWS, rows - first)
            keys = [b"%0*d" % (KEY_BYTES, n) for n in range(first, first + count)]
            mq.put_many(topic, payloads[:count], keys=keys, wait=False)
        mq.flush(300)
