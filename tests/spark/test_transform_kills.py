"""A transform whose driver is killed, and whose server is, in the middle: message by message."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncemq import Client
from oncemq.protocol.records import Retention
from oncemq.spark.pipelines import transform
from tests.e2e.processes import free_port
from tests.spark.conftest import CONFIG, copied
from tests.spark.quick_spark import quick_spark

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

ROWS, PER_BATCH = 140, 10
TOML = f"""
sql = "SELECT key, upper(CAST(value AS string)) AS value FROM orders"
[sources.orders]
topic = "orders"
rows = {PER_BATCH}
[target]
topic = "copy"
"""


class Server:
    """A server that may be killed and started again; it has `orders`, and an empty `copy`."""

    def __init__(self, data: Path) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._command = [sys.executable, "-m", "oncemq", "serve", "--bind", self.address]
        self._command += ["--data", str(data)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data")
    yield made
    made.kill()


def until(mq: Client, rows: int, driver: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for so many messages in `copy`."""
    while mq.topic("copy").topic.end < rows:
        assert driver is None or driver.poll() is None, "the driver ended by itself"
        time.sleep(0.01)


def kill_the_driver(command: list[str], state: Path, mq: Client, rows: int) -> None:
    """Start it, and kill it with its Java when it has put so many messages."""
    settings = {"XDG_STATE_HOME": str(state), **quick_spark()}
    driver = subprocess.Popen(
        command, env={**os.environ, **settings}, start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        until(mq, rows, driver)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def test_a_driver_killed_then_a_server_killed(
    spark: SparkSession,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "louder.toml"
    file.write_text(TOML)
    conf = [word for each in CONFIG.items() for word in ("--conf", "=".join(each))]
    command = [sys.executable, "-m", "oncemq", "--server", server.address, "pipeline", "transform"]
    with Client(server.address, timeout=60) as mq:
        for topic in ("orders", "copy"):
            mq.create_topic(topic, Retention(forever=True))
        keys = [b"k%d" % (n % 7) for n in range(ROWS)]
        mq.put_many("orders", [b"message %d" % n for n in range(ROWS)], keys=keys)
        wanted = [(key, b"MESSAGE %d" % n) for n, key in enumerate(keys)]

        first = 2 * PER_BATCH
        words = [str(file), "--master", "local[2]", *conf]
        kill_the_driver([*command, *words], tmp_path / "state", mq, first)
        there = mq.topic("copy").topic.end
        assert first <= there < ROWS
        assert copied(mq) == wanted[:there]

        def strike() -> None:
            with Client(server.address, timeout=60) as other:
                until(other, there + PER_BATCH)
            server.kill()
            server.start()

        striking = threading.Thread(target=strike)
        striking.start()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        try:
            done = transform(file, server=server.address, timeout=60, spark=spark)
        finally:
            striking.join()
        assert done.messages <= ROWS - there + PER_BATCH
        assert copied(mq) == wanted
