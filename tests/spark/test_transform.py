"""Transforms on a real Spark: the examples, every target, and what is run again adds nothing."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from oncemq import Client
from oncemq.apps import dead_letter_admin
from oncemq.cli.main import cli
from oncemq.errors import OnceMQError
from oncemq.protocol.records import Retention
from oncemq.spark.pipelines import Definition, Source, Target, Transformed, transform
from oncemq.spark.pipelines.run import PipelineRun
from oncemq.spark.pipelines.transforms.targets import Directory
from oncemq.spark.pipelines.transforms.transform import transform_on
from tests.spark.conftest import copied

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

Once = Callable[..., Transformed]


@pytest.fixture
def once(
    spark: SparkSession, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Once:
    """Run a transform to the end of what there is; its checkpoint is below `tmp_path`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return lambda what: transform(what, server=address, timeout=20, spark=spark)


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def put(mq: Client, topic: str, *values: dict[str, Any]) -> None:
    mq.create_topic(topic, Retention(forever=True))
    mq.put_many(topic, [json.dumps(each).encode() for each in values])


def values(mq: Client, topic: str) -> list[Any]:
    return [json.loads(each.payload) for each in mq.read(topic, 0, limit=10_000)]


def forget_the_last_commit(checkpoint: str) -> None:
    """As if Spark had been killed between the write and its own note of it."""
    commits = Path(checkpoint) / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()


def test_windows_of_the_example_go_to_a_topic_once(mq: Client, once: Once, tmp_path: Path) -> None:
    mq.create_topic("revenue", Retention(forever=True))
    orders = [{"item": "ab"[n % 2], "cents": n, "at": at(n)} for n in range(120)]
    put(mq, "orders", *orders, {"item": "a", "cents": 0, "at": at(3600)})
    done = once(EXAMPLES / "revenue.toml")
    assert done.checkpoint == str(tmp_path / "state/oncemq-pipelines/revenue/checkpoint")
    forget_the_last_commit(done.checkpoint)
    once(EXAMPLES / "revenue.toml")
    found = sorted((row["minute"], row["item"], row["cents"]) for row in values(mq, "revenue"))
    assert found == [
        ("2026-01-31T12:00:00.000Z", "a", sum(range(0, 60, 2))),
        ("2026-01-31T12:00:00.000Z", "b", sum(range(1, 60, 2))),
        ("2026-01-31T12:01:00.000Z", "a", sum(range(60, 120, 2))),
        ("2026-01-31T12:01:00.000Z", "b", sum(range(61, 120, 2))),
    ]
    assert {each.key for each in mq.read("revenue", 0)} == {b"a", b"b"}
    (checkpoint := Path(done.checkpoint)).rename(tmp_path / "away")
    with pytest.raises(OnceMQError, match="deleted and made anew"):
        once(EXAMPLES / "revenue.toml")
    shutil.rmtree(checkpoint)


def test_a_join_of_two_topics_goes_to_parquet_once(mq: Client, once: Once, tmp_path: Path) -> None:
    put(mq, "orders", *({"id": n, "item": "tea", "at": at(n)} for n in range(20)))
    put(mq, "payments", *({"order": n, "cents": 100 + n, "paid": at(60 + n)} for n in range(10)))
    once(EXAMPLES / "paid.py")
    put(
        mq, "payments", *({"order": n, "cents": 100 + n, "paid": at(60 + n)} for n in range(10, 20))
    )
    done = once(EXAMPLES / "paid.py")
    forget_the_last_commit(done.checkpoint)
    once(EXAMPLES / "paid.py")
    table = parquet.read_table(tmp_path / "paid")  # not by Spark: as anybody would
    assert sorted(table.column("id").to_pylist()) == list(range(20))
    assert sorted(table.column("cents").to_pylist()) == list(range(100, 120))
    shutil.rmtree(done.checkpoint)
    with pytest.raises(OnceMQError, match="was written by query"):
        once(EXAMPLES / "paid.py")
    assert parquet.read_table(tmp_path / "paid").num_rows == 20


def test_updates_and_tables_and_messages_as_they_are(
    mq: Client, once: Once, orders, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(topic="orders", rows=70)
    sql = "SELECT key, count(*) AS number FROM source GROUP BY key"
    counts = Definition(
        name="counts",
        sources={"source": source},
        sql=sql,
        mode="update",
        target=Target(topic="copy"),
    )
    done = once(counts)
    assert (done.messages, done.batches) == (120, 2)
    forget_the_last_commit(done.checkpoint)
    once(counts)
    last = {key: json.loads(value)["number"] for key, value in copied(mq)}
    assert last == {b"k0": 40, b"k1": 40, b"k2": 40}
    assert len(copied(mq)) == 6

    sql = "SELECT *, concat(topic, '-', CAST(key AS string)) AS to FROM source"
    target = Target(topic_column="to", unwanted="drop")
    mq.create_topic("orders-k1", Retention(forever=True))
    split = Definition(name="split", sources={"source": source}, sql=sql, target=target)
    once(split)
    found = [(each.key, each.payload) for each in mq.read("orders-k1", 0, limit=1000)]
    assert found == [(key, value) for key, value in orders if key == b"k1"]

    spark.sql(f"CREATE TABLE kept (text string) USING parquet LOCATION '{tmp_path / 'kept'}'")
    sql = "SELECT CAST(value AS string) AS text FROM source"
    once(Definition(name="kept", sources={"source": source}, sql=sql, target=Target(table="kept")))
    assert spark.table("kept").count() == 120
    spark.sql("DROP TABLE kept")


def test_one_that_follows_goes_on_until_it_is_asked_to_stop(
    mq: Client, once: Once, orders, spark: SparkSession, address: str
) -> None:
    sql = "SELECT key, value FROM source"
    source = {"source": Source(topic="orders")}
    what = Definition(name="f", sources=source, sql=sql, target=Target(topic="copy"))
    with PipelineRun("transform", "f", server=address, timeout=20, spark=spark) as run:

        def stop_at_last() -> None:
            with Client(address, timeout=60) as other:
                while other.topic("copy").topic.end < 120:
                    time.sleep(0.01)
                other.put("orders", b"one more", key=b"k")
                while other.topic("copy").topic.end < 121:
                    time.sleep(0.01)
            run.stopping.set()

        stopping = threading.Thread(target=stop_at_last)
        stopping.start()
        done = transform_on(run, what, follow=True)
        stopping.join()
    assert done.messages == 121
    assert copied(mq) == [*orders, (b"k", b"one more")]
    assert once(what).messages == 0  # the same checkpoint


def test_a_batch_at_work_ends_before_it_stops(
    orders, once: Once, spark: SparkSession, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = {"source": Source(topic="orders")}, Target(path="out")
    sql = "SELECT CAST(value AS string) AS text FROM source"
    what = Definition(name="g", sources=source, sql=sql, target=target)
    with PipelineRun("transform", "g", server=address, timeout=20, spark=spark) as run:
        looks = threading.Semaphore(0)

        def look(query: StreamingQuery) -> dict[str, Any]:
            looks.release()
            return status.__get__(query)

        def write_while_asked_to_stop(directory: Directory, batch: DataFrame, number: int) -> None:
            run.stopping.set()
            for _ in range(2):  # it looked, and still waits
                assert looks.acquire(timeout=20)
            write(directory, batch, number)

        status, write = StreamingQuery.status, Directory.write
        monkeypatch.setattr(StreamingQuery, "status", property(look))
        monkeypatch.setattr(Directory, "write", write_while_asked_to_stop)
        done = transform_on(run, what, follow=True)
    assert (done.messages, done.batches) == (120, 1)
    assert parquet.read_table("out").num_rows == 120
    assert once(what).messages == 0


WINDOWS = """
    SELECT window.start AS minute, sum(cents) AS cents FROM orders GROUP BY window(at, '1 minute')
"""


def test_a_bad_message_becomes_a_letter_once_beside_the_rows(mq: Client, once: Once) -> None:
    mq.create_topic("copy", Retention(forever=True))
    schema = "cents bigint, at timestamp"
    source = Source(topic="orders", schema=schema, watermark="at", delay="1 second")
    what = Definition(
        name="cents", sources={"orders": source}, sql=WINDOWS, target=Target(topic="copy")
    )
    put(mq, "orders", {"cents": 1, "at": at(0)})
    once(what)
    mq.put("orders", b"not JSON", key=b"k", headers={"trace": "7", "oncemq-dead-topic": "x"})
    put(mq, "orders", {"cents": 2, "at": at(100)}, {"cents": "3", "at": at(100)})
    with pytest.raises(
        OnceMQError, match=r"orders@1 does not fit: .*--dead cents\.dead, or dead ="
    ):
        once(what)
    patient = structs.replace(what, dead="cents.dead").check()  # of the same checkpoint
    done = once(patient)
    forget_the_last_commit(done.checkpoint)
    once(patient)
    assert [row["cents"] for row in values(mq, "copy")] == [1]
    first, second = dead_letter_admin.open_letters(mq, "cents.dead")
    assert (first.origin, first.key, first.payload) == ("orders@1", b"k", b"not JSON")
    assert (first.handler, first.headers) == ("pipeline:cents", {"trace": "7"})
    assert first.reason == f"the value does not fit: it is not JSON of {schema}"
    stored = mq.read("orders", 1)[0].timestamp
    assert datetime.fromisoformat(first.time) == stored
    assert (second.origin, second.headers) == ("orders@3", {})


def test_a_message_for_which_the_query_fails_becomes_a_letter(mq: Client, once: Once) -> None:
    mq.create_topic("copy", Retention(forever=True))

    def shares(orders: DataFrame) -> DataFrame:
        half = functions.udf(lambda each: 1 // (each - 7), "int")
        return orders.select(half("each").alias("half"), functions.expr("60 / each AS share"))

    source = Source(topic="orders", schema="each int")
    definition = Definition(
        name="shares",
        sources={"orders": source},
        function=shares,
        target=Target(topic="copy"),
        dead="shares.dead",
    )
    put(mq, "orders", *({"each": each} for each in (1, 0, 7)))
    once(definition)
    assert [row["share"] for row in values(mq, "copy")] == [60]
    found = {each.origin: each for each in dead_letter_admin.open_letters(mq, "shares.dead")}
    assert sorted(found) == ["orders@1", "orders@2"]
    assert "DIVIDE_BY_ZERO" in found["orders@1"].reason
    assert "ZeroDivisionError: integer division or modulo by zero" in found["orders@2"].reason
    assert found["orders@2"].payload == b'{"each": 7}'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sql": "SELEC 1"}, "PARSE_SYNTAX_ERROR"),
        ({"sql": "SELECT 1 AS value"}, "reads none of the sources"),
        ({"sql": "SELECT nothing FROM source"}, "UNRESOLVED_COLUMN"),
        ({"target": Target(topic="copy", key="item")}, "there is no column 'item', but key, value"),
        ({"sources": {"source": Source(topic="nowhere")}}, "nowhere"),
        ({"target": Target(topic="unwanted")}, "rows of this batch would vanish"),
        (
            {"sources": {"source": Source(topic="orders", watermark="value", delay="1 day")}},
            "'value' is a column of times; there are key binary",
        ),
    ],
)
def test_what_is_wrong_with_a_query_is_told_in_a_line(
    orders, once: Once, change: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {
        "name": "wrong",
        "sources": {"source": Source(topic="orders")},
        "sql": "SELECT key, value FROM source",
        "target": Target(topic="copy"),
    }
    with pytest.raises(OnceMQError, match=said) as told:
        once(Definition(**given | change))
    assert "\n" not in told.value.detail


def test_a_dry_run_writes_nothing(
    mq: Client, once: Once, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put(mq, "orders", {"item": "tea"})
    words = ["transform", str(EXAMPLES / "revenue.toml"), "--dry-run", "--server", address]
    with pytest.raises(SystemExit) as ended:
        cli.main(["pipeline", *words])
    assert ended.value.code == 0
    said = capfd.readouterr().out
    assert "cents   bigint" in said
    assert "as messages:\nCOLUMN  TYPE\nkey     string\nvalue   string" in said
    assert "Physical Plan" in said
    assert not (tmp_path / "state").exists()
    assert "_pipelines" not in [topic.name for topic in mq.topics()]  # nothing was done
