"""Spark beside its own limits, in one run: `python benchmarks/spark.py [ROWS]`.

Rows a second from a topic into a sink that drops them, beside a bare Python source that yields
ready-made Arrow batches of the same rows and beside the JVM's own Parquet scan; rows a second
from Parquet into a topic, beside a bare Python sink that drops them; and what a small micro-batch
costs, beside Spark's rate source. Medians; each thing is warmed up first.
"""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

import oncemq.spark
from oncemq import Client
from oncemq.core.records import Retention

SCHEMA = "key binary, value binary, offset bigint, timestamp timestamp"
BATCH_ROWS = 20_000
ROUNDS = 3
SMALL_BATCHES = 30


class Ready(DataSource):
    """The ceiling: Arrow batches made once, of rows like ours."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema) -> DataSourceReader:
        return ReadyReader(int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // 2), InputPartition(self._rows - self._rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = 65_536
        made = pa.RecordBatch.from_arrays(
            [
                pa.array([b"%016d" % n for n in range(rows)], pa.binary()),
                pa.array([random.randbytes(100) for _ in range(rows)], pa.binary()),
                pa.array(range(rows), pa.int64()),
                pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", "UTC")),
            ],
            names=["key", "value", "offset", "timestamp"],
        )
        for start in range(0, partition.value, rows):
            yield made.slice(0, min(rows, partition.value - start))


class Void(DataSource):
    """The ceiling of a sink: Arrow batches that are looked at and dropped."""

    @classmethod
    def name(cls) -> str:
        return "void"

    def writer(self, schema, overwrite: bool) -> DataSourceArrowWriter:
        return VoidWriter()


class VoidWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(each.num_rows for each in iterator)
        return WriterCommitMessage()


def cpu_seconds() -> float:
    """Of this process and all below it: JVM, workers, server. On a busy machine it says more
    than the clock does."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        process = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(process)
        ticks[process] = sum(map(int, fields[11:15]))  # its own, and its children's that ended
    total, open_ = 0, [os.getpid()]
    while open_:
        process = open_.pop()
        total += ticks.get(process, 0)
        open_ += parents.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of processors."""
    began, used = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - began, cpu_seconds() - used


def into_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def throughput(spark: SparkSession, server: str, rows: int, scratch: Path) -> None:
    """Rows a second into nothing, three ways, in turn."""
    ours = lambda: (  # noqa: E731
        spark.read.format("oncemq")
        .options(server=server, subscribe="orders", minPartitions="2")
        .schema(SCHEMA)
        .load()
    )
    bare = spark.read.format("ready").option("rows", str(rows)).load()
    into_noop(bare)
    bare.write.mode("overwrite").parquet(str(scratch / "parquet"))
    parquet = spark.read.parquet(str(scratch / "parquet"))
    ways = {
        "oncemq": lambda: into_noop(ours()),
        "bare Arrow source": lambda: into_noop(bare),
        "JVM Parquet scan": lambda: into_noop(parquet),
        "oncemq into Parquet": lambda: (
            ours().write.mode("overwrite").parquet(str(scratch / "copied"))
        ),
    }
    rates, costs = measured(ways, rows)
    for name, aim in (("bare Arrow source", 0.5), ("JVM Parquet scan", 0.35)):
        compare("oncemq", name, rates, costs, aim)


def sink_throughput(spark: SparkSession, server: str, rows: int, scratch: Path) -> None:
    """Rows a second from Parquet into a topic, and into nothing."""
    frame = spark.read.parquet(str(scratch / "parquet")).select("key", "value")

    def write(name: str, **options: str) -> None:
        frame.write.format(name).mode("append").options(**options).save()

    ways = {
        "oncemq sink": lambda: write("oncemq", server=server, topic="copy"),
        "bare Arrow sink": lambda: write("void"),
    }
    rates, costs = measured(ways, rows)
    compare("oncemq sink", "bare Arrow sink", rates, costs, 0.5)


Numbers = dict[str, float]


def measured(ways: Mapping[str, Callable[[], object]], rows: int) -> tuple[Numbers, Numbers]:
    """Rows a second, and CPU seconds a row, of each way; in turn, so that noise hits all."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):
        for name, work in ways.items():
            times[name].append(timed(work))
    rates = {name: rows / median(clock for clock, _ in took[1:]) for name, took in times.items()}
    costs = {name: median(cpu for _, cpu in took[1:]) / rows for name, took in times.items()}
    for name in ways:
        print(
            f"{name:22} {rates[name] / 1e6:6.2f} M rows/s {costs[name] * 1e6:6.2f} µs of CPU a row"
        )
    return rates, costs


def compare(ours: str, theirs: str, rates: Numbers, costs: Numbers, aim: float) -> None:
    clock, cpu = rates[ours] / rates[theirs], costs[theirs] / costs[ours]
    print(f"{ours} / {theirs}: {clock:.2f} by the clock, {cpu:.2f} by CPU (aim: {aim})")


def small_batches(spark: SparkSession, server: str, scratch: Path) -> None:
    """What a micro-batch of ten rows costs."""

    def run(frame: DataFrame, name: str) -> float:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(scratch / name))
            .start()
        )
        while not any(each.batchId >= SMALL_BATCHES for each in query.recentProgress):
            time.sleep(0.2)
        query.stop()
        took = [each.durationMs["triggerExecution"] for each in query.recentProgress]
        return median(took[5:])

    ours = run(
        spark.readStream.format("oncemq")
        .options(
            server=server, subscribe="orders", startingOffsets="earliest",
            maxOffsetsPerTrigger="10", subscription="none",
        )
        .load(),
        "ours",
    )  # fmt: skip
    rate = run(
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load(), "rate"
    )
    print(f"micro-batch of 10 rows {ours:.0f} ms, rate source {rate:.0f}: {ours / rate:.2f} (2.5)")


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        command = [sys.executable, "-m", "oncemq", "serve", "--data", str(scratch / "data")]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            server = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        serving = subprocess.Popen([*command, "--bind", server], stdout=subprocess.PIPE)
        spark = None
        try:
            with Client(server) as mq:
                for topic in ("orders", "copy"):
                    mq.create_topic(topic, Retention(forever=True))
                payloads = [random.randbytes(100) for _ in range(BATCH_ROWS)]
                for first in range(0, rows, BATCH_ROWS):
                    keys = [b"%016d" % n for n in range(first, first + BATCH_ROWS)]
                    mq.put_many("orders", payloads, keys=keys, wait=False)
                mq.flush(300)
            spark = oncemq.spark.session("local[2]", config={"spark.ui.enabled": "false"})
            spark.sparkContext.setLogLevel("OFF")  # a query that is stopped in a batch says much
            spark.dataSource.register(Ready)
            spark.dataSource.register(Void)
            throughput(spark, server, rows, scratch)
            sink_throughput(spark, server, rows, scratch)
            small_batches(spark, server, scratch)
        finally:
            if spark is not None:
                spark.stop()
            serving.terminate()
            serving.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
