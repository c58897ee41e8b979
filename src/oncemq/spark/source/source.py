"""The data source `oncemq`: what Spark asks for, handed to the readers and writers.

Spark makes an instance of it on the driver and in planning processes of its own, and pickles it:
it holds the options and nothing else. Most of those processes never read: the readers, and with
them pyarrow, are imported by those that do.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from oncemq.spark.columns.schema import schema_text
from oncemq.spark.options.reader import source_options
from oncemq.spark.options.writer import sink_options
from oncemq.spark.runtime.connections import settle_in
from oncemq.spark.sink.writers import BatchWriter, StreamWriter
from oncemq.spark.source.tables import is_table, read_options, table_schema, write_options


class OnceMQDataSource(DataSource):
    """Topics of OnceMQ as tables and streams: `spark.readStream.format("oncemq")`."""

    @classmethod
    def name(cls) -> str:
        """What `format()` takes."""
        return "oncemq"

    def schema(self) -> str:
        """The columns, when the user names none."""
        if is_table(self.options):
            return table_schema(self.options)
        return schema_text(source_options(self.options, streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from oncemq.spark.source.batch_reader import BatchReader

        settle_in()
        options = read_options(self.options, schema, streaming=False)
        return BatchReader(source_options(options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from oncemq.spark.source.stream_reader import StreamReader

        settle_in()
        options = read_options(self.options, schema, streaming=True)
        return StreamReader(source_options(options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        settle_in()
        options = sink_options(write_options(self.options, schema), streaming=False)
        return BatchWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        settle_in()
        return StreamWriter(sink_options(self.options, streaming=True), schema, overwrite=overwrite)
