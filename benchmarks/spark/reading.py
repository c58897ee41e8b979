"""Out of topics: beside ready-made Arrow batches, the JVM's Parquet scan, and Spark's Kafka."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from benchmarks.spark.bare import SCHEMA
from benchmarks.spark.measure import Way, measured
from benchmarks.spark.setting import PARTITIONS, STREAM_BATCHES, Setting, into_noop

KAFKA_ONE = "Kafka, 1 partition"
KAFKA_SEVERAL = f"Kafka, {PARTITIONS} partitions"
COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]

Frames = Mapping[str, Callable[[], DataFrame]]


def batch(setting: Setting) -> None:
    """Rows a second of a batch read, into nothing and into Parquet."""
    frames: dict[str, Callable[[], DataFrame]] = {
        "oncemq": setting.ours,
        "bare Arrow": setting.ready,
        "Parquet": lambda: setting.spark.read.parquet(setting.parquet),
        **_kafka(setting),
    }
    ways = {name: _noop(frame) for name, frame in frames.items()}
    found = measured("batch read into nothing", ways, setting.rows, setting.rounds)
    found.compare("oncemq", "bare Arrow", 0.5)
    found.compare("oncemq", "Parquet", 0.35)
    for name in _kafka(setting):
        found.compare("oncemq", name, 1.0)
    del frames["Parquet"]
    ways = {name: _parquet(setting, frame) for name, frame in frames.items()}
    found = measured("batch read into Parquet", ways, setting.rows, setting.rounds)
    found.compare("oncemq", "bare Arrow", 0.5)
    for name in _kafka(setting):
        found.compare("oncemq", name, 1.0)


def stream(setting: Setting) -> None:
    """Rows a second of a streaming read, in a few large micro-batches."""
    limit = str(-(-setting.rows // STREAM_BATCHES))
    shared = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": limit, "minPartitions": "2"}

    def ours() -> float:
        source = setting.spark.readStream.format("oncemq").options(server=setting.server)
        frame = source.options(subscribe="orders", **shared).schema(SCHEMA).load()
        return setting.run(frame.writeStream.format("noop"))

    def kafka(topic: str) -> float:
        assert setting.kafka is not None
        source = setting.spark.readStream.format("kafka").options(subscribe=topic, **shared)
        frame = source.option("kafka.bootstrap.servers", setting.kafka.address).load()
        return setting.run(frame.select(*COLUMNS).writeStream.format("noop"))

    ways: dict[str, Way] = {"oncemq": ours}
    if setting.kafka is not None:
        ways[KAFKA_ONE] = lambda: kafka("one")
        ways[KAFKA_SEVERAL] = lambda: kafka("several")
    title = f"streaming read into nothing, {STREAM_BATCHES - 1} micro-batches after a first"
    found = measured(title, ways, setting.rows, setting.rounds)
    for name in list(ways)[1:]:
        found.compare("oncemq", name, 1.0)


def _kafka(setting: Setting) -> Frames:
    server = setting.kafka
    if server is None:
        return {}

    def read(topic: str) -> DataFrame:
        source = setting.spark.read.format("kafka").options(subscribe=topic, minPartitions="2")
        source = source.option("kafka.bootstrap.servers", server.address)
        return source.load().select(*COLUMNS)

    return {KAFKA_ONE: lambda: read("one"), KAFKA_SEVERAL: lambda: read("several")}


def _noop(frame: Callable[[], DataFrame]) -> Way:
    return lambda: into_noop(frame())


def _parquet(setting: Setting, frame: Callable[[], DataFrame]) -> Way:
    where = setting.fresh("copied")
    return lambda: frame().write.mode("overwrite").parquet(where)
