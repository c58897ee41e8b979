# pyright: basic
# pyspark's columns are typed loosely.
"""A transform as frames of Spark: its sources as views, its rows, and the messages they become."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import MapType, TimestampType

from oncemq.errors import ConfigError
from oncemq.spark.pipelines.run import PipelineRun
from oncemq.spark.pipelines.transforms.definition import Definition, Source, Target
from oncemq.spark.pipelines.transforms.files import checked_call
from oncemq.spark.sink.staging import BYTES, PASSED_OVER


def _view(name: str, source: Source, frame: DataFrame) -> DataFrame:
    """A source as the query sees it."""
    if source.is_json:
        frame = frame.select("value.*", *_about(name, source, frame))
    if source.watermark:
        kind = dict(frame.dtypes).get(source.watermark)
        if kind != TimestampType().simpleString():
            raise ConfigError(
                f"sources.{name}: watermark {source.watermark!r} is a column of times; there are "
                f"{', '.join(f'{column} {kind}' for column, kind in frame.dtypes)}"
            )
        frame = frame.withWatermark(source.watermark, source.delay)
    return frame


def _about(name: str, source: Source, frame: DataFrame) -> list[Column]:
    """What a message has beside its value, under names that leave the fields' own alone."""
    fields = frame.schema["value"].dataType.names  # type: ignore[attr-defined]
    columns = {each if each[0] == "_" else f"_{each}": each for each in frame.columns}
    del columns["_value"]
    if taken := columns.keys() & set(fields):
        raise ConfigError(
            f"sources.{name}: {', '.join(sorted(taken))} in the schema is the name of what a "
            "message has beside its value; value = 'string' and from_json() in the query keep both"
        )
    return [F.col(each).alias(alias) for alias, each in columns.items()]


@contextmanager
def rows(run: PipelineRun, definition: Definition) -> Generator[DataFrame]:
    """What the query or the function makes of the sources, as a stream."""

    def read(source: Source) -> DataFrame:
        options = source.reading(run.server, run.timeout, dead=bool(definition.dead))
        return run.spark.readStream.format("oncemq").options(**options).load()

    with rows_of(run.spark, definition, read) as found:
        if not found.isStreaming:
            raise ConfigError("the query reads none of the sources, so there is nothing to follow")
        yield found


@contextmanager
def rows_of(
    spark: SparkSession, definition: Definition, read: Callable[[Source], DataFrame]
) -> Generator[DataFrame]:
    """The same of sources that are read in a way of one's own. To be used within the block: over
    Spark Connect a query finds its views only when it starts.
    """
    sources = {
        name: _view(name, each, _fitting(read(each), each, definition))
        for name, each in definition.sources.items()
    }
    if not definition.sql:
        found = checked_call(definition)(**sources)
        if not isinstance(found, DataFrame):
            raise ConfigError(f"the function returned {found!r}, not a DataFrame")
        yield found
        return
    try:
        for name, frame in sources.items():
            frame.createOrReplaceTempView(name)
        yield spark.sql(definition.sql)
    finally:
        for name in sources:
            spark.catalog.dropTempView(name)


def _fitting(raw: DataFrame, source: Source, definition: Definition) -> DataFrame:
    """What has a value that fits, with the columns that were asked for."""
    if not definition.dead or not source.may_misfit:
        return raw
    others = ["_corrupt"] if source.headers else ["_corrupt", "headers"]
    return raw.where("_corrupt IS NULL").drop(*others)


def messages(frame: DataFrame, target: Target) -> DataFrame:
    """Rows as messages: as they are when they have a `value`, else as JSON objects."""
    kinds = {field.name: field.dataType for field in frame.schema}
    for name in filter(None, (target.key, target.topic_column)):
        if name not in kinds:
            raise ConfigError(f"target: there is no column {name!r}, but {', '.join(kinds)}")
    columns: list[Column] = []
    if target.topic_column:
        columns.append(F.col(target.topic_column).cast("string").alias("topic"))
    if key := target.key or ("key" if "key" in kinds else ""):
        binary = isinstance(kinds[key], BYTES)
        columns.append((F.col(key) if binary else F.col(key).cast("string")).alias("key"))
    taken = {target.topic_column}
    if not target.key:
        taken.add("key")
    if isinstance(kinds.get("headers"), MapType):
        columns.append(F.col("headers"))
        taken.add("headers")
    others = [name for name in kinds if name not in taken]
    if isinstance(kinds.get("value"), BYTES) and set(others) <= {"value", "topic", *PASSED_OVER}:
        value = F.col("value")  # what was read beside it is not told again
    elif others:
        whole = F.struct(*(F.col(f"`{name}`") for name in others))
        value = F.to_json(whole, {"ignoreNullFields": "false"}).alias("value")
    else:
        raise ConfigError("target: beside key and headers a row has nothing to be a value")
    return frame.select(*columns, value)
