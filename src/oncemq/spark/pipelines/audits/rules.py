# pyright: basic
# pyspark's columns are typed loosely.
"""The rules of the audit as Spark computes them: frames in, a frame of findings out.

They are the rules of `core.audit` for histories without moments (logs, receipts, journals): a
test gives the same histories to both. Law: nothing is collected, and no task has to see a whole
topic: a row is compared with the one before it within a bucket of offsets, and the first row of
each bucket with the last row of the bucket before.

A log has the columns `holder, topic, offset, producer, sequence, timestamp` (microseconds),
`digest` and `rank` (of the holder); receipts `topic, offset, digest`; effects `journal, topic,
offset, digest` and their place in the journal, `part` and `row`. `held` is what there is of each
topic, `bounds` what each journal must have: both small.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from oncemq.audit.log import FORGOTTEN_AFTER

BUCKET = 1 << 20  # offsets that a task compares at a time


@dataclass(frozen=True)
class Rule:
    """A row is a finding of this kind `when` the condition holds; in Spark's SQL."""

    kind: str
    when: str
    detail: str  # parts of a text
    offset: str = "offset"
    count: str = "1"

    @property
    def finding(self) -> str:
        """The finding, or null."""
        return (
            f"if({self.when}, named_struct('kind', '{self.kind}', 'topic', topic, "
            f"'offset', CAST({self.offset} AS BIGINT), 'count', CAST({self.count} AS BIGINT), "
            f"'detail', concat({self.detail})), NULL)"
        )


OFFSETS = [
    Rule(
        "gap",
        "this.offset > before.offset + 1",
        "holder, ' has nothing from ', before.offset + 1, ' up to ', this.offset",
        offset="before.offset + 1",
        count="this.offset - before.offset - 1",
    ),
    Rule(
        "duplicate",
        "this.offset = before.offset",
        "holder, ' has it twice'",
        offset="this.offset",
    ),
    Rule(
        "time_back",
        "this.timestamp < before.timestamp",
        "before.timestamp - this.timestamp, ' µs before the message before it'",
        offset="this.offset",
    ),
]

_NUMBER = "substring(producer, 1, 8), '#', this.sequence"
_FOLLOWS = (
    "this.sequence = before.sequence + 1 OR "
    f"this.sequence = 1 AND this.timestamp - before.timestamp >= {FORGOTTEN_AFTER}"
)
NUMBERS = [
    Rule(
        "lost_sequence",
        f"this.sequence > before.sequence AND NOT ({_FOLLOWS})",
        f"{_NUMBER}, ' follows #', before.sequence",
        offset="this.offset",
        count="this.sequence - before.sequence - 1",
    ),
    Rule(
        "duplicate",
        f"this.sequence <= before.sequence AND NOT ({_FOLLOWS})",
        f"{_NUMBER}, ' comes after #', before.sequence",
        offset="this.offset",
    ),
]

HOLDERS = [
    Rule(
        "diverged",
        "holder != mine.holder AND NOT (producer <=> mine.producer AND "
        "sequence <=> mine.sequence AND digest <=> mine.digest)",
        "substring(mine.producer, 1, 8), '#', mine.sequence, ' in ', mine.holder, ', ', "
        "substring(producer, 1, 8), '#', sequence, ' in ', holder, "
        "if(producer = mine.producer AND sequence = mine.sequence, ', with other bytes', '')",
    ),
]

_CHANGED = "size(digests) > 0 AND NOT array_contains(digests, digest)"
RECEIPTS = [
    Rule("lost", "low IS NULL", "'there is no such topic'"),
    Rule("lost", "offset >= low AND NOT there", "'acknowledged, but not in the log'"),
    Rule("corrupt", _CHANGED, "'the log holds other bytes than were put'"),
]

EFFECTS = [
    Rule(
        "phantom",
        "end IS NULL OR offset >= end",
        "journal, ' has it, but ', "
        "coalesce(concat('the topic ends at ', end), 'there is no such topic')",
    ),
    Rule(
        "corrupt",
        f"offset < end AND {_CHANGED}",
        "'took effect at ', journal, ' with other bytes than the log holds'",
    ),
    Rule(
        "redelivered",
        "offset < end AND time > 1",
        "'to ', journal, ' again, after ', topic, '@', highest",
    ),
    Rule(
        "reordered",
        "offset < end AND time = 1 AND offset < highest",
        "'to ', journal, ' after ', topic, '@', highest",
    ),
]

GAPS = [
    Rule(
        "lost_middle",
        "low < high",
        "low, ' up to ', high, ' took no effect at ', journal",
        offset="low",
        count="high - low",
    ),
]


def of_logs(log: DataFrame) -> DataFrame:
    """Is each holder's log whole and in order, and are its producers' numbers?"""
    offsets = _pairs(log, ["holder", "topic"], ["offset", "producer", "sequence", "timestamp"])
    numbers = _pairs(log, ["holder", "topic", "producer"], ["offset", "sequence", "timestamp"])
    return union([_judged(offsets, OFFSETS), _judged(numbers, NUMBERS)])


def of_holders(log: DataFrame) -> DataFrame:
    """Do all who hold a message hold the same one?"""
    one_place = Window.partitionBy("topic", "offset").orderBy("rank")
    mine = F.first(F.struct("holder", "producer", "sequence", "digest")).over(one_place)
    return _judged(log.withColumn("mine", mine), HOLDERS)


def of_receipts(receipts: DataFrame, log: DataFrame, held: DataFrame) -> DataFrame:
    """Is what publishers were told is stored there, with the bytes that they put?"""
    told = receipts.groupBy("topic", "offset").agg(F.max("digest").alias("digest"))
    rows = _with_digests(told, log).join(F.broadcast(held), "topic", "left")
    return _judged(rows, RECEIPTS)


def of_effects(
    effects: DataFrame, log: DataFrame, held: DataFrame, bounds: DataFrame, *, digests: bool
) -> DataFrame:
    """Did each message take effect once, in order, as it is, and nothing else?

    Without `digests` no effect says what its bytes were, and the logs need not be looked at.
    """
    rows = effects.join(F.broadcast(held), "topic", "left")
    gaps = _pairs(rows.where("offset < end"), ["journal", "topic"], ["offset"])
    gaps = gaps.join(F.broadcast(bounds), ["journal", "topic"]).selectExpr(
        "journal",
        "topic",
        "greatest(before.offset + 1, start) AS low",
        "least(this.offset, end) AS high",
    )
    nothing = F.expr("CAST(array() AS array<binary>)")
    rows = _with_digests(rows, log) if digests else rows.withColumn("digests", nothing)
    return union([_judged(_with_highest(rows), EFFECTS), _judged(gaps, GAPS)])


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows."""
    return reduce(DataFrame.unionAll, frames)


def _judged(rows: DataFrame, rules: Iterable[Rule]) -> DataFrame:
    findings = ", ".join(rule.finding for rule in rules)
    return rows.selectExpr(f"inline(array_compact(array({findings})))")


def _pairs(rows: DataFrame, keys: list[str], columns: list[str]) -> DataFrame:
    """Each row (`this`) with the one `before` it among those of the same keys, by `columns`."""
    cut = rows.select(
        *keys, F.expr(f"offset DIV {BUCKET}").alias("bucket"), F.struct(*columns).alias("this")
    )
    within = Window.partitionBy(*keys, "bucket").orderBy("this")
    across = Window.partitionBy(*keys).orderBy("bucket")
    inner = cut.select(*keys, "this", F.lag("this").over(within).alias("before"))
    edges = cut.groupBy(*keys, "bucket").agg(
        F.min("this").alias("this"), F.max("this").alias("last")
    )
    outer = edges.select(*keys, "this", F.lag("last").over(across).alias("before"))
    return inner.unionAll(outer).where("before IS NOT NULL")


def _with_digests(rows: DataFrame, log: DataFrame) -> DataFrame:
    """Whether a log has the message, and its digests: several if holders differ."""
    stored = log.groupBy("topic", "offset").agg(
        F.collect_set("digest").alias("digests"), F.lit(True).alias("there")
    )
    joined = rows.join(stored, ["topic", "offset"], "left")
    known = F.when(F.col("digest").isNotNull(), F.col("digests"))
    return joined.withColumn("digests", known).withColumn(
        "there", F.coalesce("there", F.lit(False))
    )


def _with_highest(effects: DataFrame) -> DataFrame:
    """Each effect: the how manieth of its message, and the highest offset that came before it."""
    part = Window.partitionBy("journal", "topic", "part").orderBy("row")
    parts = Window.partitionBy("journal", "topic").orderBy("part")
    same = Window.partitionBy("journal", "topic", "offset").orderBy("part", "row")
    start = Window.unboundedPreceding
    real = F.when(F.expr("offset < end"), F.col("offset"))  # what nobody put is not in the order
    until = (
        effects.groupBy("journal", "topic", "part")
        .agg(F.max(real).alias("highest"))
        .withColumn("until", F.max("highest").over(parts.rowsBetween(start, -1)))
        .drop("highest")
    )
    within = F.max(real).over(part.rowsBetween(start, -1))
    return (
        effects.join(F.broadcast(until), ["journal", "topic", "part"])
        .withColumn("highest", F.greatest(within, "until"))
        .withColumn("time", F.row_number().over(same))
    )
