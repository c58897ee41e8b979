"""A program that uses Spark somewhere else, on a cluster or over Spark Connect: to be run by tests.

python -m tests.spark.abroad '{"how": {"master": "local-cluster[2,1,1024]"}, "lane": {…}, …}'

It copies a lane, its last batch twice, reads the copy, runs each pipeline over it, asks for what
is not allowed, looks where the executors have this package from, and says all that in one line of
JSON.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import oncemq.spark
from oncemq.errors import ConfigError
from oncemq.spark.pipelines import Definition, Source, Target, archive, audit, replay, transform
from tests.spark.chains import lose_commit
from tests.spark.copying import Given, copy_all

REPLAYED, TRANSFORMED = "replayed", "transformed"


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the file that `import oncemq` finds."""
    import oncemq

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [str(oncemq.__file__)]})


def pipelines(spark: SparkSession, lane: Given) -> dict[str, Any]:
    """An archive of the copy, a replay of that, a transform of this, and an audit of all."""
    below = Path(lane.check).parent
    at: dict[str, Any] = {"server": lane.address, "spark": spark}
    archived = archive(lane.target, below / "archive", **at)
    replayed = replay(below / "archive", REPLAYED, **at)
    definition = Definition(
        name="abroad",
        sources={"copied": Source(topic=REPLAYED, value="string")},
        sql="SELECT key, concat('<', value, '>') AS value FROM copied",
        target=Target(topic=TRANSFORMED),
        checkpoint=str(below / "transform-check"),
    )
    transformed = transform(definition, **at)
    path, check = str(below / "transformed"), str(below / "directory-check")
    to_a_directory = replace(definition, target=Target(path=path), checkpoint=check)
    try:
        transform(to_a_directory, **at)
        written: int | str = spark.read.parquet(path).count()
    except ConfigError as error:
        written = error.detail
    report = audit(lane.target, archives=[str(below / "archive")], **at)
    return {
        "archived": archived.messages,
        "replayed": replayed.messages,
        "transformed": transformed.messages,
        "written": written,
        "audited": sum(each.messages for each in report.extents),
        "findings": sum(report.counts.values()),
    }


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
            "pipelines": pipelines(spark, lane),
            "files": [row.file for row in files],
            "refused": refused,
        }
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
