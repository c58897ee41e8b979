"""The ceilings: a source of Arrow batches made once, and a sink that drops what it is given."""

import itertools
import random
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

SCHEMA = "key binary, value binary, offset bigint, timestamp timestamp"
KEY_BYTES = 16
VALUE_BYTES = 100


class Ready(DataSource):
    """Arrow batches made once, of rows like ours."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema) -> DataSourceReader:
        return ReadyReader(int(self.options["rows"]), int(self.options.get("tasks", "2")))


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int) -> None:
        self._rows, self._tasks = rows, tasks

    def partitions(self) -> list[InputPartition]:
        cuts = [self._rows * part // self._tasks for part in range(self._tasks + 1)]
        return [InputPartition(b - a) for a, b in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        made = _made(65_536)
        for start in range(0, partition.value, made.num_rows):
            yield made.slice(0, min(made.num_rows, partition.value - start))


_kept: dict[int, pa.RecordBatch] = {}  # of a worker, for task after task


def _made(rows: int) -> pa.RecordBatch:
    if rows not in _kept:
        _kept[rows] = pa.RecordBatch.from_arrays(
            [
                pa.array([b"%0*d" % (KEY_BYTES, n) for n in range(rows)], pa.binary()),
                pa.array([random.randbytes(VALUE_BYTES) for _ in range(rows)], pa.binary()),
                pa.array(range(rows), pa.int64()),
                pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", "UTC")),
            ],
            names=["key", "value", "offset", "timestamp"],
        )
    return _kept[rows]


class Void(DataSource):
    """Arrow batches that are looked at and dropped."""

    @classmethod
    def name(cls) -> str:
        return "void"

    def writer(self, schema, overwrite: bool) -> DataSourceArrowWriter:
        return VoidWriter()

    def streamWriter(self, schema, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return VoidStreamWriter()


def _looked_at(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    sum(each.num_rows for each in iterator)
    return WriterCommitMessage()


class VoidWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _looked_at(iterator)


class VoidStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _looked_at(iterator)
