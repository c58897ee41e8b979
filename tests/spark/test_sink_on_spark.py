"""The sink on a real Spark: exactly once, whatever fails, compared message by message."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.chains import between_queries, in_a_query
from tests.spark.conftest import copied
from tests.spark.lanes import Rig

from oncemq import Client
from oncemq.core.records import Retention
from oncemq.testing import proof

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_stream_is_copied_once_and_in_order(mq: Client, orders, copy) -> None:
    copy()
    assert copied(mq) == orders
    mq.put("orders", b"more", key=b"k")
    copy()
    assert copied(mq) == [*orders, (b"k", b"more")]


def test_tasks_commits_and_the_server_fail_in_the_middle(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Rig(tmp_path) as rig, proof.campaign("spark-queries") as tally:
        in_a_query(spark, rig, tally, runs=1)


def test_a_query_goes_on_from_its_checkpoint_or_says_why_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Rig(tmp_path) as rig, proof.campaign("spark-checkpoints") as tally:
        between_queries(spark, rig, tally, runs=1)


def test_a_checkpoint_that_was_copied_is_an_error(mq: Client, orders, copy, tmp_path: Path) -> None:
    copy()
    shutil.copytree(tmp_path / "check", tmp_path / "copy")
    mq.put("orders", b"more")
    with pytest.raises(StreamingQueryException, match="copied, moved, or is an older copy"):
        copy(check="copy")
    assert copied(mq) == orders


def test_spark_hands_over_the_ids_that_the_sink_rests_on(
    mq: Client, orders, spark: SparkSession, address: str, tmp_path: Path
) -> None:
    """The canary: when a new Spark no longer does, this fails first."""
    told: list[tuple[str | None, str | None]] = []

    def look(frame: Any, batch_id: int) -> None:
        def properties(_: Any) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            names = ("sql.streaming.queryId", "streaming.sql.batchId")
            yield tuple(context.getLocalProperty(name) for name in names)

        told.extend(frame.rdd.mapPartitions(properties).collect())
        assert {number for _, number in told} == {str(batch_id)}
        told.append(("last", None))

    query = (
        spark.readStream.format("oncemq")
        .options(server=address, subscribe="orders", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stored = json.loads((tmp_path / "check" / "metadata").read_text())
    assert {query_id for query_id, _ in told} == {stored["id"], "last"}


def test_batch_writes_and_writes_within_foreach_batch(
    mq: Client, orders, spark: SparkSession, address: str, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("a", "1"), ("b", "2")], "topic string, value string")
    for name in "ab":
        mq.create_topic(name, Retention(forever=True))
    for _ in range(2):
        (
            frame.coalesce(1).write.format("oncemq").mode("append")
            .options(server=address, txnAppId="job", txnVersion="1").save()
        )  # fmt: skip
    assert [mq.read(name, 0)[0].payload for name in "ab"] == [b"1", b"2"]
    assert [len(mq.read(name, 0)) for name in "ab"] == [1, 1]

    def write(rows: Any, batch_id: int) -> None:
        for _ in range(2):  # as after a crash
            out = rows.selectExpr("key", "value").write.format("oncemq").mode("append")
            out.options(server=address, topic="copy", sink="totals").save()

    query = (
        spark.readStream.format("oncemq")
        .options(server=address, subscribe="orders", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert copied(mq) == orders
