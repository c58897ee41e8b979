# pyright: basic
# pyspark's columns are typed loosely.
"""What took effect, as far as an audit knows: what each journal has, and what it must have."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from oncemq.audit.findings import Finding
from oncemq.errors import ConfigError
from oncemq.spark.pipelines.audits.inputs import WrittenNotes, frame_of
from oncemq.spark.pipelines.audits.report import (
    HolderExtent,
    JournalBounds,
    JournalCourse,
    missing_around,
)
from oncemq.spark.pipelines.audits.rules import union

BOUNDS = pa.schema(
    [("journal", pa.string()), ("topic", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
)


def told_by(
    spark: SparkSession,
    notes: Sequence[tuple[WrittenNotes, bool]],
    topics: Sequence[str],
    *,
    receipts: bool = False,
) -> DataFrame:
    """What all notes say of these topics, else of all; and what in them was not understood."""
    rows = union(frame_of(spark, each, ordered=order, receipts=receipts) for each, order in notes)
    if not topics:
        return rows
    return rows.where(F.col("topic").isin(list(topics)) | F.col("said").isNotNull())


def understood(rows: DataFrame) -> DataFrame:
    """The rows, all of which must tell of a message."""
    bad = rows.where("said IS NOT NULL").groupBy("journal").agg(F.min("said"), F.count("*"))
    for journal, said, count in bad.collect():
        raise ConfigError(
            f"{journal}: {said[:80]!r} tells of no message ({count:,} such): a line or row has an "
            "id like orders@42, or a topic and an offset, and perhaps a payload_sha256"
        )
    return rows


class Effects:
    """What journals have of topics, held against what there is of these."""

    def __init__(
        self,
        rows: DataFrame,
        held: DataFrame,
        whole: Mapping[str, HolderExtent],
        names: Sequence[str],
    ) -> None:
        self._whole, self._names = whole, names
        self._courses = {(each.journal, each.topic): each for each in _courses(rows, held)}
        self._bounds: list[JournalBounds] = []

    def expect(self, topics: Sequence[str], start: int | None, end: int | None) -> None:
        """Each journal must have every message of these topics; of those it mentions by default."""
        for journal in self._names:
            mentioned = topics or [name for each, name in self._courses if each == journal]
            if not mentioned:
                raise ConfigError(f"{journal} mentions no message; name the TOPIC it is about")
            for topic in mentioned:
                if (whole := self._whole.get(topic)) is not None:
                    low = whole.low if start is None else max(start, whole.low)
                    high = whole.end if end is None else min(end, whole.end)
                    self._bounds.append(JournalBounds(journal, topic, low, high))

    @property
    def courses(self) -> list[JournalCourse]:
        """Of each journal and topic that were compared."""
        return [
            self._courses.get((each.journal, each.topic), JournalCourse(each.journal, each.topic))
            for each in self._bounds
        ]

    def gaps(self) -> list[Finding]:
        """What is missing before the first and behind the last of each."""
        pairs = zip(self._bounds, self.courses, strict=True)
        return [finding for each, course in pairs for finding in missing_around(each, course)]

    def bounds(self, spark: SparkSession) -> DataFrame:
        """What is expected, as Spark has it."""
        rows = [dict(zip(BOUNDS.names, astuple(each), strict=True)) for each in self._bounds]
        return spark.createDataFrame(pa.Table.from_pylist(rows, BOUNDS))


def _courses(rows: DataFrame, held: DataFrame) -> list[JournalCourse]:
    real = F.expr("offset < end")
    counted = (
        understood(rows)
        .join(F.broadcast(held), "topic", "left")
        .groupBy("journal", "topic")
        .agg(
            F.count_if(real).alias("effects"),
            F.count_if(F.expr("offset < low")).alias("freed"),
            F.coalesce(F.min(F.when(real, F.col("offset"))), F.lit(-1)).alias("first"),
            F.coalesce(F.max(F.when(real, F.col("offset"))), F.lit(-1)).alias("highest"),
        )
    )
    return [JournalCourse(**row.asDict()) for row in counted.orderBy("journal", "topic").collect()]
