# pyright: basic
# pyspark's frames are typed loosely.
"""An archive as a table of Spark, whichever way it keeps its files."""

from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from oncemq.spark.pipelines.archives.place import HOME, find
from oncemq.spark.pipelines.archives.store import store_of


def archive_frame(spark: SparkSession, path: str, columns: str) -> DataFrame:
    """The messages of an archive (or of other Parquet files), with these columns.

    The columns are said, not guessed: a topic named 42 is not a number.
    """
    place = find(path) if (Path(path) / HOME).is_dir() else None
    if place is None or place.format == "parquet":
        return spark.read.schema(columns).parquet(path)
    wanted = StructType.fromDDL(columns)
    assert isinstance(wanted, StructType)
    inside = StructType([field for field in wanted if field.name != "topic"])
    store = store_of(place)
    frames = [
        spark.read.schema(inside)
        .parquet(*(file.path for file in store.stock(name, begun).files))
        .withColumn("topic", F.lit(name))
        .select(*wanted.names)
        for name, begun in place.topics().items()
        if store.stock(name, begun).files
    ]
    return reduce(DataFrame.unionAll, frames, spark.createDataFrame([], wanted))
