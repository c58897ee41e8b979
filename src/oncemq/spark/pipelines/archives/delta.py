# pyright: basic, reportMissingImports=false
# deltalake is an extra of its own; it and pyarrow carry few types.
"""An archive as a Delta table, through delta-rs: no JAR.

The table's own log says which files are part of it and, as the version of the application
`oncemq-<identity of the topic>`, up to which offset each topic is there: both in one commit, so
that a step run again adds nothing. Two writers at once: the second commit fails. A file that has
grown replaces the smaller one in the same commit. Law: files are on the disk before the commit
names them, and the commit is before the server is told.
"""

import re
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from secrets import token_hex

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.pandas.types import to_arrow_schema

from oncemq.errors import Fenced
from oncemq.spark.pipelines.archives.files import FILE_BYTES, ArchivedPiece
from oncemq.spark.pipelines.archives.place import ArchivePlace, Begun, sync_directory, sync_file
from oncemq.spark.pipelines.archives.stock import Stock, Stocked, measured
from oncemq.spark.pipelines.archives.tasks import SCHEMA

PARTITIONS = ["topic", "day"]
OURS = re.compile(r"data/[0-9a-f]{16}/[0-9-]+/[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class Listed:
    """A file of the table, as its log has it."""

    path: str
    topic: str
    day: str
    start: int
    stop: int
    bytes: int


class DeltaStore:
    """The files that the table's log names."""

    def __init__(self, place: ArchivePlace) -> None:
        self._place = place
        self._synced: set[str] = set()
        self._last: dict[str, ArchivedPiece] = {}

    def end(self, topic: str, begun: Begun) -> int:
        """The offset after the last that readers see."""
        version = self._table.transaction_version(_application(begun.id))
        if version is None:
            return begun.since
        last = max(_listed(self._table, topic), key=lambda each: each.stop, default=None)
        if last is not None and OURS.fullmatch(last.path):  # one that OPTIMIZE made stays as it is
            path, rows = str(self._place.path / last.path), last.stop - last.start
            self._last[topic] = ArchivedPiece(
                topic, begun.id, last.day, last.start, rows, last.bytes, path
            )
        return version

    @cached_property
    def _table(self) -> DeltaTable:
        """The table, to be written to; all that is there of its log is made durable first."""
        if not DeltaTable.is_deltatable(str(self._place.path)):
            DeltaTable.create(self._place.path, _schema(), partition_by=PARTITIONS, mode="ignore")
        self._sync_log()
        sync_directory(self._place.path)
        return DeltaTable(self._place.path)

    def tail(self, topic: str) -> ArchivedPiece | None:
        """The last file of a topic, if it is small."""
        last = self._last.get(topic)
        return last if last is not None and last.bytes < FILE_BYTES else None

    def publish(self, pieces: list[ArchivedPiece]) -> None:
        """Let readers see these, all at once."""
        actions: list[AddAction | RemoveAction] = []
        ends: dict[int, int] = {}
        for piece in pieces:
            old = self._last.get(piece.topic)
            if old is not None and old.start == piece.start:
                actions.append(self._removed(old))
            placed = self._placed(piece)
            actions.append(self._added(placed))
            self._last[piece.topic] = placed
            ends[piece.topic_id] = max(piece.stop, ends.get(piece.topic_id, 0))
        transactions = [Transaction(_application(topic), end) for topic, end in ends.items()]
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                PARTITIONS,
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        except CommitFailedError as error:
            raise Fenced(
                f"another process archives to {self._place.path} now: this one stops, and nothing "
                f"is there twice ({error})"
            ) from None
        self._sync_log()
        self._table = DeltaTable(self._place.path)

    def stock(self, topic: str, begun: Begun) -> Stock:
        """What readers see of a topic, now."""
        if not DeltaTable.is_deltatable(str(self._place.path)):
            return Stock(topic, begun.id, begun.since, begun.since, (), 0)
        table = DeltaTable(self._place.path)
        stop = table.transaction_version(_application(begun.id))
        listed = sorted(_listed(table, topic), key=lambda each: each.start)
        files = [
            Stocked(str(self._place.path / each.path), each.start, each.stop) for each in listed
        ]
        sizes = [measured(each.path) for each in files]
        rows = max(sum(count for count, _ in sizes), 1)
        size = sum(size for _, size in sizes) // rows
        end = begun.since if stop is None else stop
        return Stock(topic, begun.id, begun.since, end, tuple(files), size)

    def _placed(self, piece: ArchivedPiece) -> ArchivedPiece:
        """Where the log will name it; a name that nobody else takes."""
        directory = self._place.room(f"data/{piece.topic_id:016x}/{piece.day}")
        name = f"{piece.start:020d}-{piece.stop:020d}-{token_hex(8)}.parquet"
        target = directory / name
        Path(piece.path).replace(target)
        sync_directory(directory)
        return replace(piece, path=str(target))

    def _added(self, piece: ArchivedPiece) -> AddAction:
        stats = {
            "numRecords": piece.rows,
            "minValues": {"offset": piece.start},
            "maxValues": {"offset": piece.stop - 1},
            "nullCount": {"offset": 0},
        }
        told = msgspec.json.encode(stats).decode()
        now = int(time.time() * 1000)
        return AddAction(self._relative(piece), piece.bytes, _values(piece), now, True, told)

    def _removed(self, piece: ArchivedPiece) -> RemoveAction:
        now = int(time.time() * 1000)
        return RemoveAction(self._relative(piece), True, now, piece.bytes, _values(piece))

    def _relative(self, piece: ArchivedPiece) -> str:
        return Path(piece.path).relative_to(self._place.path).as_posix()

    def _sync_log(self) -> None:
        """delta-rs writes its log without syncing it: that is done here, before anyone is told."""
        log = self._place.path / "_delta_log"
        for file in log.iterdir():
            if file.is_file() and (file.name not in self._synced or file.name.startswith("_")):
                sync_file(file)
                self._synced.add(file.name)
        sync_directory(log)


def _listed(table: DeltaTable, topic: str) -> list[Listed]:
    """The files of a topic."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        Listed(
            row["path"],
            topic,
            str(row["partition.day"]),
            row["min.offset"],
            row["max.offset"] + 1,
            row["size_bytes"],
        )
        for row in rows
        if row["partition.topic"] == topic
    ]


def _application(topic_id: int) -> str:
    return f"oncemq-{topic_id:016x}"


def _values(piece: ArchivedPiece) -> dict[str, str | None]:
    return {"topic": piece.topic, "day": piece.day}


def _schema() -> pa.Schema:
    messages = to_arrow_schema(SCHEMA, timezone="UTC")
    return messages.append(pa.field("topic", pa.string())).append(pa.field("day", pa.date32()))
