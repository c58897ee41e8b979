"""Options: each checked, none passed over, and errors that say what would be right."""

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from oncemq.errors import ConfigError
from oncemq.spark.columns.layout import Layout
from oncemq.spark.columns.schema import schema_text
from oncemq.spark.options.positions import Edge, Time
from oncemq.spark.options.reader import SourceOptions, source_options


def options(streaming: bool | None = False, /, **given: str) -> SourceOptions:
    """As Spark hands them over: names in lower case."""
    return source_options({name.lower(): text for name, text in given.items()}, streaming=streaming)


def schema_of(**columns) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_the_defaults() -> None:
    batch, stream = options(subscribe="orders"), options(True, subscribe="orders")
    assert (batch.start, stream.start) == (Edge({}, "earliest"), Edge({}, "latest"))
    assert batch.server == "tcp://127.0.0.1:5556"
    assert (batch.tasks_min, batch.fail_on_data_loss, batch.headers) == (1, True, False)
    assert (batch.value_format, batch.keep_malformed) == ("binary", False)
    assert (stream.subscription, stream.trigger_rows_max) == ("", None)


def test_topics_are_named_once_each_or_by_a_pattern() -> None:
    assert options(subscribe="orders, refunds,orders").topics == ("orders", "refunds")
    assert options(subscribePattern="order.*").pattern == "order.*"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "say which topics"),
        ({"subscribe": " , "}, "say which topics"),
        ({"subscribe": "a", "subscribePattern": "b"}, "not both"),
        ({"subscribePattern": "("}, "no pattern"),
        ({"subscribe": "a\nb"}, "control character"),
        ({"subscribe": "a", "subscrbePattern": "b"}, "did you mean subscribePattern"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "b"}, "no option 'kafka.bootstrap.servers'"),
        ({"subscribe": "a", "path": "b"}, "has topics, not paths"),
        ({"subscribe": "a", "subscription": "b"}, "subscription is not for a batch read"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is not for"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions is a whole number"),
        ({"subscribe": "a", "minPartitions": "two"}, "not 'two'"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "'true' or 'false', not 'no'"),
        ({"subscribe": "a", "timeout": "-1"}, "seconds above 0"),
        ({"subscribe": "a", "valueFormat": "avro"}, "'binary' or 'string' or 'json'"),
        ({"subscribe": "a", "malformed": "drop"}, "'refuse' or 'keep'"),
        ({"subscribe": "a", "valueSchema": "n bigint"}, "goes with valueFormat 'json'"),
        ({"subscribe": "a", "startingOffsets": "newest"}, "not 'newest'"),
        ({"subscribe": "a", "startingOffsets": '{"a": -3}'}, "offsets by topic"),
        ({"subscribe": "a", "startingOffsets": '{"a": true}'}, "offsets by topic"),
        ({"subscribe": "a", "startingOffsets": "[1]"}, "offsets by topic"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 1}}'}, "a topic here has none"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": 1}}'}, "has none: write"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"b": 1}'}, "names 'b'"),
        ({"subscribe": "a", "endingOffsetsByTimestamp": "5"}, "times by topic like"),
        ({"subscribe": "a", "endingOffsetsByTimestamp": '{"a": "noon"}'}, "milliseconds since"),
        ({"subscribe": "a", "endingTimestamp": "5", "endingOffsets": "latest"}, "not both"),
        ({"assign": '{"a": [0, 1]}'}, "write assign as '[\"a\"]', or subscribe"),
        ({"assign": "[1]"}, 'like ["orders", "refunds"]'),
        ({"assign": "a", "subscribe": "a"}, "one of them"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "x:1"}, "the option server names"),
        ({"subscribe": "a", "kafka.security.protocol": "SSL"}, "Kafka's own client"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "5"}, "is not for a batch read"),
        ({"subscribe": "a", "topic": "b"}, "no option 'topic'"),
        ({"subscribe": "a", "startingOffsets": '{"b": 1}'}, "names 'b'"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "not 'earliest'"),
        ({"subscribe": "a", "endingOffsets": '{"a": "earliest"}'}, "endingOffsets is 'latest'"),
        ({"subscribe": "a", "startingTimestamp": "noon"}, "milliseconds since 1970"),
        (
            {"subscribe": "a", "startingTimestamp": "5", "startingOffsets": "latest"},
            "not both",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(**given)
    assert said in str(refused.value)


def test_an_ending_is_not_for_a_stream() -> None:
    with pytest.raises(ConfigError, match="endingOffsets is not for a stream"):
        options(True, subscribe="a", endingOffsets="latest")
    with pytest.raises(ConfigError, match="the system's"):
        options(True, subscribe="a", subscription="_mine")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than maxOffsetsPerT"),
        ({"maxTriggerDelay": "5m"}, "goes with minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "5", "minOffsetsPerTrigger": "5"}, "a time like 30s or 15m"),
        ({"endingTimestamp": "5"}, "endingTimestamp is not for a stream"),
        ({"holdExpires": "59s"}, "holdExpires is a time like 12h or 7d, or never"),
        ({"holdExpires": "3651d"}, "holdExpires is a time like 12h or 7d, or never"),
    ],
)
def test_what_is_wrong_with_a_stream_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(True, subscribe="a", **given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1m", 60.0), ("3650d", 315_360_000.0), ("never", 0.0), ("", None)]
)
def test_a_hold_outlives_its_query_for_a_minute_up_to_ten_years(
    text: str, seconds: float | None
) -> None:
    assert options(True, subscribe="a", holdExpires=text).hold_expires == seconds


def test_few_rows_wait_for_a_quarter_of_an_hour_unless_told_otherwise() -> None:
    few = {"subscribe": "a", "minOffsetsPerTrigger": "5"}
    assert options(True, **few).trigger_delay == 900
    assert options(True, **few, maxTriggerDelay="1500ms").trigger_delay == 1.5
    assert options(True, subscribe="a").trigger_rows_min is None


def test_offsets_by_topic_know_kafkas_numbers() -> None:
    found = options(
        subscribe="a,b,c,d", startingOffsets='{"a": 5, "b": -2, "c": -1, "d": "latest"}'
    )
    assert found.start.topics == {"a": 5, "b": "earliest", "c": "latest", "d": "latest"}
    assert options(subscribe="a", endingOffsets='{"a": 9}').stop.topics == {"a": 9}
    assert options(subscribe="a", startingOffsets="latest").start.others == "latest"


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1700000000123", 1_700_000_000_123_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
        ("2023-11-14T23:13:20.000001+01:00", 1_700_000_000_000_001),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000),
    ],
)
def test_a_time_is_milliseconds_or_a_date(text: str, micros: int) -> None:
    assert options(subscribe="a", startingTimestamp=text).start.others == Time(micros)


def test_no_subscription_is_said_by_name() -> None:
    assert options(True, subscribe="a", subscription="none").subscription is None
    assert options(True, subscribe="a", subscription="mine").subscription == "mine"


# ------------------------------------------------------------------ columns


def test_the_schema_has_what_was_asked_for() -> None:
    plain = "key binary, value binary, topic string, offset bigint, timestamp timestamp"
    assert schema_text(options(subscribe="a")) == f"{plain}, producer string, sequence bigint"
    rich = options(
        None, subscribe="a", includeHeaders="true", valueFormat="json",
        valueSchema="n bigint, s string", malformed="keep",
    )  # fmt: skip
    assert schema_text(rich) == (
        "key binary, value struct<n bigint, s string>, topic string, offset bigint, "
        "timestamp timestamp, headers map<string,string>, producer string, sequence bigint, "
        "_corrupt binary"
    )
    kafkas = options(subscribe="a", includeHeaders="true", headersFormat="array")
    assert "headers array<struct<key:string,value:binary>>, producer" in schema_text(kafkas)


def test_json_without_a_schema_says_how_to_give_one() -> None:
    with pytest.raises(ConfigError, match="valueSchema like"):
        schema_text(options(subscribe="a", valueFormat="json"))


@pytest.mark.parametrize(
    ("schema", "given", "said"),
    [
        (schema_of(ofset=LongType()), {}, "did you mean offset"),
        (schema_of(partition=LongType()), {}, "no column 'partition'"),
        (schema_of(offset=StringType()), {}, "offset is bigint, not string"),
        (schema_of(value=StringType()), {}, "value is binary, not string"),
        (schema_of(value=BinaryType()), {"valueFormat": "string"}, "value is string"),
        (schema_of(value=StringType()), {"valueFormat": "json"}, "value is a struct, not string"),
        (schema_of(value=StringType(), _corrupt=BinaryType()), {"valueFormat": "string"}, "keep"),
        (
            schema_of(_corrupt=BinaryType()),
            {"valueFormat": "string", "malformed": "keep"},
            "ask for both",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Layout(options(subscribe="a", **given), schema)
    assert said in str(refused.value)
