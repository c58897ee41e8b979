# pyright: basic
# pyspark's columns and py4j are typed loosely.
"""Dead letters of a transform: messages whose value does not fit, beside the rows of all others.

A letter is the message again, with headers of ours, of the same form as those of apps (see
docs/APPS.md), so that `once dead` shows it. The query never sees such a message: its source passes
over it, and when a batch is written, the range of offsets that the batch has read is read once
more, for these messages alone. Two branches of one streaming query would do the same, but Spark
takes them for two sources, and a checkpoint of a pipeline that got stuck has one.

Laws: the letters of a batch and its rows are one commit; a batch that is run again has the same
letters, so nothing in one depends on when or where it was written.
"""

import json
from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F  # noqa: N812

from oncemq.errors import ConfigError
from oncemq.spark.options.reader import STREAM
from oncemq.spark.pipelines.run import PipelineRun
from oncemq.spark.pipelines.transforms.definition import Definition, Source, Target
from oncemq.spark.source.planning import fits
from oncemq.spark.source.progress import ReadProgress, first_offset, progress_of

PREFIX, ONLY = "oncemq-dead-", "oncemq-only"
HEADERS = "map<string,string>"
OURS = f"name LIKE '{PREFIX}%' OR name = '{ONLY}'"

# In UTC, whatever the time zone of the session is: a letter must not depend on that.
STORED = (
    "concat(replace(CAST(TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, "
    "CAST(unix_micros(timestamp) AS DECIMAL(20, 0)) / 1000000) AS STRING), ' ', 'T'), 'Z')"
)

Ranges = dict[str, tuple[int, int]]  # of each topic, the offsets from and up to
Raised = Sequence[tuple[Ranges, str]]  # messages that the query failed for, and why

PLAIN = Source(headers=True)  # messages as they are
REASON_CHARACTERS = 1_000


class Letters:
    """The letters of each batch of one query."""

    def __init__(self, run: PipelineRun, definition: Definition, checkpoint: str) -> None:
        if is_remote():
            raise ConfigError("dead needs a Spark whose driver is this process: leave it out")
        self._run, self._definition = run, definition
        self._offsets = Offsets(run.spark, checkpoint)

    def beside(self, rows: DataFrame, number: int, raised: Raised = ()) -> DataFrame:
        """The rows of a batch and its letters as one: each says which topic it is for."""
        spark, definition = rows.sparkSession, self._definition
        found: list[DataFrame] = []
        for source in definition.sources.values():
            ranges = self.ranges(source, number)
            if ranges and source.may_misfit:
                raw = self.read(spark, source, ranges).where("_corrupt IS NOT NULL")
                found.append(letters(raw, "_corrupt", _misfit(source), definition))
        found += [
            letters(self.read(spark, PLAIN, place), "value", reason, definition)
            for place, reason in raised
        ]
        columns = _columns(rows, definition.target)
        return reduce(DataFrame.unionByName, found, rows.select(*columns))

    def ranges(self, source: Source, number: int) -> Ranges:
        """What a batch has read of the topics of a source."""
        return _ranges(source, self._offsets.of(number - 1), self._offsets.of(number))

    def read(self, spark: SparkSession, source: Source, ranges: Ranges) -> DataFrame:
        """Some offsets of the topics of a source, once more."""
        options = source.reading(self._run.server, self._run.timeout, dead=True)
        others = {"subscribePattern", "assign", "startingTimestamp", "startingOffsetsByTimestamp"}
        passed = {name.lower() for name in (*STREAM, *others)}
        options = {name: text for name, text in options.items() if name.lower() not in passed}
        options |= {
            "subscribe": ",".join(ranges),
            "startingOffsets": json.dumps({name: start for name, (start, _) in ranges.items()}),
            "endingOffsets": json.dumps({name: stop for name, (_, stop) in ranges.items()}),
        }
        return spark.read.format("oncemq").options(**options).load()


class Offsets:
    """What Spark has in a checkpoint of how far each batch reads, in a text file for each."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        self._place = f"{checkpoint}/offsets"
        hadoop: Any = context._jsc
        root = self._jvm.org.apache.hadoop.fs.Path(self._place)
        self._files = root.getFileSystem(hadoop.hadoopConfiguration())

    def of(self, number: int) -> list[ReadProgress]:
        """Where a batch ends, of each source of ours; nothing before the first."""
        if number < 0:
            return []
        stream = self._files.open(self._jvm.org.apache.hadoop.fs.Path(f"{self._place}/{number}"))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        _, _, *sources = text.splitlines()  # after a version, and settings of the batch
        return [progress_of(json.loads(each)) for each in sources if each.startswith("{")]


def _ranges(source: Source, before: list[ReadProgress], after: list[ReadProgress]) -> Ranges:
    """What a batch has read of the topics of a source."""
    options = source.check()
    found: Ranges = {}
    for progress in after:
        for name, place in progress.topics.items():
            start = next((each for each in before if name in each.topics), None)
            first = first_offset(start, name, place)
            if fits(options, name) and first < place.offset:
                found[name] = (first, place.offset)
    return found


def _misfit(source: Source) -> str:
    wanted = f"JSON of {source.schema}" if source.is_json else "UTF-8"
    return f"the value does not fit: it is not {wanted}"


def letters(raw: DataFrame, value: str, reason: str, definition: Definition) -> DataFrame:
    """The letters of messages whose bytes are in the column `value`."""
    ours: dict[str, Column] = {
        "handler": F.lit(definition.sink),
        "topic": F.col("topic"),
        "offset": F.col("offset").cast("string"),
        "key": F.coalesce(F.lower(F.hex("key")), F.lit("")),
        "reason": F.lit(reason[:REASON_CHARACTERS]),
        "traceback": F.lit(""),
        "attempts": F.lit("1"),
        "time": F.expr(STORED),
    }
    named = [part for name, text in ours.items() for part in (F.lit(PREFIX + name), text)]
    theirs = F.expr(f"map_filter(coalesce(headers, map()), (name, text) -> NOT ({OURS}))")
    return raw.select(
        F.lit(definition.dead).alias("topic"),
        "key",
        F.col(value).alias("value"),
        F.map_concat(theirs.cast(HEADERS), F.create_map(*named)).alias("headers"),
    )


def _columns(rows: DataFrame, target: Target) -> list[Column]:
    """Rows that are messages, with every column that a letter has."""
    kinds = {"key": "binary", "value": "binary", "headers": HEADERS}
    return [
        F.lit(target.topic).alias("topic") if target.topic else F.col("topic"),
        *(
            (F.col(name) if name in rows.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in kinds.items()
        ),
    ]
