"""The archive on a real Spark: its tasks, and a driver that is killed in the middle."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import CONFIG
from tests.spark.test_archive import FOREVER, put, seen, stored
from tests.spark.test_replay import copied, expected

from oncemq import Client, errors
from oncemq.spark.pipelines import archive, archiving, replay, replaying
from oncemq.spark.pipelines.archive_check import check
from oncemq.spark.pipelines.spread import spread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_tasks_write_readers_see_and_a_replay_puts_each_message_once(
    mq: Client, address: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "ROWS_PER_TASK", 40)  # several tasks, several steps
    monkeypatch.setattr(archiving, "STEP_TASKS", 3)
    to = tmp_path / "archive"
    put(mq, 0, 200)
    assert archive("orders", to, server=address, spark=spark).messages == 200
    planned = spark.read.parquet(str(to))
    put(mq, 200, 100)
    assert archive("orders", to, server=address, spark=spark).messages == 100
    assert planned.count() == 200  # though a file has grown since
    assert seen(to) == stored(mq)
    frame = spark.read.parquet(str(to))
    assert frame.where("topic = 'orders'").count() == 300
    assert frame.selectExpr("min(offset)", "max(offset)").first() == (0, 299)
    monkeypatch.setattr(replaying, "TASK_ROWS", 70)
    mq.create_topic("copy", FOREVER)
    assert replay(to, "copy", server=address, spark=spark).messages == 300
    assert replay(to, "copy", server=address, spark=spark).messages == 0
    assert copied(mq) == expected(mq, "orders")


def test_what_a_task_could_not_do_comes_back_in_its_own_words(spark: SparkSession) -> None:
    def work(item: int) -> int:
        if item == 2:
            raise errors.Unreachable("nobody is there")
        if item == 3:
            raise FileNotFoundError(2, "No such file", "/x")
        return item * 10

    assert spread(spark, [0, 1], work, int) == [0, 10]
    with pytest.raises(errors.Unreachable, match="nobody is there"):
        spread(spark, [1, 2], work, int)
    with pytest.raises(errors.StorageRefused, match="/x: No such file"):
        spread(spark, [3], work, int)


def test_a_driver_killed_in_the_middle(
    mq: Client, address: str, spark: SparkSession, tmp_path: Path
) -> None:
    to, stop = tmp_path / "archive", threading.Event()
    words = ["pipeline", "archive", "orders", "--to", str(to), "--follow", "--every", "0"]
    quick = [f"--conf={name}={setting}" for name, setting in CONFIG.items()]
    where = ["--server", address, "--master", "local[2]", *quick]
    put(mq, 0, 500)
    driver = subprocess.Popen([sys.executable, "-m", "oncemq", *words, *where])

    def publish() -> None:
        with Client(address) as publisher:
            while not stop.wait(0.02):
                put(publisher, 0, 50)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        while len(seen(to)) < 600:  # a step or more; the next is under way
            assert driver.poll() is None
            stop.wait(0.1)
    finally:
        driver.kill()
        driver.wait()
        stop.set()
        thread.join()
    rows = seen(to)
    assert rows == stored(mq)[: len(rows)]
    archive("orders", to, server=address, spark=spark)
    assert seen(to) == stored(mq)
    assert check(to).findings == []
