"""A program that uses Spark somewhere else, on a cluster or over Spark Connect: to be run by tests.

python -m tests.spark.abroad '{"how": {"master": "local-cluster[2,1,1024]"}, "lane": {…}, …}'

It copies a lane, its last batch twice, reads the copy, asks for what is not allowed, looks where
the executors have this package from, and says all that in one line of JSON.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from tests.spark.chains import lose_commit
from tests.spark.copying import Given, copy_all

import oncemq.spark


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the file that `import oncemq` finds."""
    import oncemq

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [str(oncemq.__file__)]})


def main(given: dict[str, Any]) -> dict[str, Any]:
    lane = Given(**given["lane"])
    spark = oncemq.spark.session(**given["how"])
    try:
        copy_all(spark, lane)
        lose_commit(Path(lane.check))
        copy_all(spark, lane)
        copy = (
            spark.read.format("oncemq")
            .options(server=lane.address, subscribe=lane.target, minPartitions="2")
            .load()
        )
        rows = copy.orderBy("offset").selectExpr("string(key)", "string(value)").collect()
        files = spark.range(0, 4, 1, 2).mapInArrow(where, "file string").distinct().collect()
        refused = ""
        try:
            copy.write.format("oncemq").mode("overwrite").option("topic", "copy").save()
        except PySparkException as error:
            refused = str(error)
        return {
            "rows": [list(row) for row in rows],
            "files": [row.file for row in files],
            "refused": refused,
        }
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
