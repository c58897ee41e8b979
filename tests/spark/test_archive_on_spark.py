"""Archives and replays on a real Spark: their tasks, and drivers and servers that are killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncemq import Client, errors
from oncemq.spark.pipelines import archive, replay
from oncemq.spark.pipelines.archives import archive as archiving
from oncemq.spark.pipelines.archives.check import check
from oncemq.spark.pipelines.replays import replay as replaying
from oncemq.spark.pipelines.spread import spread
from tests.e2e.processes import until
from tests.spark.conftest import CONFIG
from tests.spark.faults import SERVER
from tests.spark.lanes import Rig
from tests.spark.test_archive import FOREVER, put, seen, stored
from tests.spark.test_replay import copied, expected

SMALL = ("ROWS_PER_TASK", archiving), ("TASK_ROWS", replaying)
SMALL_REPLAY = (
    "from oncemq.cli.main import cli; from oncemq.spark.pipelines.replays import replay; "
    "replay.TASK_ROWS, replay.STEP_TASKS = 20, 2; cli()"
)
QUICK = [f"--conf={name}={setting}" for name, setting in CONFIG.items()]

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
    where = ["--server", address, "--master", "local[2]", *QUICK]
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


@contextmanager
def server_killed_when(rig: Rig, ready: Callable[[Client], bool]) -> Iterator[None]:
    """Meanwhile the server is killed, as soon as this is so; it comes back."""

    def strike() -> None:
        with Client(rig.address, timeout=60) as mq:
            until(lambda: ready(mq), 100)
        os.kill(int((rig.marks / SERVER).read_text()), signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    yield
    thread.join()


@pytest.mark.long
def test_a_server_killed_in_the_middle_and_a_replay_whose_driver_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in SMALL:
        monkeypatch.setattr(module, name, 20)
        monkeypatch.setattr(module, "STEP_TASKS", 2)
    to = tmp_path / "archive"
    with Rig(tmp_path / "rig") as rig:
        mq, how = rig.mq, {"server": rig.address, "timeout": 60, "spark": spark}
        for topic in ("orders", "copy"):
            mq.create_topic(topic, FOREVER)
        put(mq, 0, 300)

        with server_killed_when(rig, lambda _: any(to.glob("topic=*/*/*"))):
            assert archive("orders", to, **how).messages == 300
        assert seen(to) == stored(mq)

        def done(mq: Client) -> int:
            return mq.topic("copy").topic.end

        words = ["pipeline", "replay", str(to), "--to", "copy", "--server", rig.address]
        driver = subprocess.Popen(
            [sys.executable, "-c", SMALL_REPLAY, *words, "--master", "local[2]", *QUICK],
            start_new_session=True,
        )
        try:
            until(lambda: done(mq) >= 80 or driver.poll() is not None, 100)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        there = done(mq)
        assert 80 <= there < 300
        assert copied(mq) == expected(mq, "orders")[:there]

        with server_killed_when(rig, lambda mq: done(mq) > there):
            assert replay(to, "copy", **how).messages == 300 - there
        assert copied(mq) == expected(mq, "orders")
