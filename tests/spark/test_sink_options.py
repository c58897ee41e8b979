"""What a write of Spark is known by at the server, and what is no write: values, and refusals."""

from contextlib import nullcontext

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
)

from oncemq import Client
from oncemq.errors import ConfigError
from oncemq.protocol.records import Retention
from oncemq.spark.options.writer import SinkOptions, sink_options
from oncemq.spark.sink import staging
from oncemq.spark.sink.writers import BatchWriter, StreamWriter
from tests.spark.test_sink import TEXT, Task, left_behind, schema_of, write_batch

STRING, BINARY, INT = StringType(), BinaryType(), IntegerType()
LONG = "hdfs://cluster/" + "ä" * 130


def test_what_a_stream_asks_for_unless_it_is_told() -> None:
    given = {"server": "tcp://a:1", "sink": "x"}
    assert sink_options(given, streaming=True) == SinkOptions(
        "tcp://a:1", 60.0, "", "spark:x", None, drop_unwanted=False, same_rows=True
    )


def test_what_a_batch_write_asks_for() -> None:
    given = {
        "server": "tcp://a:1", "timeout": "2.5", "topic": "out", "unwanted": "drop",
        "repeats": "any", "txnAppId": "x", "txnVersion": "0",
    }  # fmt: skip
    assert sink_options(given, streaming=False) == SinkOptions(
        "tcp://a:1", 2.5, "out", "spark-app:x", 0, drop_unwanted=True, same_rows=False
    )


@pytest.mark.parametrize(
    ("owner", "same_rows", "compares"),
    [("spark:x", True, True), ("spark:x", False, False), ("", True, False), ("", False, False)],
)
def test_rows_are_compared_where_a_write_can_be_repeated(
    owner: str, same_rows: bool, compares: bool
) -> None:
    options = SinkOptions("", 1, "", owner, None, drop_unwanted=False, same_rows=same_rows)
    assert options.compares_rows is compares


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("n" * 249, "spark:" + "n" * 249),
        ("n" * 250, "spark:213b83271b358ed9…" + "n" * 40),
        (LONG, "spark:d1548c2626c46735…" + "ä" * 40),
    ],
)
def test_a_long_name_is_at_the_server_what_it_always_was(name: str, owner: str) -> None:
    """Another one would be another sink's: batches that were published would be so again."""
    assert sink_options({"sink": name}, streaming=True).owner == owner


def version_of(text: str) -> int | None:
    given = {"txnAppId": "x", "txnVersion": text}
    return sink_options(given, streaming=False).version


@pytest.mark.parametrize("text", ["0", "7", "9" * 18])
def test_versions_are_whole_numbers(text: str) -> None:
    assert version_of(text) == int(text)


@pytest.mark.parametrize("text", ["", "1" + "0" * 18, "1.0", "+1", "²"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="txnVersion is a whole number from 0 on, not"):
        version_of(text)


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({"sink": "a\0"}, True, "control character"),
        ({"checkpointLocation": "a\0"}, True, "control character"),
        ({"txnAppId": "a\0", "txnVersion": "1"}, False, "control character"),
        ({"txnVersion": "1"}, False, "go together"),
        ({"txnAppId": "", "txnVersion": "1"}, False, "go together"),
        ({"checkpointLocation": "/"}, True, "needs a name under which"),
    ],
)
def test_names_that_none_can_have_are_refused(
    given: dict[str, str], streaming: bool, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        sink_options(given, streaming=streaming)


@pytest.mark.parametrize(
    ("headers", "fit"),
    [
        (MapType(STRING, STRING), True),
        (ArrayType(schema_of(key=STRING, value=BINARY)), True),
        (ArrayType(schema_of(value=STRING, key=STRING)), True),
        (MapType(INT, STRING), False),
        (MapType(STRING, INT), False),
        (MapType(STRING, BINARY), False),
        (ArrayType(STRING), False),
        (schema_of(key=STRING, value=BINARY), False),
        (ArrayType(schema_of(key=STRING)), False),
        (ArrayType(schema_of(key=INT, value=BINARY)), False),
        (ArrayType(schema_of(key=STRING, value=INT)), False),
        (ArrayType(schema_of(key=STRING, value=BINARY, more=STRING)), False),
    ],
)
def test_headers_are_texts_by_their_names(headers: DataType, fit: bool) -> None:
    options = sink_options({"topic": "out", "sink": "x"}, streaming=True)
    schema = schema_of(value=STRING, headers=headers)
    said = "headers is map<string,string> or array<struct<key:string"
    with nullcontext() if fit else pytest.raises(ConfigError, match=said):
        StreamWriter(options, schema, overwrite=False)


def test_a_topic_of_another_type_says_nothing_of_where_rows_go() -> None:
    options = sink_options({"sink": "x"}, streaming=True)
    StreamWriter(options, schema_of(value=STRING, topic=STRING), overwrite=False)
    with pytest.raises(ConfigError, match="say where rows go"):
        StreamWriter(options, schema_of(value=STRING, topic=BINARY), overwrite=False)


def test_a_stream_that_overwrites_is_refused() -> None:
    with pytest.raises(ConfigError, match="only ever added to"):
        StreamWriter(sink_options({"sink": "a"}, streaming=True), TEXT, overwrite=True)


def test_a_batch_write_that_cannot_be_repeated_has_no_sink(
    address: str, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.create_topic("out", Retention(forever=True))
    with pytest.raises(ConfigError, match="use txnAppId and txnVersion here"):
        write_batch(address, monkeypatch, ["a"], sink="totals")
    assert mq.topic("out").topic.end == 0


def test_a_batch_write_that_fails_leaves_no_stages(
    address: str, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"server": address, "topic": "out"}
    writer = BatchWriter(sink_options(given, streaming=False), TEXT, overwrite=False)
    monkeypatch.setattr(staging.TaskContext, "get", lambda: Task(3, {}))
    rows = pa.RecordBatch.from_pydict({"value": ["a"]})
    staged = writer.write(iter([rows]))
    assert (staged.partition, staged.query_id, staged.batch_id, staged.sums) == (3, "", -1, ())
    assert [(topic, token.count) for topic, token in staged.tokens] == [("out", 1)]
    writer.abort([None, staged])
    assert not left_behind(mq, [staged])
