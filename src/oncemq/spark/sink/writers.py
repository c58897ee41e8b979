# pyright: basic
# pyarrow carries no types.
"""`df.write` and `df.writeStream`: tasks stage, the driver publishes.

Law: pyarrow is imported where rows are. Spark starts a process for the commit of each
micro-batch, and that one has none.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from oncemq.errors import ConfigError
from oncemq.spark.options.writer import SinkOptions
from oncemq.spark.sink.publishing import give_up, publish_batch, publish_stream
from oncemq.spark.sink.staging import StagedRows, check_columns, stage_rows

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink. Spark makes one for each batch, and another for its commit."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> StagedRows:
        """In a task: stage its rows."""
        return stage_rows(self._options, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """On the driver: publish them all."""
        publish_stream(self._options, messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """On the driver, also after a commit that failed or seemed to: give stages up."""
        give_up(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> StagedRows:
        """In a task: stage its rows."""
        return stage_rows(self._options, iterator)

    def commit(self, messages: list[Any]) -> None:
        """On the driver: publish them all."""
        publish_batch(self._options, messages)

    def abort(self, messages: list[Any]) -> None:
        """On the driver: give stages up."""
        give_up(self._options, messages)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            "a topic is only ever added to: use mode('append'), and the output mode append; for "
            "others write within foreachBatch"
        )
