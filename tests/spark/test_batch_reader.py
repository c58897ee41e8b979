"""`spark.read`, without Spark: which rows, cut into which tasks, and what is refused."""

import json
import time
from collections.abc import Callable

import pytest

from oncemq import Client
from oncemq.errors import ConfigError, NoSuchTopic, Unreachable
from oncemq.protocol.records import Retention
from oncemq.spark.options.reader import source_options
from oncemq.spark.source.batch_reader import BatchReader
from oncemq.spark.source.data_loss import DataLost
from tests.spark.conftest import BRIEF, Rows, run_tasks, settle

Read = Callable[..., Rows]


def offsets(rows: Rows, topic: str = "orders") -> list[int]:
    return [row[1] for row in rows if row[0] == topic]


def test_everything_that_is_kept_is_read_once_in_order(mq: Client, read: Read) -> None:
    mq.put_many("orders", [b"%d" % n for n in range(50)])
    rows = read(subscribe="orders", minPartitions="4")
    assert rows == [("orders", n, b"%d" % n) for n in range(50)]


def test_a_topic_without_messages_has_no_rows(mq: Client, read: Read) -> None:
    assert read(subscribe="orders") == []


def test_from_an_offset_up_to_an_offset(mq: Client, read: Read) -> None:
    mq.put_many("orders", [b"x"] * 10)
    some = read(subscribe="orders", startingOffsets='{"orders": 3}', endingOffsets='{"orders": 7}')
    assert offsets(some) == [3, 4, 5, 6]
    assert read(subscribe="orders", startingOffsets="latest") == []
    assert offsets(read(subscribe="orders", startingOffsets='{"orders": -2}')) == list(range(10))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": '{"orders": 11}'}, "startingOffsets is 11 for 'orders'"),
        ({"endingOffsets": '{"orders": 11}'}, "holds offsets 0 up to 10"),
    ],
)
def test_an_offset_beyond_the_end_is_refused(
    mq: Client, read: Read, given: dict[str, str], said: str
) -> None:
    mq.put_many("orders", [b"x"] * 10)
    with pytest.raises(ConfigError) as refused:
        read(subscribe="orders", **given)
    assert said in str(refused.value)


def test_from_a_time(mq: Client, read: Read) -> None:
    mq.put_many("orders", [b"a", b"b"])
    mq.put("orders", b"c")
    third = mq.read("orders", 2)[0].timestamp
    assert offsets(read(subscribe="orders", startingTimestamp=third.isoformat())) == [2]
    assert offsets(read(subscribe="orders", startingTimestamp="0")) == [0, 1, 2]
    later = str(int(time.time() + 3600) * 1000)
    assert read(subscribe="orders", startingTimestamp=later) == []
    assert mq.subscriptions() == []  # asking left nothing behind


def test_up_to_a_time(mq: Client, read: Read) -> None:
    mq.create_topic("refunds", Retention(forever=True))
    mq.put_many("orders", [b"a", b"b"])
    mq.put("orders", b"c")
    mq.put("refunds", b"d")
    third = mq.read("orders", 2)[0].timestamp
    micros = round(third.timestamp() * 1_000_000)
    assert offsets(read(subscribe="orders", endingTimestamp=third.isoformat())) == [0, 1]
    by_topic = json.dumps({"orders": -(-micros // 1000)})  # milliseconds, as for Kafka
    both = {"subscribe": "orders,refunds"}
    assert len(read(**both, endingOffsetsByTimestamp=by_topic)) == 4
    assert offsets(read(**both, startingOffsetsByTimestamp='{"orders": 0}')) == [0, 1, 2]
    assert read(subscribe="orders", endingTimestamp="0") == []
    later = str(int(time.time() + 3600) * 1000)
    assert offsets(read(subscribe="orders", endingTimestamp=later)) == [0, 1, 2]
    from_then = json.dumps({"orders": third.isoformat()})
    assert offsets(read(**both, startingOffsetsByTimestamp=from_then)) == [2]
    assert mq.subscriptions() == []


def test_topics_may_be_assigned(mq: Client, read: Read) -> None:
    mq.put("orders", b"a")
    assert offsets(read(assign='["orders"]')) == [0]
    assert offsets(read(assign="orders")) == [0]


def test_several_topics_by_name_and_by_pattern(mq: Client, read: Read) -> None:
    mq.create_topic("orders-eu", Retention(forever=True))
    mq.create_topic("refunds", Retention(forever=True))
    for topic in ("orders", "orders-eu", "refunds"):
        mq.put(topic, b"x")
    assert [row[0] for row in read(subscribe="orders,refunds")] == ["orders", "refunds"]
    assert [row[0] for row in read(subscribePattern="orders.*")] == ["orders", "orders-eu"]
    assert [row[0] for row in read(subscribePattern="order")] == []


def test_many_small_topics_are_read_by_fewer_tasks(mq: Client, address: str) -> None:
    names = [f"small-{number:02}" for number in range(40)]
    for name in names:
        mq.create_topic(name, Retention(forever=True))
        mq.put_many(name, [name.encode()] * 3)
    given = {"server": address, "subscribe": ",".join(names), "failOnDataLoss": "false"}
    reader = BatchReader(source_options(given, streaming=False), BRIEF)
    tasks = reader.partitions()
    assert len(tasks) < len(names)
    everything = [(name, offset, name.encode()) for name in names for offset in range(3)]
    assert run_tasks(reader, tasks) == everything
    mq.delete_topic("small-01")
    others = [row for row in everything if row[0] != "small-01"]
    assert run_tasks(reader, tasks) == others  # the task goes on with the next topic


def test_a_missing_topic_is_refused_and_shows_what_there_is(mq: Client, read: Read) -> None:
    with pytest.raises(NoSuchTopic, match="unknown topic 'ordres'; this server has: orders"):
        read(subscribe="ordres")


def test_what_is_put_after_the_planning_is_not_read(mq: Client, address: str) -> None:
    mq.put_many("orders", [b"a", b"b"])
    options = source_options({"server": address, "subscribe": "orders"}, streaming=False)
    reader = BatchReader(options, BRIEF)
    tasks = reader.partitions()
    mq.put("orders", b"c")
    assert offsets(run_tasks(reader, tasks)) == [0, 1]
    assert run_tasks(reader, tasks) == run_tasks(reader, tasks)  # a task that is run again


def freed(mq: Client, address: str, fail: str) -> tuple[BatchReader, list]:
    """A read that was planned before part of it was freed."""
    mq.subscribe("events")
    mq.put_many("events", [b"%d" % n for n in range(10)])
    given = {"server": address, "subscribe": "events", "failOnDataLoss": fail}
    reader = BatchReader(source_options(given, streaming=False), BRIEF)
    tasks = list(reader.partitions())
    settle(mq, "events", 4)
    return reader, tasks


def test_rows_that_are_no_longer_kept_fail_the_read_by_their_range(
    mq: Client, address: str
) -> None:
    reader, tasks = freed(mq, address, "true")
    with pytest.raises(DataLost, match="offsets 0 up to 4 of 'events' are no longer kept: the se"):
        run_tasks(reader, tasks)


def test_rows_that_are_no_longer_kept_are_skipped_when_told_to(
    mq: Client, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader, tasks = freed(mq, address, "false")
    assert offsets(run_tasks(reader, tasks), "events") == list(range(4, 10))
    assert "offsets 0 up to 4 of 'events'" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_went_after_the_planning(
    mq: Client, address: str, fail: str, again: bool
) -> None:
    mq.put_many("orders", [b"a", b"b"])
    given = {"server": address, "subscribe": "orders", "failOnDataLoss": fail}
    reader = BatchReader(source_options(given, streaming=False), BRIEF)
    tasks = reader.partitions()
    mq.delete_topic("orders")
    if again:
        mq.create_topic("orders", Retention(forever=True))
        mq.put_many("orders", [b"other", b"messages"])
    if fail == "true":
        with pytest.raises(DataLost, match="topic 'orders' was deleted"):
            run_tasks(reader, tasks)
    else:
        assert run_tasks(reader, tasks) == []


def test_a_server_that_is_away_fails_clearly(read: Read) -> None:
    with pytest.raises(Unreachable, match=r"no answer from tcp://127\.0\.0\.1:1 within"):
        read(subscribe="orders", server="tcp://127.0.0.1:1", timeout="0.3")
