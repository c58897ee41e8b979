# pyright: basic
# pyspark's columns are typed loosely.
"""What is stored, as an audit sees it: topics of a server, and archives of them.

Law: what is read of a server is fixed when the audit begins, from the lowest offset to the end
that each topic had then; what is put meanwhile is none of its business.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from oncemq.audit.findings import Finding
from oncemq.errors import ConfigError
from oncemq.protocol.replies import TopicInfo
from oncemq.spark.pipelines.archives.frames import archive_frame
from oncemq.spark.pipelines.audits.report import HolderExtent, missing_at_the_ends, missing_between

SERVER = "the server"
COLUMNS = "topic string, offset bigint, producer string, sequence bigint, timestamp timestamp"

HELD = pa.schema([("topic", pa.string()), ("low", pa.int64()), ("end", pa.int64())])


def live(
    spark: SparkSession, infos: Sequence[TopicInfo], server: str, *, digests: bool
) -> DataFrame:
    """The messages of these topics, as the server holds them."""
    names = [info.name for info in infos]
    plain = not any("," in name for name in names)
    which = "subscribe" if plain else "subscribePattern"
    frame = (
        spark.read.format("oncemq")
        .schema(COLUMNS + (", value binary" if digests else ""))
        .option("server", server)
        .option(which, ",".join(names) if plain else "|".join(map(re.escape, names)))
        .option("startingOffsets", json.dumps({info.name: info.low for info in infos}))
        .option("endingOffsets", json.dumps({info.name: info.end for info in infos}))
        .load()
    )
    return _rows(frame, SERVER, 0, digests=digests)


def archived(
    spark: SparkSession, path: str, rank: int, topics: Sequence[str], *, digests: bool
) -> DataFrame:
    """The messages of an archive, the `rank`th holder; of these topics, if any are named."""
    frame = archive_frame(spark, path, COLUMNS + (", value binary" if digests else ""))
    if topics:
        frame = frame.where(F.col("topic").isin(list(topics)))
    return _rows(frame, path, rank, digests=digests)


def _rows(frame: DataFrame, holder: str, rank: int, *, digests: bool) -> DataFrame:
    digest: Column = F.unhex(F.sha2("value", 256)) if digests else F.lit(None).cast("binary")
    return frame.select(
        F.lit(rank).alias("rank"),
        F.lit(holder).alias("holder"),
        F.col("topic").cast("string"),
        "offset",
        "producer",
        "sequence",
        F.unix_micros("timestamp").alias("timestamp"),
        digest.alias("digest"),
    )


class Logs:
    """All logs of an audit, and what each holder has of each topic."""

    def __init__(
        self, rows: DataFrame, found: Sequence[HolderExtent], promised: Sequence[HolderExtent]
    ) -> None:
        self.rows = rows
        self._found = {(each.holder, each.topic): each for each in found}
        self._promised = promised

    @classmethod
    def of(cls, rows: DataFrame, infos: Sequence[TopicInfo]) -> "Logs":
        """Count the rows; of the server's topics it is known what there should be."""
        counted = rows.groupBy("holder", "topic").agg(
            F.min("offset").alias("low"),
            (F.max("offset") + 1).alias("end"),
            F.count("*").alias("messages"),
            F.count_distinct(F.col("producer")).alias("producers"),
        )
        found = [
            HolderExtent(**row.asDict()) for row in counted.orderBy("topic", "holder").collect()
        ]
        for each in found:
            if each.topic is None or each.low is None:
                raise ConfigError(
                    f"{each.holder} is no archive of messages, which has columns topic, offset, "
                    "producer, sequence, timestamp and value: `once pipeline archive` writes one"
                )
        return cls(
            rows, found, [HolderExtent(SERVER, info.name, info.low, info.end) for info in infos]
        )

    @property
    def extents(self) -> list[HolderExtent]:
        """What there is; of the server's topics as far as it says that they go."""
        promised = {(each.holder, each.topic): each for each in self._promised}
        mine = [
            replace(each, messages=found.messages, producers=found.producers)
            if (found := self._found.get(key))
            else each
            for key, each in promised.items()
        ]
        return mine + [each for key, each in self._found.items() if key not in promised]

    @property
    def whole(self) -> dict[str, HolderExtent]:
        """What there is of each topic, whoever holds it."""
        found: dict[str, HolderExtent] = {}
        for each in self.extents:
            so_far = found.get(each.topic, each)
            low, end = min(so_far.low, each.low), max(so_far.end, each.end)
            found[each.topic] = replace(so_far, low=low, end=end)
        return found

    def held(self, spark: SparkSession) -> DataFrame:
        """The same, as Spark has it."""
        rows = [{"topic": e.topic, "low": e.low, "end": e.end} for e in self.whole.values()]
        return spark.createDataFrame(pa.Table.from_pylist(rows, HELD))

    def gaps(self) -> list[Finding]:
        """What is missing at the ends of logs, and between them."""
        ends = [
            finding
            for each in self._promised
            for finding in missing_at_the_ends(each, self._found.get((SERVER, each.topic)))
        ]
        return [*ends, *missing_between(self.extents)]
