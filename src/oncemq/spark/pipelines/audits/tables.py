# pyright: basic
# pyarrow carries no types.
"""Ids of messages in a column of SQLite or PostgreSQL, as a table of Spark, without a JDBC driver.

One task reads them, in the order in which the database gives them, a page at a time.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncemq.databases.opening import opener, sqlite_path

NAME = "oncemq-ids"
PAGE = 10_000
PART = 1 << 20  # rows that the audit puts in order at a time
SCHEMA = "id string, part bigint, row bigint"


class IdsDataSource(DataSource):
    """Options: `url` (a path, or postgresql://…), `table` and `column`."""

    @classmethod
    def name(cls) -> str:
        """What `format()` takes."""
        return NAME

    def schema(self) -> str:
        """The ids, and their places."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return IdsReader(self.options["url"], self.options["table"], self.options["column"])


class IdsReader(DataSourceReader):
    """Reads one column."""

    def __init__(self, url: str, table: str, column: str) -> None:
        self._url = url
        names = table.split(".") if sqlite_path(url) is None else [table]  # with a schema
        self._statement = f"SELECT {_quoted(column)} FROM {'.'.join(map(_quoted, names))}"

    def partitions(self) -> list[InputPartition]:
        """One: nothing else keeps the order."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, in pages."""
        connection = opener(self._url)()
        try:
            # PostgreSQL hands a named cursor's rows over page by page, and others all at once.
            named = {} if sqlite_path(self._url) is not None else {"name": "oncemq_audit"}
            cursor = connection.cursor(**named)
            cursor.execute(self._statement)
            row = 0
            while page := cursor.fetchmany(PAGE):
                yield _batch([each for (each,) in page], row)
                row += len(page)
            cursor.close()
        finally:
            connection.close()


def _batch(names: list[object], first: int) -> pa.RecordBatch:
    rows = range(first, first + len(names))
    return pa.record_batch(
        {
            "id": pa.array([None if each is None else str(each) for each in names], pa.string()),
            "part": pa.array([row // PART for row in rows], pa.int64()),
            "row": pa.array(rows, pa.int64()),
        }
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
