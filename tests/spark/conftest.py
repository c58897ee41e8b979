"""A server in process, a client of it, and readers as Spark would make them, without Spark."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import oncemq.spark
from oncemq import Client, testing
from oncemq.core.names import Offset
from oncemq.core.records import Retention
from oncemq.core.requests import Settled
from oncemq.spark.batch_reader import BatchReader
from oncemq.spark.options import source_options
from oncemq.spark.stream_reader import StreamReader

BRIEF = StructType(
    [
        StructField("topic", StringType()),
        StructField("offset", LongType()),
        StructField("value", BinaryType()),
    ]
)

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # The JVM is short-lived: quick to start matters more than quick at last.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

Rows = list[tuple[Any, ...]]


def rows_of(batches: Iterator[pa.RecordBatch]) -> Rows:
    """Every row as a tuple."""
    found: Rows = []
    for each in batches:
        each.validate(full=True)
        found += list(zip(*(column.to_pylist() for column in each.columns), strict=True))
    return found


def run_tasks(reader: Any, tasks: Sequence[Any]) -> Rows:
    """What Spark does with the partitions of a batch, one after the other."""
    return [row for task in tasks for row in rows_of(reader.read(task))]


def settle(mq: Client, topic: str, cursor: int) -> None:
    """Let this client's subscription be done with everything below `cursor`."""
    (mine,) = mq.subscriptions(topic, mq.id)
    mq.settle_below([Settled(topic, mine.subscription_id, Offset(cursor))])


@pytest.fixture
def address() -> Iterator[str]:
    with testing.server() as address:
        yield address


@pytest.fixture
def mq(address: str) -> Iterator[Client]:
    """A client; the server keeps everything put to `orders`."""
    with Client(address, timeout=20) as client:
        client.create_topic("orders", Retention(forever=True))
        yield client


@pytest.fixture
def read(address: str) -> Callable[..., Rows]:
    """`read(subscribe="orders")`: the rows of a batch read with these options."""

    def run(schema: StructType = BRIEF, **options: str) -> Rows:
        reader = BatchReader(
            source_options({"server": address, **options}, streaming=False), schema
        )
        return run_tasks(reader, reader.partitions())

    return run


@pytest.fixture
def stream(address: str) -> Iterator[Callable[..., StreamReader]]:
    """`stream(subscribe="orders")`: the reader of a streaming query with these options."""
    made: list[StreamReader] = []

    def make(schema: StructType = BRIEF, **options: str) -> StreamReader:
        given = {"server": address, "timeout": "20", **options}
        made.append(StreamReader(source_options(given, streaming=True), schema))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests that need one: its JVM takes seconds to start."""
    session = oncemq.spark.session("local[2,4]", app="oncemq-tests", config=CONFIG)
    session.sparkContext.setLogLevel("OFF")  # faults are what we are here for
    yield session
    session.stop()
