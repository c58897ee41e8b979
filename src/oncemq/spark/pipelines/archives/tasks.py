# pyright: basic
# pyarrow carries no types.
"""What a task of an archive does: messages of a range into hidden files, one or more a day.

Laws: every file is closed, counted and on the disk before the task says so; its name is the
task's own, so that a task that is run again or twice at a time harms nobody; rows are in the
order of their offsets.
"""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from oncemq.errors import Corrupt
from oncemq.spark.columns.layout import Layout
from oncemq.spark.columns.schema import TYPES
from oncemq.spark.options.reader import source_options
from oncemq.spark.pipelines.archives.files import FILE_BYTES, ArchivedPiece
from oncemq.spark.pipelines.archives.place import sync_file
from oncemq.spark.source.ranges import TaskRange, TopicRange
from oncemq.spark.source.reading import read
from oncemq.storage.disk import LocalDisk

COLUMNS = ("key", "value", "offset", "timestamp", "headers", "producer", "sequence")
SCHEMA = StructType([StructField(name, TYPES[name]) for name in COLUMNS])
DAY_MICROS = 24 * 3600 * 1_000_000
GROUP_ROWS, GROUP_BYTES = 128 << 10, 32 << 20  # of a row group, before compression
GROUPS_MAX = 128  # a file that has so many small ones grows no more
COPY_BYTES = 8 << 20


@dataclass(frozen=True)
class ArchiveTask:
    """A range to be archived, and the last file before it, if that is to grow."""

    server: str
    timeout: float
    hidden: str
    stretch: TopicRange
    tail: ArchivedPiece | None


def archive_range(task: ArchiveTask) -> list[ArchivedPiece]:
    """Write the range into hidden files; which, in order."""
    stretch = task.stretch
    given = {"server": task.server, "timeout": str(task.timeout), "subscribe": stretch.topic}
    options = source_options({**given, "includeHeaders": "true"}, streaming=False)
    shelf = TaskFiles(task)
    try:
        for rows in read(options, Layout(options, SCHEMA), TaskRange(stretch)):
            for day, part in by_day(rows):
                shelf.put(day, part)
        return shelf.close()
    except BaseException:
        shelf.drop()
        raise


def by_day(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each day (UTC), in their order."""
    micros = rows.column("timestamp").cast(pa.int64())
    days = pc.call_function("divide", [micros, pa.scalar(DAY_MICROS, pa.int64())])
    runs = pc.call_function("run_end_encode", [days])
    start = 0
    for stop, day in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        date = pa.scalar(day, pa.int64()).cast(pa.int32()).cast(pa.date32()).as_py()
        yield date.isoformat(), rows.slice(start, stop - start)
        start = stop


class TaskFiles:
    """The files of one task."""

    def __init__(self, task: ArchiveTask) -> None:
        self._task = task
        self._next = task.stretch.start
        self._writer: Writer | None = None
        self._done: list[ArchivedPiece] = []

    def put(self, day: str, rows: pa.RecordBatch) -> None:
        """Rows that come next."""
        writer = self._writer
        if writer is not None and (writer.day != day or writer.bytes >= FILE_BYTES):
            self._finish()
        if self._writer is None:
            self._writer = self._begin(day, rows.schema)
        self._writer.put(rows)
        self._next += rows.num_rows

    def close(self) -> list[ArchivedPiece]:
        """Everything is on the disk."""
        self._finish()
        if self._next != self._task.stretch.stop:
            raise Corrupt(f"{self._task.stretch} ended at {self._next}")
        return self._done

    def drop(self) -> None:
        """It failed: leave nothing behind, as far as that goes."""
        if self._writer is not None:
            self._writer.drop()
        for piece in self._done:
            Path(piece.path).unlink(missing_ok=True)

    def _begin(self, day: str, schema: pa.Schema) -> "Writer":
        tail = self._task.tail
        path = Path(self._task.hidden) / f"{secrets.token_hex(12)}.part"
        if self._done or tail is None or tail.day != day:
            return Writer(path, day, self._next, schema)
        old = pq.read_metadata(tail.path)
        if old.num_row_groups >= GROUPS_MAX:
            return Writer(path, day, self._next, schema)
        return Writer(path, day, tail.start, schema, grows=(tail.path, old))

    def _finish(self) -> None:
        if self._writer is None:
            return
        stretch = self._task.stretch
        writer = self._writer
        rows, size = writer.close()
        if writer.start + rows != self._next:
            raise Corrupt(f"{writer.path} has {rows} rows from {writer.start}, not to {self._next}")
        self._done.append(
            ArchivedPiece(
                stretch.topic,
                stretch.topic_id,
                writer.day,
                writer.start,
                rows,
                size,
                str(writer.path),
            )
        )
        self._writer = None


class Writer:
    """One Parquet file; rows are gathered into row groups.

    A file that grows begins with every byte of the smaller one, its end included, so that a
    reader that knows the file by the size it had (Spark, when the query was planned before) reads
    what was there, and not nothing.
    """

    def __init__(
        self,
        path: Path,
        day: str,
        start: int,
        schema: pa.Schema,
        *,
        grows: tuple[str, pq.FileMetaData] | None = None,
    ) -> None:
        self.path, self.day, self.start = path, day, start
        self._schema = schema
        self._old = grows[1] if grows else None
        self._sink = pa.OSFile(str(path), "wb")
        self._file = pq.ParquetWriter(
            self._sink, schema, compression=compression(), write_page_checksum=True
        )
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        if grows:
            self._copy(grows[0])

    @property
    def bytes(self) -> int:
        """How large the file is so far."""
        return self._sink.tell()

    def put(self, rows: pa.RecordBatch) -> None:
        """Rows that come next."""
        self._gathered.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> tuple[int, int]:
        """Let it be on the disk; how many rows it has, read back, and how many bytes."""
        self._flush()
        self._file.close()
        self._sink.close()
        if self._old is not None:
            self._join_ends(self._old)
        sync_file(self.path)
        rows = read_back(self.path, self.start)
        return rows, self.path.stat().st_size

    def drop(self) -> None:
        """Give it up."""
        with suppress(OSError, ValueError):  # a disk that is full does not take the end either
            self._file.close()
        self._sink.close()
        self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._gathered:
            table = pa.Table.from_batches(self._gathered, self._schema)
            self._file.write_table(table, row_group_size=max(self._rows, 1))
        self._gathered, self._rows, self._bytes = [], 0, 0

    def _copy(self, path: str) -> None:
        """All of a file, but its first four bytes, which stand there: each Parquet file has them.

        What is written after it has its place counted from the beginning of this file.
        """
        old = LocalDisk().open(path)
        try:
            position = self._sink.tell()
            while some := old.read(position, COPY_BYTES):
                self._sink.write(some)
                position += len(some)
        finally:
            old.close()

    def _join_ends(self, old: pq.FileMetaData) -> None:
        """The end of the file tells of the old rows, too."""
        old.append_row_groups(pq.read_metadata(self.path))
        joined = pa.BufferOutputStream()
        old.write_metadata_file(joined)
        file = LocalDisk().open(str(self.path))
        try:
            size = file.size()
            end = size - 8 - int.from_bytes(file.read(size - 8, 4), "little")
            file.truncate(end)
            file.write([joined.getvalue().to_pybytes()[4:]], end)
        finally:
            file.close()


def read_back(path: Path, start: int) -> int:
    """How many rows a file has: it must be what its name will say, dense from `start` on."""
    rows = 0
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(GROUP_ROWS, columns=["offset"]):
            expected = pa.array(range(start + rows, start + rows + batch.num_rows), pa.int64())
            if not batch.column(0).equals(expected):
                raise Corrupt(f"{path} was to have each offset from {start} on, and has not")
            rows += batch.num_rows
    return rows


def compression() -> str:
    """What files are packed with."""
    return "zstd" if pa.Codec.is_available("zstd") else "snappy"
