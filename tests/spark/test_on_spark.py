"""The source on a real Spark, in process: the same rows, message by message."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import oncemq.spark
from oncemq import Client
from oncemq.protocol.records import Retention
from oncemq.spark.source.source import OnceMQDataSource
from tests.spark.copying import to_its_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def table(spark: SparkSession, address: str) -> Callable[..., DataFrame]:
    """`table(subscribe="orders")`: a batch read."""
    return lambda **options: (
        spark.read.format("oncemq").options(server=address, timeout="20", **options).load()
    )


@pytest.fixture
def streamed(spark: SparkSession, address: str) -> Callable[..., DataFrame]:
    """`streamed(subscribe="orders")`: a stream."""
    return lambda **options: (
        spark.readStream.format("oncemq").options(server=address, timeout="20", **options).load()
    )


def fill(mq: Client, count: int = 500) -> None:
    """Messages with and without keys and headers, in batches of several sizes."""
    numbers = range(count)
    mq.put_many("orders", [b"plain %d" % n for n in numbers])
    mq.put_many(
        "orders",
        [b"rich %d" % n for n in numbers],
        keys=[b"k%d" % (n % 5) if n % 3 else None for n in numbers],
        headers=[{"n": str(n % 4), "ä": "ö"} if n % 2 else None for n in numbers],
    )
    for n in range(10):
        mq.put("orders", b"single %d" % n, key=b"")


def expected(mq: Client) -> list[dict[str, Any]]:
    """What the client reads, as rows."""
    found: list[dict[str, Any]] = []
    while messages := mq.read("orders", len(found), limit=10_000):
        found += [
            {
                "key": each.key,
                "value": each.payload,
                "topic": each.topic,
                "offset": each.offset,
                "timestamp": each.timestamp,
                "headers": each.headers or None,
                "producer": each.producer,
                "sequence": each.sequence,
            }
            for each in messages
        ]
    return found


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    found = [row.asDict() for row in frame.collect()]
    for row in found:
        if row.get("timestamp") is not None:  # Spark gives local time without saying so
            row["timestamp"] = row["timestamp"].astimezone(UTC)
        for name in ("key", "value"):
            if isinstance(row.get(name), bytearray):
                row[name] = bytes(row[name])
    return found


def test_a_read_is_what_a_client_reads(mq: Client, table) -> None:
    fill(mq)
    frame = table(subscribe="orders", includeHeaders="true", minPartitions="3")
    assert frame.rdd.getNumPartitions() == 3
    assert rows(frame) == expected(mq)
    assert frame.where("offset >= 990").count() == 20
    assert frame.count() == 1010  # a frame that was filtered before is whole
    assert len(frame.limit(3).collect()) == 3


def test_a_source_that_spark_found_by_itself_is_not_registered_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[object] = []
    monkeypatch.setattr(type(spark.dataSource), "register", lambda _, what: registered.append(what))
    oncemq.spark.register(spark)
    assert registered == []  # Spark would warn of it
    monkeypatch.setattr(spark.sparkContext, "_python_includes", ["oncemq.zip"])  # was sent
    oncemq.spark.register(spark)
    assert registered == [OnceMQDataSource]


def test_a_schema_is_a_projection_and_sql_works(
    mq: Client, spark: SparkSession, address: str
) -> None:
    fill(mq, 20)
    reader = spark.read.format("oncemq").options(server=address, subscribe="orders")
    few = reader.schema("offset bigint, key binary").load()
    assert rows(few) == [{"offset": row["offset"], "key": row["key"]} for row in expected(mq)]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING oncemq OPTIONS "
        f"(server '{address}', subscribe 'orders', valueFormat 'string')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, max(value) AS last FROM orders").collect()
    assert (row.n, row.last) == (50, "single 9")


def test_json_values(mq: Client, table, spark: SparkSession, address: str) -> None:
    mq.put_many("orders", [b'{"item":"tea","price":{"cents":%d}}' % n for n in range(100)])
    mq.put("orders", b"oops")
    options = {
        "subscribe": "orders",
        "valueFormat": "json",
        "valueSchema": "item string, price struct<cents:int>, tags array<string>",
    }
    good = table(**options, endingOffsets='{"orders": 100}')
    (row,) = good.selectExpr("sum(value.price.cents) AS sum", "count(value.tags) AS tags").collect()
    assert (row.sum, row.tags) == (4950, 0)
    kept = table(**options, malformed="keep").where("value IS NULL")
    assert [(row.offset, bytes(row._corrupt)) for row in kept.collect()] == [(100, b"oops")]
    with pytest.raises(Exception, match="orders@100 does not fit"):
        table(**options).collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "orders", "startingOfsets": "latest"}, "did you mean startingOffsets"),
        ({"subscribe": "ordres"}, "unknown topic 'ordres'; this server has: orders"),
        ({"subscribe": "orders", "startingOffsets": '{"orders": 7}'}, "holds offsets 0 up to 0"),
    ],
)
def test_what_is_wrong_is_said_through_spark(mq: Client, table, options, said: str) -> None:
    with pytest.raises(AnalysisException) as refused:
        table(**options).collect()
    assert said in str(refused.value)


def collect_into(frame: DataFrame, checkpoint: Path, into: list[tuple[int, int, bytes]]):
    """A streaming query that gathers (batch, offset, value)."""

    def take(batch: DataFrame, number: int) -> None:
        into.extend((number, row.offset, bytes(row.value)) for row in batch.collect())

    return frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)


def test_a_stream_goes_on_where_its_checkpoint_says(mq: Client, streamed, tmp_path: Path) -> None:
    into: list[tuple[int, int, bytes]] = []

    def available() -> None:
        frame = streamed(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="40")
        writer = collect_into(frame, tmp_path / "check", into).trigger(availableNow=True)
        query = to_its_end(writer.start)
        (source,) = query.recentProgress[0]["sources"]
        assert json.loads(source["latestOffset"])["topics"]["orders"]["offset"] == end
        behind = [oncemq.spark.lag(each)["orders"] for each in query.recentProgress]
        assert (behind[0], behind[-1]) == ({100: 60, 130: 0}[end], 0)

    mq.put_many("orders", [b"%d" % n for n in range(100)])
    end = 100
    available()
    assert [offset for _, offset, _ in into] == list(range(100))
    assert {number for number, _, _ in into} == {0, 1, 2}
    (held,) = mq.subscriptions("orders")
    assert (held.client[:6], held.cursor) == ("spark-", 80)  # Spark commits one batch late
    mq.put_many("orders", [b"%d" % n for n in range(100, 130)])
    end = 130
    available()
    assert [value for _, _, value in into] == [b"%d" % n for n in range(130)]
    (again,) = mq.subscriptions("orders")
    assert (again.client, again.cursor) == (held.client, 100)


def test_a_changed_list_of_topics_holds_at_a_restart(mq: Client, streamed, tmp_path: Path) -> None:
    for topic in ("refunds", "returns"):
        mq.create_topic(topic, Retention(forever=True))
        mq.put_many(topic, [b"%s %d" % (topic.encode(), n) for n in range(2)])
    into: list[tuple[int, int, bytes]] = []

    def available(topics: str) -> None:
        frame = streamed(subscribe=topics, startingOffsets="earliest", subscription="lake")
        writer = collect_into(frame, tmp_path / "check", into).trigger(availableNow=True)
        to_its_end(writer.start)

    available("orders,refunds")
    mq.put("refunds", b"not read")
    available("orders,returns")
    assert [value for _, _, value in into[2:]] == [b"returns 0", b"returns 1"]
    held = {each.topic for each in mq.subscriptions(client="lake")}
    assert held == {"orders", "returns"}


def test_a_running_stream_from_latest_hears_at_once_and_costs_little(
    mq: Client, streamed, tmp_path: Path
) -> None:
    mq.put("orders", b"before")
    into: list[tuple[int, int, bytes]] = []
    query = collect_into(streamed(subscribe="orders"), tmp_path / "check", into).start()
    try:
        deadline = time.monotonic() + 60
        number = 0
        while len(into) < 5 and time.monotonic() < deadline:
            mq.put("orders", b"%d" % number)  # races the start of the query
            number += 1
            query.processAllAvailable()
        before, began = requests(mq), time.monotonic()
        time.sleep(1.5)  # what is measured is a rate
        rate = (requests(mq) - before - 1) / (time.monotonic() - began)
    finally:
        query.stop()
    assert [offset for _, offset, _ in into] == list(range(into[0][1], 1 + number))
    assert rate <= 5


def requests(mq: Client) -> int:
    return int(mq.status()["requests"])


def test_rows_that_are_gone_fail_the_query_by_their_range(
    mq: Client, streamed, tmp_path: Path
) -> None:
    mq.subscribe("events")
    mq.put_many("events", [b"x"] * 5)
    into: list[tuple[int, int, bytes]] = []
    options = {"subscribe": "events", "startingOffsets": "earliest", "subscription": "none"}

    def available():
        query = collect_into(streamed(**options), tmp_path / "check", into)
        return query.trigger(availableNow=True).start()

    to_its_end(available)
    mq.put_many("events", [b"x"] * 5)
    mq.unsubscribe("events")
    with pytest.raises(StreamingQueryException) as failed:
        to_its_end(available)
    assert "offsets 5 up to 10 of 'events' are no longer kept" in str(failed.value)
    assert len(into) == 5


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task that has no use for it: whether the reader is there."""
    there = "oncemq.spark.source.batch_reader" in sys.modules
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"there": [there]})


def test_a_worker_of_a_task_begins_with_its_imports_done(spark: SparkSession) -> None:
    frame = spark.range(0, 2, 1, 2).mapInArrow(imported, "there boolean")
    assert [row.there for row in frame.collect()] == [True, True]
