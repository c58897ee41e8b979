"""Into topics, from Parquet: beside a sink that drops the rows, and Spark's Kafka sink.

Kafka's sink may write a row twice when a task is run again; ours writes it once. Kafka answers
before a disk has anything, unless a topic is told to sync; ours syncs before it answers.
"""

from pyspark.sql import DataFrame

from benchmarks.spark.measure import Way, measured
from benchmarks.spark.setting import PARTITIONS, STREAM_BATCHES, Setting

KAFKA = {"Kafka, 1 partition": "into-one", f"Kafka, {PARTITIONS} partitions": "into-several"}
KAFKA_SYNCED = {"Kafka, 1 partition, synced": "into-synced"}


def prepare(setting: Setting) -> None:
    """The topics that Kafka's sink writes into."""
    kafka, spark = setting.kafka, setting.spark
    if kafka is not None:
        kafka.create(spark, "into-one", 1)
        kafka.create(spark, "into-several", PARTITIONS)
        kafka.create(spark, "into-synced", 1, flush_messages="1")


def batch(setting: Setting) -> None:
    """Rows a second of a batch write."""

    def write(name: str, **options: str) -> None:
        setting.messages.write.format(name).mode("append").options(**options).save()

    ways: dict[str, Way] = {
        "oncemq": lambda: write("oncemq", server=setting.server, topic="copy"),
        "bare Arrow sink": lambda: write("void"),
    }
    for name, options in _kafka(setting, KAFKA | KAFKA_SYNCED).items():
        ways[name] = lambda options=options: write("kafka", **options)
    found = measured("batch write", ways, setting.rows, setting.rounds)
    found.compare("oncemq", "bare Arrow sink", 0.5)
    for name in _kafka(setting, KAFKA | KAFKA_SYNCED):
        found.compare("oncemq", name, 1.0)


def stream(setting: Setting) -> None:
    """Rows a second of a streaming write, in a few large micro-batches."""
    files = _in_files(setting)

    def write(name: str, **options: str) -> float:
        source = setting.spark.readStream.schema("key binary, value binary")
        frame = source.option("maxFilesPerTrigger", "2").parquet(files)
        return setting.run(frame.writeStream.format(name).options(**options))

    ways: dict[str, Way] = {
        "oncemq": lambda: write("oncemq", server=setting.server, topic="copy"),
        "bare Arrow sink": lambda: write("void"),
    }
    for name, options in _kafka(setting, KAFKA).items():
        ways[name] = lambda options=options: write("kafka", **options)
    title = f"streaming write, {STREAM_BATCHES - 1} micro-batches after a first"
    found = measured(title, ways, setting.rows, setting.rounds)
    found.compare("oncemq", "bare Arrow sink", 0.5)
    for name in _kafka(setting, KAFKA):
        found.compare("oncemq", name, 1.0)


def _in_files(setting: Setting) -> str:
    """The rows in as many files as the stream needs: two for each micro-batch."""
    where = setting.fresh("files")
    messages: DataFrame = setting.ready(2 * STREAM_BATCHES).select("key", "value")
    messages.write.parquet(where)
    return where


def _kafka(setting: Setting, topics: dict[str, str]) -> dict[str, dict[str, str]]:
    if setting.kafka is None:
        return {}
    address = {"kafka.bootstrap.servers": setting.kafka.address}
    return {name: {**address, "topic": topic} for name, topic in topics.items()}
