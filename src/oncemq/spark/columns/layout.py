# pyright: basic
# pyarrow carries no types.
"""The columns of a row, and which of them a query asked for.

Spark does not tell a Python source which columns a query uses, but it does hand over a schema
that the user gave: a subset of the columns, in any order, is read and nothing else.
"""

from collections.abc import Iterator
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    StringType,
    StructField,
    StructType,
)

from oncemq.client.verbs.columns import ColumnBatch
from oncemq.errors import ConfigError
from oncemq.spark.columns import values
from oncemq.spark.columns.batch_to_arrow import Values, record_batches
from oncemq.spark.columns.schema import KAFKA_HEADERS, TYPES
from oncemq.spark.options.reader import SourceOptions


class Layout:
    """From batches to the record batches of one query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for field in schema:
            _check(options, field)
        if "_corrupt" in schema.names and "value" not in schema.names:
            raise ConfigError("the column _corrupt goes with the column value: ask for both")
        self._schema = schema
        self._options = options

    def rows(self, batches: Iterator[ColumnBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of these messages."""
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        return record_batches(batches, arrow, self._values(arrow))

    def _values(self, arrow: pa.Schema) -> Values | None:
        options = self._options
        if options.value_format == "binary" or "value" not in arrow.names:
            return None
        if options.value_format == "string":
            return values.text(keep=options.keep_malformed)
        return values.json(arrow.field("value").type, keep=options.keep_malformed)


def _check(options: SourceOptions, field: StructField) -> None:
    expected = TYPES.get(field.name)
    if expected is None:
        near = get_close_matches(field.name, TYPES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TYPES)}"
        raise ConfigError(f"a message has no column {field.name!r}; {hint}")
    keeps = options.keep_malformed and options.value_format != "binary"
    if field.name == "_corrupt" and not keeps:
        raise ConfigError("the column _corrupt needs malformed 'keep' and a valueFormat not binary")
    if field.name == "headers" and isinstance(field.dataType, ArrayType):
        expected = KAFKA_HEADERS  # as Kafka's source has them; a map otherwise
    if field.name == "value" and options.value_format == "string":
        expected = StringType()
    if field.name == "value" and options.value_format == "json":
        if not isinstance(field.dataType, StructType):
            raise ConfigError(
                f"with valueFormat 'json' value is a struct, not {field.dataType.simpleString()}"
            )
    elif field.dataType.simpleString() != expected.simpleString():
        raise ConfigError(
            f"the column {field.name} is {expected.simpleString()}, "
            f"not {field.dataType.simpleString()}"
        )
