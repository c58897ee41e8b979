"""A Spark driver as a process of its own, to be killed: copies lanes, all at once.

python -m tests.spark.driver '{"master": …, "config": {…}, "lanes": [{…}]}'
"""

import json
import select
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import oncemq.spark
from tests.spark.copying import CONFIG, Given, start_copying


def main(given: dict[str, Any]) -> None:
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    config = {**CONFIG, **here, **given["config"]}
    spark = oncemq.spark.session(given["master"], app="driver", config=config)
    spark.sparkContext.setLogLevel("OFF")
    queries = [started(spark, lane(each)) for each in given["lanes"]]
    while any(query.isActive for query in queries):
        spark.streams.awaitAnyTermination()  # raises what ended one of them
        spark.streams.resetTerminated()
    for query in queries:
        query.awaitTermination()
    spark.stop()


def started(spark: SparkSession, given: Given) -> StreamingQuery:
    """A query that has come to its fault. One at a time: Spark gives each of the Python processes
    that a query needs ten seconds to start, however busy the machine is.
    """

    def struck() -> int:
        return len(list(Path(given.marks).glob(f"{given.name} *")))

    before = struck()
    query = start_copying(spark, given)
    while query.isActive and struck() == before:
        select.select((), (), (), 0.02)
    return query


def lane(given: dict[str, Any]) -> Given:
    """JSON knows no numbers as keys."""
    return Given(**{**given, "plan": {int(n): fault for n, fault in given["plan"].items()}})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
