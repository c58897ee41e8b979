"""Orders in, revenue per window out, to a topic and to Parquet, exactly once: `make demo-spark`.

A server with a topic of orders; a stream that sums them up in windows of a minute and writes
each finished window to the topic `revenue` and to Parquet; a Spark that is killed in the middle
and started again. At the end everything is counted twice: once by the stream, once from the
orders themselves, and `once audit` looks at both topics.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

import oncemq.spark
from oncemq import Client
from oncemq.core.records import Retention
from oncemq.testing import server

ITEMS = {"espresso": 250, "tea": 220, "cake": 430}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS = 5_000
FIELDS = "item string, cents bigint, at timestamp"


def put_orders(address: str) -> int:
    """Some orders of half an hour, and one much later, which closes the windows; the revenue."""
    draw = random.Random(7)
    total = 0
    orders: list[bytes] = []
    keys: list[bytes | None] = []
    for number in range(ORDERS):
        item = draw.choice(list(ITEMS))
        at = NOON + timedelta(seconds=1800 * number / ORDERS)
        orders.append(
            json.dumps({"item": item, "cents": ITEMS[item], "at": at.isoformat()}).encode()
        )
        keys.append(item.encode())
        total += ITEMS[item]
    late = {"item": "tea", "cents": 0, "at": (NOON + timedelta(hours=2)).isoformat()}
    with Client(address) as mq:
        for topic in ("orders", "revenue"):
            mq.create_topic(topic, Retention(forever=True))
        mq.put_many("orders", orders, keys=keys)
        mq.put("orders", json.dumps(late).encode(), key=b"tea")
    return total


def windows(spark: SparkSession, address: str) -> DataFrame:
    """Revenue per minute and item, from the stream of orders."""
    orders = (
        spark.readStream.format("oncemq")
        .options(server=address, subscribe="orders", startingOffsets="earliest")
        .options(valueFormat="json", valueSchema=FIELDS, maxOffsetsPerTrigger="1000")
        .load()
        .select("value.*")
    )
    return (
        orders.withWatermark("at", "1 minute")
        .groupBy("item", window("at", "1 minute").alias("w"))
        .sum("cents")
        .selectExpr("item", "w.start AS minute", "`sum(cents)` AS cents")
    )


def run(address: str, scratch: Path, *, die: bool) -> None:
    """Both queries, up to what there is now; with `die`, Spark is killed on the way."""
    config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = oncemq.spark.session("local[2]", app="revenue", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    revenue = windows(spark, address)
    to_topic = (
        revenue.selectExpr("item AS key", "to_json(struct(*)) AS value")
        .writeStream.format("oncemq")
        .options(server=address, topic="revenue", checkpointLocation=str(scratch / "check-topic"))
        .trigger(availableNow=True)
        .start()
    )
    to_parquet = (
        revenue.writeStream.format("parquet")
        .options(path=str(scratch / "parquet"), checkpointLocation=str(scratch / "check-parquet"))
        .trigger(availableNow=True)
        .start()
    )
    if die:
        while len(to_topic.recentProgress) < 2:
            time.sleep(0.05)
        spark.sparkContext._gateway.proc.kill()  # type: ignore[union-attr] # no goodbye
        sys.exit(1)
    to_topic.awaitTermination()
    to_parquet.awaitTermination()
    spark.stop()


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, server() as address:
        scratch = Path(directory)
        expected = put_orders(address)
        print(f"{ORDERS} orders put, {expected / 100:.2f} in all")
        for die in (True, False, False):
            told = [address, directory, "die" if die else "live"]
            done = subprocess.run([sys.executable, __file__, *told])
            print("Spark was killed in the middle" if done.returncode else "Spark ran to the end")
        return report(address, scratch, expected)


def report(address: str, scratch: Path, expected: int) -> int:
    """Count everything again, another way."""
    import pyarrow.parquet as parquet

    with Client(address) as mq:
        rows = [json.loads(each.payload) for each in mq.read("revenue", 0, limit=100_000)]
    in_topic = sum(row["cents"] for row in rows)
    table = parquet.read_table(scratch / "parquet")
    in_parquet = sum(table.column("cents").to_pylist())
    doubled = len(rows) - len({(row["item"], row["minute"]) for row in rows})
    print(f"topic revenue: {len(rows)} windows, {in_topic / 100:.2f}; {doubled} doubled")
    print(f"Parquet:       {table.num_rows} windows, {in_parquet / 100:.2f}")
    audits = [
        subprocess.run([sys.executable, "-m", "oncemq", "--server", address, "audit", topic])
        for topic in ("orders", "revenue")
    ]
    right = in_topic == in_parquet == expected and not doubled
    print("every order counted once" if right else "NOT every order counted once")
    return 0 if right and not any(each.returncode for each in audits) else 6


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1], Path(sys.argv[2]), die=sys.argv[3] == "die")
    else:
        sys.exit(main())
