"""`spark.readStream`, without Spark: what it asks of the source, in its order."""

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from oncemq import Client
from oncemq.errors import Fenced, NoSuchTopic
from oncemq.protocol.records import Retention
from oncemq.spark.source import stream_reader
from oncemq.spark.source.data_loss import DataLost
from oncemq.spark.source.retention_subscription import Hold
from oncemq.spark.source.stream_reader import StreamReader
from tests.spark.conftest import Rows, run_tasks, settle

Stream = Callable[..., StreamReader]


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "POLL_SECONDS", 0.05)


class Query:
    """What Spark does with a source: the order of calls, and the checkpoint."""

    def __init__(self, reader: StreamReader, checkpoint: "list[str] | None" = None) -> None:
        self.reader = reader
        self.checkpoint = checkpoint if checkpoint is not None else []  # ends of batches
        self.committed = len(self.checkpoint)
        self.initial = "" if self.checkpoint else self._begin()

    def _begin(self) -> str:
        first, second = self.reader.initialOffset(), self.reader.initialOffset()
        assert first == second
        return json.dumps(second)

    def plan(self) -> bool:
        """Write the end of the next batch into the checkpoint; False when nothing is new."""
        start = self.checkpoint[-1] if self.checkpoint else self.initial
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if self.checkpoint and end == start:
            return False
        if self.checkpoint:
            self.reader.commit(json.loads(self.checkpoint[-1]))  # one batch late
        self.checkpoint.append(end)
        return True

    def run(self) -> Rows:
        """Run the last batch of the checkpoint, again if need be."""
        before = self.checkpoint[-2] if len(self.checkpoint) > 1 else self.initial
        start, end = json.loads(before), json.loads(self.checkpoint[-1])
        return run_tasks(self.reader, self.reader.partitions(start, end))

    def batch(self) -> Rows | None:
        return self.run() if self.plan() else None

    def everything(self) -> Rows:
        rows: Rows = []
        while (found := self.batch()) is not None:
            rows += found
        return rows


def offsets(rows: Rows | None, topic: str = "orders") -> list[int]:
    return [row[1] for row in rows or () if row[0] == topic]


def cursors(mq: Client) -> dict[str, int]:
    return {each.client: each.cursor for each in mq.subscriptions()}


def test_from_the_beginning_everything_once(mq: Client, stream: Stream) -> None:
    mq.put_many("orders", [b"a", b"b"])
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    assert query.batch() == [("orders", 0, b"a"), ("orders", 1, b"b")]
    assert query.batch() is None
    mq.put("orders", b"c")
    assert query.batch() == [("orders", 2, b"c")]


def test_latest_begins_with_an_empty_batch_and_loses_nothing_that_races(
    mq: Client, stream: Stream
) -> None:
    mq.put("orders", b"before")
    query = Query(stream(subscribe="orders"))
    mq.put("orders", b"races")
    assert query.batch() == []  # its place is in the checkpoint
    assert query.batch() == [("orders", 1, b"races")]


def test_latest_loses_nothing_when_the_driver_dies_in_the_first_batch(
    mq: Client, stream: Stream
) -> None:
    mq.put("orders", b"before")
    query = Query(stream(subscribe="orders"))
    query.plan()  # in the checkpoint, and the driver dies
    mq.put("orders", b"races")
    again = Query(stream(subscribe="orders"), query.checkpoint)
    again.initial = again._begin()  # Spark asks anew: batch 0 was not committed
    assert again.run() == []  # a start beyond the end is an empty range
    assert again.batch() == [("orders", 1, b"races")]


def test_a_topic_without_retention_is_kept_for_the_query(mq: Client, stream: Stream) -> None:
    mq.subscribe("events")
    query = Query(stream(subscribe="events"))
    mq.unsubscribe("events")
    assert mq.put("events", b"a").stored
    assert query.batch() == []
    assert offsets(query.batch(), "events") == [0]


def test_nothing_is_freed_before_spark_has_committed_it(mq: Client, stream: Stream) -> None:
    mq.subscribe("events")
    mq.put_many("events", [b"a", b"b"])
    query = Query(stream(subscribe="events", startingOffsets="earliest", subscription="lake"))
    assert offsets(query.batch(), "events") == [0, 1]
    mq.unsubscribe("events")
    assert mq.topic("events").topic.low == 0
    assert offsets(query.run(), "events") == [0, 1]  # the batch is run again after a crash
    mq.put("events", b"c")
    assert offsets(query.batch(), "events") == [2]  # with it the first batch is committed
    assert cursors(mq) == {"lake": 2}
    assert mq.topic("events").topic.low == 2


def test_the_subscription_is_the_checkpoints(mq: Client, stream: Stream) -> None:
    mq.put_many("orders", [b"a", b"b"])
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    query.batch()
    (name,) = cursors(mq)
    assert name.startswith("spark-")
    assert json.loads(query.checkpoint[0])["subscription"] == name
    mq.put("orders", b"c")
    again = Query(stream(subscribe="orders"), query.checkpoint)
    assert offsets(again.batch()) == [2]
    assert cursors(mq) == {name: 2}


def leases(mq: Client) -> dict[str, float]:
    """For how many days from now on each hold is, with the quarter that a renewal may lack."""
    return {
        each.client: round((each.ends / 1e6 - time.time()) / 86_400, 2) if each.ends else 0
        for each in mq.subscriptions()
    }


def test_a_hold_that_no_query_comes_back_to_ends_by_itself(mq: Client, stream: Stream) -> None:
    """That of a console, a notebook: its checkpoint was a temporary one."""
    mq.put("orders", b"a")
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    query.batch()
    (info,) = mq.subscriptions()
    assert leases(mq) == {info.client: 3.75}  # three days
    assert info.about.startswith("Spark query of ")
    query.reader.stop()
    mq.put("orders", b"b")
    again = Query(stream(subscribe="orders"), query.checkpoint)
    assert offsets(again.batch()) == [1]
    assert leases(mq) == {info.client: 0}  # it is a checkpoint that is kept: for good


def test_a_hold_with_a_name_is_for_good_unless_told_otherwise(mq: Client, stream: Stream) -> None:
    mq.put("orders", b"a")
    Query(stream(subscribe="orders", startingOffsets="earliest", subscription="lake")).batch()
    assert leases(mq) == {"lake": 0}
    options = {"subscribe": "orders", "startingOffsets": "earliest", "holdExpires": "48h"}
    Query(stream(**options, subscription="pond")).batch()
    assert leases(mq) == {"lake": 0, "pond": 2.5}


def test_a_topic_that_is_held_later_than_others_is_let_go_with_them(
    mq: Client, address: str
) -> None:
    with closing(Hold(address, 5.0, "lake")) as hold:
        for topic in ("early", "late"):
            mq.create_topic(topic, Retention(forever=True))
            mq.put_many(topic, [b"a", b"b"])
            hold.keep({topic: 0})
            hold.settle({topic: 1})
    assert {each.topic: each.cursor for each in mq.subscriptions(client="lake")} == {
        "early": 1,
        "late": 1,
    }


def test_a_hold_is_renewed_while_the_query_waits(
    mq: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.put("orders", b"a")
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    query.batch()
    renewed: list[float] = []
    monkeypatch.setattr(Client, "lease", lambda self, seconds, about: renewed.append(seconds))
    assert query.plan() is False
    assert renewed == []  # a moment ago
    hold = query.reader._hold
    assert hold is not None
    hold._renewed -= stream_reader.FIRST_HOLD_SECONDS / 8
    assert query.plan() is False
    assert renewed == [stream_reader.FIRST_HOLD_SECONDS]


def test_a_hold_for_a_short_time_is_renewed_within_it(
    mq: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.put("orders", b"a")
    options = {"subscribe": "orders", "startingOffsets": "earliest", "holdExpires": "1h"}
    query = Query(stream(**options))
    query.batch()
    renewed: list[float] = []
    monkeypatch.setattr(Client, "lease", lambda self, seconds, about: renewed.append(seconds))
    hold = query.reader._hold
    assert hold is not None
    hold._renewed -= 3600 / 8
    assert query.plan() is False
    assert renewed == [3600]


def test_a_hold_is_renewed_while_a_batch_takes_its_time(
    mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or while the next trigger is hours away: nothing is planned then."""
    renewed = threading.Semaphore(0)
    monkeypatch.setattr(Client, "lease", lambda self, seconds, about: renewed.release())
    monkeypatch.setattr("oncemq.spark.source.retention_subscription.RENEWALS", 60_000)
    held = Hold(mq._engine.address, 20, "lake", lease=60.0)
    with closing(held):
        for _ in range(3):
            assert renewed.acquire(timeout=10)
    assert held._closed.is_set()  # and so the thread ends


def test_a_hold_that_others_ended_is_taken_again_by_the_living_query(
    mq: Client, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease ran out while the driver was suspended, say."""
    mq.put("orders", b"a")
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    query.batch()
    (info,) = mq.subscriptions()
    hold = query.reader._hold
    assert hold is not None
    hold._mq.unsubscribe("orders")
    assert mq.subscriptions() == []
    hold._renewed = -math.inf
    assert query.plan() is False
    assert [(each.client, each.cursor) for each in mq.subscriptions()] == [(info.client, 1)]
    assert "hold ended at the server" in caplog.text


def test_a_query_that_never_wrote_its_checkpoint_leaves_no_subscription(
    mq: Client, stream: Stream
) -> None:
    reader = stream(subscribe="orders")
    reader.initialOffset()
    (guest,) = cursors(mq)
    assert guest.startswith("_anonymous-")  # forgotten a day after its process, at the latest
    reader.stop()
    assert cursors(mq) == {}


def test_without_a_subscription_nothing_is_held(mq: Client, stream: Stream) -> None:
    mq.put_many("orders", [b"a", b"b"])
    query = Query(stream(subscribe="orders", startingOffsets="earliest", subscription="none"))
    assert offsets(query.everything()) == [0, 1]
    assert cursors(mq) == {}


def test_two_queries_with_one_subscription_do_not_go_unnoticed(mq: Client, stream: Stream) -> None:
    mq.put("orders", b"a")
    options = {"subscribe": "orders", "startingOffsets": "earliest", "subscription": "lake"}
    one, other = Query(stream(**options)), Query(stream(**options))
    one.batch()
    other.batch()
    mq.put("orders", b"b")
    with pytest.raises(Fenced, match="lake"):
        one.batch()


def test_a_limit_is_kept_and_shared(mq: Client, stream: Stream) -> None:
    mq.create_topic("refunds", Retention(forever=True))
    mq.put_many("orders", [b"x"] * 30)
    mq.put_many("refunds", [b"x"] * 10)
    reader = stream(
        subscribe="orders,refunds", startingOffsets="earliest", maxOffsetsPerTrigger="8"
    )
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    query = Query(reader)
    first = query.batch()
    assert (len(offsets(first)), len(offsets(first, "refunds"))) == (6, 2)
    rest = query.everything()
    assert offsets((first or []) + rest) == list(range(30))
    assert offsets((first or []) + rest, "refunds") == list(range(10))


def test_few_rows_wait_for_more_but_not_for_ever(
    mq: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: now))
    options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "60s", "startingOffsets": "earliest"}
    query = Query(stream(subscribe="orders", subscription="none", **options))
    watched: list[Any] = []
    watch = query.reader._client().watch

    def watching(here: Any, **how: Any) -> Any:
        watched.append(here)
        return watch(here, **how)

    monkeypatch.setattr(query.reader._client(), "watch", watching)
    mq.put("orders", b"a")
    assert offsets(query.batch()) == [0]  # the first does not wait
    mq.put("orders", b"b")
    assert query.batch() is None
    assert query.batch() is None
    assert watched[-2:] == [[("orders", 1)], [("orders", 2)]]  # it waits for what is not known
    report: Any = query.reader.reportLatestOffset()
    assert report["topics"]["orders"]["offset"] == 2
    mq.put_many("orders", [b"c", b"d"])
    assert offsets(query.batch()) == [1, 2, 3]
    mq.put("orders", b"e")
    assert query.batch() is None
    now += 60
    assert offsets(query.batch()) == [4]
    mq.put_many("orders", [b"x"] * 4)
    last = stream(subscribe="orders", subscription="none", maxOffsetsPerTrigger="3", **options)
    last.prepareForTriggerAvailableNow()
    rest = Query(last, query.checkpoint).everything()
    assert offsets(rest) == [5, 6, 7, 8]  # to the end, however few are left


def test_without_a_limit_everything_is_taken(mq: Client, stream: Stream) -> None:
    assert stream(subscribe="orders").getDefaultReadLimit() == ReadAllAvailable()


def test_available_now_ends_where_the_topics_ended_at_the_start(mq: Client, stream: Stream) -> None:
    mq.put_many("orders", [b"x"] * 5)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    reader = stream(subscribe="orders", **options)
    reader.prepareForTriggerAvailableNow()
    query = Query(reader)
    mq.put_many("orders", [b"x"] * 5)
    assert offsets(query.everything()) == list(range(5))
    reader = stream(subscribe="orders", **options)
    reader.prepareForTriggerAvailableNow()
    assert offsets(Query(reader, query.checkpoint).everything()) == list(range(5, 10))


def test_available_now_from_latest_reads_nothing_and_then_what_came(
    mq: Client, stream: Stream
) -> None:
    mq.put("orders", b"before")
    reader = stream(subscribe="orders")
    reader.prepareForTriggerAvailableNow()
    query = Query(reader)
    assert query.everything() == []
    mq.put("orders", b"after")
    reader = stream(subscribe="orders")
    reader.prepareForTriggerAvailableNow()
    assert offsets(Query(reader, query.checkpoint).everything()) == [1]


def test_lag_is_reported_from_memory(mq: Client, stream: Stream) -> None:
    mq.put_many("orders", [b"x"] * 5)
    reader = stream(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert reader.reportLatestOffset() is None
    query = Query(reader)
    query.batch()
    sends = reader._client().counters["sends"]
    report: Any = reader.reportLatestOffset()
    assert report["topics"]["orders"]["offset"] == 5
    assert json.loads(query.checkpoint[0])["topics"]["orders"]["offset"] == 2
    assert reader._client().counters["sends"] == sends


def test_an_idle_query_asks_once_a_wait_and_hears_at_once(
    mq: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    query.batch()
    sends = query.reader._client().counters["sends"]
    assert query.batch() is None
    assert query.reader._client().counters["sends"] == sends + 1
    monkeypatch.setattr(stream_reader, "POLL_SECONDS", 30.0)
    putting = threading.Timer(0.05, mq.put, ("orders", b"a"))
    putting.start()
    assert offsets(query.batch()) == [0]
    putting.join()


def test_topics_that_come_later_join_a_pattern(mq: Client, stream: Stream) -> None:
    mq.put("orders", b"a")
    query = Query(stream(subscribePattern="orders.*", startingOffsets="earliest"))
    assert [row[0] for row in query.batch() or ()] == ["orders"]
    mq.create_topic("orders-eu", Retention(forever=True))
    mq.put_many("orders-eu", [b"b", b"c"])
    assert offsets(query.batch(), "orders-eu") == [0, 1]
    assert offsets(query.run(), "orders-eu") == [0, 1]
    assert {each.topic for each in mq.subscriptions()} == {"orders", "orders-eu"}


def test_a_missing_topic_is_refused(mq: Client, stream: Stream) -> None:
    with pytest.raises(NoSuchTopic, match="ordres"):
        stream(subscribe="ordres").initialOffset()
    assert [topic.name for topic in mq.topics()] == ["orders"]  # and not made by asking


def emptied(mq: Client, stream: Stream, fail: str) -> Query:
    """A query whose next rows are partly freed."""
    mq.subscribe("events")
    mq.put_many("events", [b"%d" % n for n in range(3)])
    options = {"subscription": "none", "failOnDataLoss": fail, "startingOffsets": "earliest"}
    query = Query(stream(subscribe="events", **options))
    assert len(query.batch() or ()) == 3
    mq.put_many("events", [b"%d" % n for n in range(3, 10)])
    settle(mq, "events", 6)
    return query


def test_rows_that_are_no_longer_kept_fail_the_query_by_their_range(
    mq: Client, stream: Stream
) -> None:
    query = emptied(mq, stream, "true")
    with pytest.raises(DataLost, match="offsets 3 up to 6 of 'events' are no longer kept"):
        query.batch()


def test_rows_that_are_no_longer_kept_are_skipped_when_told_to(
    mq: Client, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    query = emptied(mq, stream, "false")
    assert offsets(query.batch(), "events") == list(range(6, 10))
    assert "offsets 3 up to 6 of 'events'" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_was_deleted_and_made_again(mq: Client, stream: Stream, fail: str) -> None:
    mq.put_many("orders", [b"a", b"b"])
    query = Query(stream(subscribe="orders", startingOffsets="earliest", failOnDataLoss=fail))
    query.batch()
    mq.delete_topic("orders")
    mq.create_topic("orders", Retention(forever=True))
    mq.put("orders", b"other")
    if fail == "true":
        with pytest.raises(DataLost, match="'orders' was deleted and made again"):
            query.batch()
    else:
        assert query.batch() == [("orders", 0, b"other")]
        mq.put("orders", b"more")
        assert query.batch() == [("orders", 1, b"more")]


def test_a_topic_that_was_away_for_a_while_is_read_from_its_beginning_and_held(
    mq: Client, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    mq.put_many("orders", [b"a", b"b"])
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false", "subscription": "lake"}
    query = Query(stream(subscribe="orders", **options))
    query.batch()
    mq.delete_topic("orders")
    assert query.batch() == []  # the query has seen that it is gone
    assert query.batch() is None
    mq.create_topic("orders")  # keeps nothing by itself
    assert query.batch() == []  # from now on it is held
    assert "topic joined topic=orders first=0" in caplog.text
    assert mq.put("orders", b"other").stored
    assert query.batch() == [("orders", 0, b"other")]
    assert query.run() == [("orders", 0, b"other")]  # again after a crash
    assert cursors(mq) == {"lake": 0}
    again = Query(stream(subscribe="orders", **options), query.checkpoint)
    mq.put("orders", b"last")
    assert again.batch() == [("orders", 1, b"last")]
    assert cursors(mq) == {"lake": 1}


def changed(stream: Stream, query: Query, topics: str, *, now: bool) -> Query:
    """The query, started again with another list of topics."""
    query.reader.stop()
    reader = stream(subscribe=topics, startingOffsets="latest", subscription="lake")
    if now:
        reader.prepareForTriggerAvailableNow()
    return Query(reader, query.checkpoint)


@pytest.mark.parametrize("now", [False, True], ids=["processingTime", "availableNow"])
def test_what_subscribe_says_at_a_restart_is_what_is_read(
    mq: Client, stream: Stream, now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("refunds", "returns"):
        mq.create_topic(name, Retention(forever=True))
        mq.put_many(name, [b"x", b"y"])
    mq.put("orders", b"a")
    mq.subscribe("returns")
    options = {"startingOffsets": "earliest", "subscription": "lake"}
    query = Query(stream(subscribe="orders,refunds", **options))
    assert len(query.batch() or ()) == 3
    mq.put_many("refunds", [b"not read"] * 2)
    mq.put("orders", b"b")
    query = changed(stream, query, "orders,returns", now=now)
    assert sorted(query.everything()) == [
        ("orders", 1, b"b"),
        ("returns", 0, b"x"),  # as a new partition of Kafka's: from the earliest
        ("returns", 1, b"y"),
    ]
    assert "topic left out topic=refunds next=2" in caplog.text
    assert "topic joined topic=returns first=0" in caplog.text
    mq.put("orders", b"c")
    query = changed(stream, query, "orders,returns", now=now)
    assert query.everything() == [("orders", 2, b"c")]
    held = {each.topic for each in mq.subscriptions(client="lake")}
    assert held == {"orders", "returns"}  # of a topic that is not read nothing is held back


def test_a_topic_added_at_a_restart_that_is_not_there_is_refused_or_waited_for(
    mq: Client, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    mq.put("orders", b"a")
    query = Query(stream(subscribe="orders", startingOffsets="earliest"))
    query.batch()
    again = Query(stream(subscribe="orders,refunds"), query.checkpoint)
    with pytest.raises(NoSuchTopic, match="refunds"):
        again.batch()
    patient = stream(subscribe="orders,refunds", failOnDataLoss="false")
    again = Query(patient, query.checkpoint)
    assert again.batch() is None
    assert again.batch() is None
    assert caplog.text.count("topic waited for topic=refunds") == 1
    mq.create_topic("refunds", Retention(forever=True))
    mq.put("refunds", b"late")
    assert again.batch() == [("refunds", 0, b"late")]


def test_a_topic_that_was_left_out_and_comes_back_is_read_anew(mq: Client, stream: Stream) -> None:
    mq.create_topic("refunds", Retention(forever=True))
    mq.put("refunds", b"x")
    options = {"startingOffsets": "earliest", "subscription": "lake"}
    query = Query(stream(subscribe="orders,refunds", **options))
    query.batch()
    query = changed(stream, query, "orders", now=False)
    assert query.batch() == []
    query = changed(stream, query, "orders,refunds", now=False)
    assert query.everything() == [("refunds", 0, b"x")]
    assert {each.topic for each in mq.subscriptions(client="lake")} == {"orders", "refunds"}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_was_deleted(mq: Client, stream: Stream, fail: str) -> None:
    mq.create_topic("refunds", Retention(forever=True))
    mq.put("orders", b"a")
    mq.put("refunds", b"b")
    options = {"startingOffsets": "earliest", "failOnDataLoss": fail}
    query = Query(stream(subscribe="orders,refunds", **options))
    query.batch()
    mq.delete_topic("refunds")
    mq.put("orders", b"c")
    if fail == "true":
        with pytest.raises(DataLost, match="'refunds' was deleted"):
            query.batch()
    else:
        assert offsets(query.batch()) == [1]
