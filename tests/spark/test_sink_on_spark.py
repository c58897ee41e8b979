"""The sink on a real Spark: exactly once, whatever fails, compared message by message."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.e2e.processes import free_port
from tests.spark.conftest import copied, copy_orders, fill_orders
from tests.spark.faults import faulty

from oncemq import Client
from oncemq.core.records import Retention

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_stream_is_copied_once_and_in_order(mq: Client, orders, copy) -> None:
    copy()
    assert copied(mq) == orders
    mq.put("orders", b"more", key=b"k")
    copy()
    assert copied(mq) == [*orders, (b"k", b"more")]


@pytest.mark.parametrize(
    ("fault", "fails"),
    [
        ("task raises", False),
        ("task dies", False),
        ("commit raises after it published", True),
    ],
)
def test_a_fault_neither_loses_nor_doubles(
    mq: Client, orders, copy, spark: SparkSession, tmp_path: Path, fault: str, fails: bool, run: int
) -> None:
    spark.dataSource.register(faulty({1: fault}, tmp_path, os.getpid()))
    if fails:
        with pytest.raises(StreamingQueryException, match="on purpose"):
            copy("faulty")
    else:
        copy("faulty")
    assert (tmp_path / f"1 {fault}").exists()
    copy("faulty")  # goes on from the checkpoint
    assert copied(mq) == orders


@pytest.mark.parametrize("fault", ["server dies before the commit", "server dies after the commit"])
def test_a_server_killed_and_started_again_in_the_middle(
    spark: SparkSession, tmp_path: Path, fault: str, run: int
) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "oncemq", "serve", "--bind", address]
    command += ["--data", str(tmp_path / "data")]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    lives = [first]
    spark.dataSource.register(faulty({1: fault}, tmp_path, first.pid))

    def start_again() -> None:
        first.wait()
        lives.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    waiting = threading.Thread(target=start_again)
    waiting.start()
    try:
        with Client(address, timeout=60) as mq:
            wanted = fill_orders(mq)
            copy_orders(spark, address, tmp_path / "check", "faulty")
            assert (tmp_path / f"1 {fault}").exists()
            assert copied(mq) == wanted
    finally:
        first.kill()
        waiting.join()
        for each in lives:
            each.kill()
            each.wait()


def test_the_last_batch_run_again_adds_nothing(
    mq: Client, orders, copy, tmp_path: Path, run: int
) -> None:
    copy()
    commits = tmp_path / "check" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()
    copy()
    assert copied(mq) == orders


def test_a_checkpoint_that_is_gone_or_copied_is_an_error(
    mq: Client, orders, copy, tmp_path: Path
) -> None:
    copy()
    shutil.copytree(tmp_path / "check", tmp_path / "copy")
    mq.put("orders", b"more")
    with pytest.raises(StreamingQueryException, match="copied, moved, or is an older copy"):
        copy(check="copy")
    shutil.rmtree(tmp_path / "check")
    with pytest.raises(StreamingQueryException, match="deleted and made anew"):
        copy()
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
