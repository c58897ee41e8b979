"""The sink on a real Spark: exactly once, whatever fails, compared message by message."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from oncemq import Client
from oncemq.protocol.records import Retention
from oncemq.spark.sink.staging import BATCH_ID, QUERY_ID
from simulator import proof
from tests.spark.chains import between_queries, in_a_query
from tests.spark.conftest import copied
from tests.spark.copying import to_its_end
from tests.spark.lanes import Rig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_stream_is_copied_once_and_in_order(mq: Client, orders, copy) -> None:
    copy()
    assert copied(mq) == orders
    mq.put("orders", b"more", key=b"k")
    copy()
    assert copied(mq) == [*orders, (b"k", b"more")]


def test_a_checkpoint_notes_what_it_was_published_by_last(
    mq: Client, orders, copy, tmp_path: Path
) -> None:
    copy()
    (note,) = (tmp_path / "check").glob("oncemq_sink-*")
    noted = json.loads(note.read_text())["commit"]
    mq.put("orders", b"more", key=b"k")
    note.write_text(note.read_text().replace(noted, noted.replace("@", "@1")))
    with pytest.raises(StreamingQueryException, match="recorded another one under that number"):
        copy()
    assert copied(mq) == orders
    note.unlink()
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
    with pytest.raises(StreamingQueryException, match="its checkpoint was copied or moved"):
        copy(check="copy")
    assert copied(mq) == orders


def canary(notes: Path) -> type[DataSource]:
    """A sink that notes which ids its tasks heard of, and which batch it is told to commit."""

    @dataclass
    class Heard(WriterCommitMessage):
        ids: tuple[str | None, ...]

    class Writer(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> Heard:
            for _ in iterator:
                pass
            context = TaskContext.get()
            assert context is not None
            return Heard(tuple(context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID)))

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            with notes.open("a") as file:
                for each in messages:
                    file.write(json.dumps([batchId, *each.ids]) + "\n")

    class Canary(DataSource):
        @classmethod
        def name(cls) -> str:
            return "canary"

        def streamWriter(self, schema: Any, overwrite: bool) -> Writer:  # noqa: N802
            return Writer()

    return Canary


def test_spark_hands_over_the_ids_that_the_sink_rests_on(
    mq: Client, orders, spark: SparkSession, copy, tmp_path: Path
) -> None:
    """The canary: when a new Spark no longer does, this fails first, and names what changed."""
    spark.dataSource.register(canary(tmp_path / "notes"))
    copy("canary")
    query_id = json.loads((tmp_path / "check" / "metadata").read_text())["id"]
    heard = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    assert {number for number, *_ in heard} == {0, 1, 2}
    for number, *ids in heard:
        for name, told, wanted in zip(
            (QUERY_ID, BATCH_ID), ids, (query_id, str(number)), strict=True
        ):
            assert told == wanted, (
                f"PySpark {pyspark.__version__}: the tasks of batch {number} of query {query_id} "
                f"have {told!r} as local property {name!r}, not {wanted!r}. The sink cannot tell a "
                "repeat from a new batch without it (oncemq/spark/sink/staging.py), and publishes "
                "nothing: find what this version calls it"
            )


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

    writer = (
        spark.readStream.format("oncemq")
        .options(server=address, subscribe="orders", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
    )
    to_its_end(writer.start)
    assert copied(mq) == orders
