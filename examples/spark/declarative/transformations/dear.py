"""Orders of a topic as a table, and from it the dear ones back into a topic: declared, not run."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

SERVER = os.environ.get("ONCEMQ_SERVER", "tcp://127.0.0.1:5556")


@dp.table
def orders() -> DataFrame:
    """A streaming table: each run adds what is new in the topic."""
    return (
        SparkSession.active()
        .readStream.format("oncemq")
        .options(server=SERVER, subscribe="orders", startingOffsets="earliest")
        .options(valueFormat="json", valueSchema="item string, cents bigint")
        .load()
        .select("value.*")
    )


# `sink` is the name under which the server remembers what was published: give each its own.
dp.create_sink("to_topic", "oncemq", {"server": SERVER, "topic": "dear", "sink": "declared-dear"})


@dp.append_flow(target="to_topic")
def dear() -> DataFrame:
    """What costs more than 4 goes to the topic `dear`, once."""
    found = SparkSession.active().readStream.table("orders").where("cents > 400")
    return found.selectExpr("item AS key", "to_json(struct(*)) AS value")
