# pyright: basic
# pyspark's columns are typed loosely.
"""What an audit looks at beside the topics: what was written down, where, and in which form.

JSON lines and columns of SQLite, as `once audit` takes them; for more than one machine holds also
Parquet, tables of Spark, and a column of PostgreSQL. Each becomes the same columns: `journal,
topic, offset, digest, part, row`, and `said`: what was not understood, as it was written.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from oncemq.databases.opening import sqlite_path
from oncemq.errors import ConfigError
from oncemq.spark.pipelines.audits import tables
from oncemq.spark.pipelines.audits.rules import BUCKET

LINES, PARQUET, COLUMN, TABLE = "lines", "parquet", "column", "table"
ID = r"(?s)^(.+)@([0-9]{1,18})$"
LINE = "id string, topic string, offset bigint, payload_sha256 string, stored boolean"
FORMS = (
    "JSON lines, Parquet, DATABASE:TABLE:COLUMN of SQLite or of postgresql://…, or table:NAME of "
    "Spark's catalog"
)


@dataclass(frozen=True)
class WrittenNotes:
    """What somebody wrote down: effects, or receipts."""

    form: str
    place: str
    table: str = ""
    column: str = ""

    @property
    def name(self) -> str:
        """As a person knows it; a password is nobody's business."""
        place = self.place
        if "://" in place and "@" in place:
            url = urlsplit(place)
            user = (url.username or "") + ("@" if url.username else "")
            host = (url.hostname or "") + (f":{url.port}" if url.port else "")
            place = urlunsplit(url._replace(netloc=user + host))
        if self.form == TABLE:
            return f"table:{place}"
        return f"{place}:{self.table}:{self.column}" if self.form == COLUMN else place


def notes_of(text: str) -> WrittenNotes:
    """The text of an option as what it names; ConfigError says what is allowed."""
    if text.startswith("table:"):
        return WrittenNotes(TABLE, text.removeprefix("table:"))
    place, *names = text.rsplit(":", 2)
    if len(names) == 2 and (Path(place).is_file() or "://" in place):
        if "://" in place and sqlite_path(place) is not None:
            raise ConfigError(f"write the path of a SQLite database, not a URL: {text!r}")
        return WrittenNotes(COLUMN, place, *names)
    if text.startswith(("postgresql:", "postgres:")):
        raise ConfigError(f"{text!r} is a database; name URL:TABLE:COLUMN, the column of ids")
    if "://" in text:
        lines = text.endswith((".json", ".jsonl", ".ndjson", ".log", ".txt"))
        return WrittenNotes(LINES if lines else PARQUET, text)
    path = Path(text)
    if (path / "_delta_log").is_dir():
        raise ConfigError(
            f"{text!r} is a Delta table, and not all of its files count; if it is an archive, name "
            "it as one, else as table:NAME of a Spark that knows Delta"
        )
    if path.is_dir():
        return WrittenNotes(PARQUET, str(path.absolute()))
    if not path.is_file():
        raise ConfigError(f"{text!r} is not there; name {FORMS}")
    with path.open("rb") as stream:
        head = stream.read(15)
    if head == b"SQLite format 3":
        raise ConfigError(f"{text!r} is a database; name {text}:TABLE:COLUMN, the column of ids")
    return WrittenNotes(PARQUET if head.startswith(b"PAR1") else LINES, str(path.absolute()))


def frame_of(
    spark: SparkSession, notes: WrittenNotes, *, ordered: bool = False, receipts: bool = False
) -> DataFrame:
    """What they say, as columns. Without `ordered` the order in which they say it means nothing."""
    if notes.form == LINES:
        rows = _lines(spark, notes.place, receipts=receipts)
    elif notes.form == COLUMN:
        spark.dataSource.register(tables.IdsDataSource)
        options = {"url": notes.place, "table": notes.table, "column": notes.column}
        rows = spark.read.format(tables.NAME).options(**options).load()
        nothing = F.lit(None).cast("binary").alias("digest")
        said = F.col("id").alias("said")
        rows = rows.select(*_named(F.col("id")), nothing, "part", "row", said)
    else:
        if ordered:
            raise ConfigError(
                f"{notes.name} has no order of its own, which a journal has: name it as effects"
            )
        rows = columns_of(_table(spark, notes), notes.name)
    found = rows.select(
        F.lit(notes.name).alias("journal"),
        "topic",
        "offset",
        "digest",
        *(["part", "row"] if ordered else [F.expr(f"offset DIV {BUCKET}").alias("part"), "offset"]),
        F.when(F.expr("topic IS NULL OR offset IS NULL"), F.coalesce("said", F.lit("NULL"))),
    )
    return found.toDF("journal", "topic", "offset", "digest", "part", "row", "said")


def columns_of(frame: DataFrame, name: str) -> DataFrame:
    """The messages that a table tells of: by `id`, or by `topic` and `offset`."""
    if "id" in frame.columns:
        place = _named(F.col("id").cast("string"))
        said = F.col("id").cast("string")
    elif {"topic", "offset"} <= set(frame.columns):
        place = [F.col("topic").cast("string"), F.col("offset").cast("bigint")]
        said = F.concat_ws("@", *place)
    else:
        raise ConfigError(
            f"{name} has a column id (orders@42), or topic and offset; it has "
            f"{', '.join(frame.columns) or 'none'}"
        )
    return frame.select(
        place[0].alias("topic"), place[1].alias("offset"), _digest(frame), said.alias("said")
    )


def _digest(frame: DataFrame) -> Column:
    if "payload_sha256" in frame.columns:
        binary = isinstance(frame.schema["payload_sha256"].dataType, BinaryType)
        digest = F.col("payload_sha256") if binary else F.unhex("payload_sha256")
    elif "value" in frame.columns and isinstance(frame.schema["value"].dataType, BinaryType):
        digest = F.unhex(F.sha2("value", 256))
    else:
        digest = F.lit(None).cast("binary")
    return digest.alias("digest")


def _lines(spark: SparkSession, path: str, *, receipts: bool) -> DataFrame:
    """JSON lines; one that is not understood has no topic."""
    raw = spark.read.text(path).select(
        F.col("_metadata.file_block_start").alias("part"),  # of one task: its rows follow
        F.monotonically_increasing_id().alias("row"),
        F.col("value").alias("said"),
    )
    rows = raw.where("trim(said) != ''").withColumn("line", F.from_json("said", LINE))
    if receipts:  # one without a place was not stored, or so long ago that nobody can look at it
        placeless = (
            "line.id IS NULL AND line.topic != '' AND (line.offset IS NULL OR NOT line.stored)"
        )
        rows = rows.where(f"NOT coalesce({placeless}, false)")
    named = F.col("line.id").isNotNull()
    topic, offset = _named(F.col("line.id"))
    digest = F.unhex("line.payload_sha256")
    legible = F.col("line.payload_sha256").isNull() | (F.length(digest) == 32)
    return rows.select(
        F.when(legible, F.when(named, topic).otherwise(F.col("line.topic"))).alias("topic"),
        F.when(named, offset).otherwise(F.col("line.offset")).alias("offset"),
        digest.alias("digest"),
        "part",
        "row",
        "said",
    )


def _named(name: Column) -> list[Column]:
    """Topic and offset of an id; null when it is none."""
    fits = name.rlike(ID)
    return [
        F.when(fits, F.regexp_extract(name, ID, 1)).alias("topic"),
        F.when(fits, F.regexp_extract(name, ID, 2).cast("bigint")).alias("offset"),
    ]


def _table(spark: SparkSession, notes: WrittenNotes) -> DataFrame:
    if notes.form == TABLE:
        return spark.table(notes.place)
    return spark.read.parquet(notes.place)
