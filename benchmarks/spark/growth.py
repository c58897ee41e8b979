"""Growth with the number of tasks and of topics, and what a small micro-batch costs."""

import time
from statistics import median

from pyspark.sql import DataFrame

from benchmarks.spark.measure import Way, measured
from benchmarks.spark.setting import Setting, fill, into_noop

TASKS = (1, 2, 4, 8)
TOPICS = (1, 10, 100)
WARM_BATCHES = 5


def tasks(setting: Setting) -> None:
    """One topic read by more and more tasks."""
    ways: dict[str, Way] = {}
    for count in TASKS:
        ways[f"oncemq, {count} tasks"] = lambda count=count: into_noop(setting.ours(count))
        ways[f"bare Arrow, {count} tasks"] = lambda count=count: into_noop(setting.ready(count))
    found = measured("tasks", ways, setting.rows, setting.rounds)
    for count in TASKS:
        found.compare(f"oncemq, {count} tasks", f"bare Arrow, {count} tasks", 0.5)


def topics(setting: Setting) -> None:
    """The same rows out of more and more topics."""
    ways: dict[str, Way] = {}
    for count in TOPICS:
        names = [f"of-{count}-{number}" for number in range(count)]
        for name in names:
            fill(setting.server, name, setting.rows // count)
        subscribe = ",".join(names)
        ways[f"oncemq, {count} topics"] = lambda subscribe=subscribe: into_noop(
            setting.ours(subscribe=subscribe)
        )
    found = measured("topics", ways, setting.rows, setting.rounds)
    for count in TOPICS[1:]:
        found.compare(f"oncemq, {count} topics", f"oncemq, {TOPICS[0]} topics")


def small_batches(setting: Setting, batches: int) -> None:
    """What a micro-batch of ten rows takes, beside Spark's own rate source."""
    stream = setting.spark.readStream
    shared = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    ours = stream.format("oncemq").options(server=setting.server, subscribe="orders", **shared)
    frames = {
        "rate source": stream.format("rate-micro-batch").option("rowsPerBatch", "10").load(),
        "oncemq": ours.load(),
        "oncemq, no subscription": ours.option("subscription", "none").load(),
    }
    if setting.kafka is not None:
        kafka = stream.format("kafka").options(subscribe="one", **shared)
        address = setting.kafka.address
        frames["Kafka"] = kafka.option("kafka.bootstrap.servers", address).load()
    took = {name: _batches(setting, frame, batches) for name, frame in frames.items()}
    own = took["rate source"][1]
    print(f"\nmicro-batches of 10 rows into nothing, median of {batches}, after a start")
    for name, (start, ms) in took.items():
        print(f"  {name:36} {ms:6.0f} ms, {ms / own:.2f} of the rate source (2.5); {start:.1f} s")


def _batches(setting: Setting, frame: DataFrame, batches: int) -> tuple[float, float]:
    """Seconds until the first micro-batch is done, milliseconds of a later one."""
    writer = frame.writeStream.format("noop")
    began = time.perf_counter()
    query = writer.option("checkpointLocation", setting.fresh("checkpoint")).start()
    try:
        while query.isActive and not any(each.numInputRows for each in query.recentProgress):
            time.sleep(0.05)
        start = time.perf_counter() - began
        last = batches + WARM_BATCHES
        while query.isActive and not any(each.batchId >= last for each in query.recentProgress):
            time.sleep(0.2)
        progress = query.recentProgress
    finally:
        query.stop()
    return start, median(each.durationMs["triggerExecution"] for each in progress[WARM_BATCHES:])
