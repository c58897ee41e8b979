"""A server in process, a client of it, and readers as Spark would make them, without Spark."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import oncemq.spark
from oncemq import Client, testing
from oncemq.protocol.names import Offset
from oncemq.protocol.records import Retention
from oncemq.protocol.requests import Settled
from oncemq.spark.options.reader import source_options
from oncemq.spark.source.batch_reader import BatchReader
from oncemq.spark.source.stream_reader import StreamReader
from tests.spark.copying import CONFIG, to_its_end
from tests.spark.quick_spark import quick_spark

BRIEF = StructType(
    [
        StructField("topic", StringType()),
        StructField("offset", LongType()),
        StructField("value", BinaryType()),
    ]
)

ROWS, PER_BATCH = 120, 40  # of the topic to be copied, and of a micro-batch

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
    os.environ.update(quick_spark())
    session = oncemq.spark.session("local[2,4]", app="oncemq-tests", config=CONFIG)
    session.sparkContext.setLogLevel("OFF")  # faults are what we are here for
    yield session
    session.stop()


def copy_orders(
    spark: SparkSession, address: str, check: Path, sink: str = "oncemq", **options: str
) -> None:
    """Copy what there is of `orders` into `copy`, by a streaming query; the keys with it."""
    reading = {"subscribe": "orders", "startingOffsets": "earliest", "minPartitions": "2"}
    writer = (
        spark.readStream.format("oncemq")
        .options(server=address, maxOffsetsPerTrigger=str(PER_BATCH), **reading)
        .load()
        .select("key", "value")
        .writeStream.format(sink)
        .options(server=address, topic="copy", checkpointLocation=str(check), **options)
        .trigger(availableNow=True)
    )
    to_its_end(writer.start)


@pytest.fixture
def copy(spark: SparkSession, address: str, tmp_path: Path) -> Callable[..., None]:
    """`copy()`: copy what there is, from the checkpoint on."""

    def run(sink: str = "oncemq", check: str = "check", **options: str) -> None:
        copy_orders(spark, address, tmp_path / check, sink, **options)

    return run


def fill_orders(mq: Client) -> list[tuple[bytes | None, bytes]]:
    """Messages to be copied, in batches that do not fit the micro-batches."""
    mq.create_topic("orders", Retention(forever=True))
    mq.create_topic("copy", Retention(forever=True))
    wanted = [(b"k%d" % (n % 3), b"%d" % n) for n in range(ROWS)]
    for first in range(0, ROWS, 17):
        part = wanted[first : first + 17]
        mq.put_many("orders", [value for _, value in part], keys=[key for key, _ in part])
    return list(wanted)


@pytest.fixture
def orders(mq: Client) -> list[tuple[bytes | None, bytes]]:
    return fill_orders(mq)


def copied(mq: Client, topic: str = "copy") -> list[tuple[bytes | None, bytes]]:
    return [(each.key, each.payload) for each in mq.read(topic, 0, limit=10_000)]
