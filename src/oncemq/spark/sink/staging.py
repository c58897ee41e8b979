# pyright: basic
# pyarrow carries no types.
"""What a task of a write does: put its rows into stages that nobody sees until the commit.

Law: a stage is of one call: a task that is run again, or twice at a time, fills stages of its
own, and those that no commit names are given up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from oncemq.client.blocking.transactions import Stage
from oncemq.client.engine.stage_puts import StageToken
from oncemq.errors import ConfigError
from oncemq.spark.options.writer import SinkOptions
from oncemq.spark.runtime.connections import client
from oncemq.wire.contents import contents_of

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"  # Spark's own names for what it does not hand to a sink
BATCH_ID = "streaming.sql.batchId"

BYTES = (StringType, BinaryType)
# Of rows that were read from here.
PASSED_OVER = {"offset", "timestamp", "producer", "sequence", "_corrupt"}


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What a task has staged, for whom, and in which place of the batch it belongs."""

    partition: int
    query_id: str
    batch_id: int
    tokens: tuple[tuple[str, StageToken], ...]
    sums: tuple[tuple[str, int], ...]  # for each topic, what its rows are; none: not asked for


def stage_rows(options: SinkOptions, batches: "Iterator[pa.RecordBatch]") -> StagedRows:
    """Put the rows of one task where the commit finds them."""
    from oncemq.spark.sink.arrow_to_batch import (  # pyarrow with them: see `writers`
        bodies,
        by_topic,
    )

    context = TaskContext.get()
    assert context is not None, "a write runs in a task"
    mq = client(options.server, options.timeout)
    stages: dict[str, Stage] = {}
    sums: dict[str, int] = {}
    try:
        for rows in batches:
            for topic, part in by_topic(rows, options.topic):
                stage = stages.get(topic) or stages.setdefault(topic, mq.stage())
                for count, columns, body in bodies(part):
                    stage.put_batch(count, columns, body)
                    if options.compares_rows:
                        sums[topic] = sums.get(topic, 0) + contents_of(body, count, columns)
        tokens = tuple((topic, stage.close()) for topic, stage in stages.items())
    except BaseException:
        for stage in stages.values():
            stage.drop()
        raise
    return StagedRows(
        context.partitionId(),
        context.getLocalProperty(QUERY_ID) or "",
        int(context.getLocalProperty(BATCH_ID) or -1),
        tokens,
        tuple(sums.items()),
    )


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Refuse rows that are no messages, before anything runs."""
    fields = {field.name: field.dataType for field in schema}
    if not isinstance(fields.get("value"), BYTES):
        raise ConfigError(
            "rows to be written have a column value, of type string or binary: "
            "select('…', to_json(struct('*')).alias('value')) makes one"
        )
    if not isinstance(fields.get("key", StringType()), BYTES):
        raise ConfigError(f"key is string or binary, not {fields['key'].simpleString()}")
    if not options.topic and not isinstance(fields.get("topic"), StringType):
        raise ConfigError("say where rows go: the option topic, or a column topic of type string")
    if not _is_headers(fields.get("headers", MapType(StringType(), StringType()))):
        raise ConfigError("headers is map<string,string> or array<struct<key:string,value:binary>>")
    known = {"key", "value", "topic", "headers", *PASSED_OVER}
    for name in fields:
        if name not in known:
            raise ConfigError(f"a message has no column {name!r}: leave it out, or put it in value")


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = {field.name: field.dataType for field in kind.elementType}
    return (
        parts.keys() == {"key", "value"}
        and isinstance(parts["key"], StringType)
        and isinstance(parts["value"], BYTES)
    )
