"""Spark beside its own limits and beside Kafka, in one run: `make bench-spark [QUICK=1]`.

Rows a second out of topics and into them, beside bare Arrow sources and sinks, the JVM's own
Parquet scan and, where Maven is at hand, Spark's Kafka source and sink on the same rows; what a
small micro-batch costs, beside Spark's rate source; growth with tasks and topics. Everything is
warmed up first, measured in turn, and told as ratios within the run.

    python -m benchmarks.spark [--rows N] [--rounds N] [--quick] [--no-kafka] [SECTION ...]
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyspark

import oncemq.spark
from benchmarks.spark import growth, kafka, reading, writing
from benchmarks.spark.bare import Ready, Void
from benchmarks.spark.setting import PARTITIONS, Setting, fill
from oncemq import Client

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "build" / "kafka"
SMALL_BATCHES = 30

SECTIONS: dict[str, Callable[[Setting], None]] = {
    "read": reading.batch,
    "read-stream": reading.stream,
    "write": writing.batch,
    "write-stream": writing.stream,
    "small": lambda setting: growth.small_batches(setting, SMALL_BATCHES),
    "tasks": growth.tasks,
    "topics": growth.topics,
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)}; else all")
    given = parser.parse_args(arguments)
    for name in given.section:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}; there are {', '.join(SECTIONS)}")
    rows = given.rows or (200_000 if given.quick else 1_000_000)
    rounds = given.rounds or (3 if given.quick else 5)
    run(rows, rounds, given.section or list(SECTIONS), beside_kafka=not given.no_kafka)


def run(rows: int, rounds: int, sections: list[str], *, beside_kafka: bool) -> None:
    """The sections, one after the other."""
    # The workers import the bare source from here, and keep what it made from task to task.
    os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = _kafka(stack, scratch) if beside_kafka else None
        server = _serve(stack, scratch)
        config = {"spark.ui.enabled": "false"}
        if peer is not None:
            config["spark.driver.extraClassPath"] = kafka.connector(JARS)
        spark = oncemq.spark.session("local[2]", config=config)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("OFF")  # a query that is stopped in a batch says much
        spark.dataSource.register(Ready)
        spark.dataSource.register(Void)
        setting = Setting(spark, server, peer, scratch, rows, rounds)
        _prepare(setting)
        for name in sections:
            SECTIONS[name](setting)


def _prepare(setting: Setting) -> None:
    """The same rows everywhere."""
    fill(setting.server, "orders", setting.rows)
    fill(setting.server, "copy", 1)
    setting.ready().write.parquet(setting.parquet)
    if setting.kafka is not None:
        versions = f"Kafka {kafka.SERVER}, {kafka.connector_name(JARS)}"
        print(f"Spark {pyspark.__version__} beside {versions}; Kafka syncs nothing by default")
        for topic, partitions in (("one", 1), ("several", PARTITIONS)):
            setting.kafka.create(setting.spark, topic, partitions)
            sink = setting.messages.write.format("kafka").option("topic", topic)
            sink.option("kafka.bootstrap.servers", setting.kafka.address).save()
    writing.prepare(setting)


def _serve(stack: ExitStack, scratch: Path) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "oncemq", "serve", "--data", str(scratch / "data")]
    serving = subprocess.Popen([*command, "--bind", server], stdout=subprocess.DEVNULL)
    stack.callback(serving.wait)
    stack.callback(serving.terminate)
    with Client(server) as mq:
        mq.topics()  # waits until it is there
    return server


def _kafka(stack: ExitStack, scratch: Path) -> kafka.Kafka | None:
    try:
        kafka.fetch(JARS)
        peer = kafka.Kafka(JARS, scratch)
    except kafka.Unavailable as why:
        print(f"without Kafka: {why}")
        return None
    stack.callback(peer.stop)
    return peer


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers are stopped on the way out
    main(sys.argv[1:])
