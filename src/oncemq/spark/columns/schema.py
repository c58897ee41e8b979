"""The columns that there are, and their types; light to import, for processes that only plan."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncemq.errors import ConfigError
from oncemq.spark.options.reader import ARRAY, SourceOptions

HEADERS = MapType(StringType(), StringType())
KAFKA_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": HEADERS,
    "producer": StringType(),
    "sequence": LongType(),
    "_corrupt": BinaryType(),
}


def schema_text(options: SourceOptions) -> str:
    """The schema when the user gives none, as Spark's SQL writes it."""
    value = {"binary": "binary", "string": "string"}.get(options.value_format)
    if value is None:
        if not options.value_schema:
            raise ConfigError(
                "valueFormat 'json' needs to know the fields: give the option valueSchema like "
                "'item string, amount double', or a schema() with value as a struct"
            )
        value = f"struct<{options.value_schema}>"
    columns = {name: kind.simpleString() for name, kind in TYPES.items()} | {"value": value}
    if options.headers_format == ARRAY:
        columns["headers"] = KAFKA_HEADERS.simpleString()
    if not options.headers:
        del columns["headers"]
    if not options.keep_malformed or options.value_format == "binary":
        del columns["_corrupt"]
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
