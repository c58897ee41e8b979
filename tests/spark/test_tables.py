"""Tables of Spark's catalog."""

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from oncemq import Client
from oncemq.protocol.records import Retention

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def table(spark: SparkSession, mq: Client, address: str) -> Iterator[str]:
    """A table of one topic; its name."""
    spark.sql(
        "CREATE TABLE sold USING oncemq OPTIONS "
        f"(server '{address}', subscribe 'orders', valueFormat 'string', unwanted 'refuse', "
        "maxOffsetsPerTrigger '100') COMMENT 'what was sold' TBLPROPERTIES (owner_of_it 'us')"
    )
    yield "sold"
    spark.sql("DROP TABLE sold")


def test_a_table_is_read_as_it_is_now_and_added_to(
    spark: SparkSession, mq: Client, table: str
) -> None:
    mq.put("orders", b"one")
    values = "SELECT value FROM sold ORDER BY offset"
    assert [row.value for row in spark.sql(values).collect()] == ["one"]
    spark.sql("INSERT INTO sold (key, value) VALUES (X'6B', 'two'), (NULL, 'three')")
    assert [row.value for row in spark.sql(values).collect()] == ["one", "two", "three"]
    assert [(each.key, each.payload) for each in mq.read("orders", 1)] == [
        (b"k", b"two"),
        (None, b"three"),
    ]
    few = "SELECT value FROM sold WITH (startingOffsets '{\"orders\": 2}')"
    assert [row.value for row in spark.sql(few).collect()] == ["three"]
    assert spark.readStream.table("sold").isStreaming
    with pytest.raises(Exception, match="a topic is only ever added to"):
        spark.sql("INSERT OVERWRITE sold (value) VALUES ('x')")
    assert mq.topic("orders").topic.end == 3


def test_what_is_wrong_with_a_table_is_said(spark: SparkSession, mq: Client, address: str) -> None:
    with pytest.raises(AnalysisException, match="did you mean subscribe"):
        spark.sql(f"CREATE TABLE bad USING oncemq OPTIONS (server '{address}', subscrib 'orders')")
    spark.sql("CREATE TABLE listed (value binary) USING oncemq OPTIONS (subscribe 'orders')")
    try:
        with pytest.raises(AnalysisException, match="made without a list of columns"):
            spark.sql("SELECT * FROM listed").collect()
        options = f"WITH (server '{address}', subscribe 'orders')"
        assert spark.sql(f"SELECT * FROM listed {options}").collect() == []
    finally:
        spark.sql("DROP TABLE listed")


def test_into_a_table_of_many_topics_each_row_says_which(
    spark: SparkSession, mq: Client, address: str
) -> None:
    mq.create_topic("refunds", Retention(forever=True))
    options = f"server '{address}', subscribePattern 'orders|refund\\\\w', valueFormat 'string'"
    spark.sql(f"CREATE TABLE all_of_them USING oncemq OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO all_of_them (topic, value) VALUES ('refunds', 'x'), ('orders', 'y')")
        found = spark.sql("SELECT topic, value FROM all_of_them").collect()
        assert sorted(map(tuple, found)) == [("orders", "y"), ("refunds", "x")]
    finally:
        spark.sql("DROP TABLE all_of_them")
