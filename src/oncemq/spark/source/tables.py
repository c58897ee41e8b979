"""Tables of Spark's catalog: `CREATE TABLE orders USING oncemq OPTIONS (subscribe 'orders')`.

Spark 4.3 hands the options of a table to a Python source when the table is made, and only its
columns when it is used. So the options are kept with the columns, as the comment of the first one.
Law: options given with a query (`SELECT … FROM orders WITH (…)`) come before those of the table.
"""

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

from oncemq.errors import ConfigError
from oncemq.spark.columns.schema import schema_text
from oncemq.spark.options.reader import BATCH, EVERY, STREAM, source_options
from oncemq.spark.options.writer import BOTH as SINK

PROVIDER, OPTION = "provider", "option."  # what Spark adds to the options when a table is made
KEPT = "options of oncemq: "
SINK_NAMES = {name.lower() for name in SINK}
SINK_ONLY = SINK_NAMES - {name.lower() for name in EVERY}


def is_table(given: Mapping[str, str]) -> bool:
    """Whether a table is being made."""
    return PROVIDER in given


def table_schema(given: Mapping[str, str]) -> str:
    """The columns of a new table, with its options in the first one's comment."""
    options = {
        name.removeprefix(OPTION): text
        for name, text in given.items()
        if name.startswith(OPTION)  # beside these are its properties
    }
    schema = schema_text(source_options(_without(options, SINK_ONLY), streaming=None))
    first, _, others = schema.partition(", ")
    text = (KEPT + json.dumps(options, sort_keys=True)).replace("\\", "\\\\").replace("'", "\\'")
    return f"{first} COMMENT '{text}', {others}"


def read_options(
    given: Mapping[str, str], schema: StructType, *, streaming: bool
) -> dict[str, str]:
    """The options of a read: those given with it, and those of the table, if it is one.

    A table is for reads of either kind: what is for the other kind is passed over.
    """
    others = {name.lower() for name in (BATCH if streaming else STREAM)}
    return {**_without(_kept(given, schema), SINK_ONLY | others), **given}


def write_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of a write; into a table of one topic it goes to that topic."""
    table = _kept(given, schema)
    if not table:
        return dict(given)
    topics = source_options(_without(table, SINK_ONLY), streaming=None).topics
    sink = {name: text for name, text in table.items() if name in SINK_NAMES}
    return {**({"topic": topics[0]} if len(topics) == 1 else {}), **sink, **given}


def _kept(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options that the table was made with; none when it is no table."""
    for field in schema:
        comment = str((field.metadata or {}).get("comment", ""))
        if comment.startswith(KEPT):
            return json.loads(comment.removeprefix(KEPT))
    if not given:
        raise ConfigError(
            "no options came with this table: Spark 4.3 hands them to a Python source only when "
            "the table is made without a list of columns. Make it so: CREATE TABLE orders USING "
            "oncemq OPTIONS (server '…', subscribe 'orders'); or give them with the query: "
            "SELECT … FROM orders WITH (server '…', subscribe 'orders')"
        )
    return {}


def _without(options: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name not in names}
