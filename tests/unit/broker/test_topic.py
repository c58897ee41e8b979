"""Topics made, configured, deleted and shown; what they keep, and what they let go."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.broker.expiry import retained_from
from oncemq.broker.queries import Counters
from oncemq.broker.state.ages import Ages
from oncemq.broker.state.topic import Subscription, Topic, describe_retention, made
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Micros, Offset, Serial, SubscriptionId, TopicId
from oncemq.protocol.records import (
    Retention,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicTrimmed,
)
from oncemq.protocol.replies import (
    Done,
    RefusedReply,
    StatusReport,
    SubscriptionInfo,
    SubscriptionList,
    TopicInfo,
    TopicList,
    TopicShown,
)
from oncemq.protocol.requests import ListSubscriptions, ListTopics, ShowTopic, Start, StatusRequest
from oncemq.protocol.step import Write

TAG = 7 << 32
FOREVER = Retention(forever=True)


def names(answer) -> tuple[list[str], bool]:
    assert isinstance(answer, TopicList)
    return [topic.name for topic in answer.topics], answer.more


# ------------------------------------------------------------------ made, configured, deleted


def test_a_topic_is_made_once(desk) -> None:
    assert desk.create("orders", FOREVER) == Done(True)
    assert desk.create("orders") == Done(False)
    assert desk.shard.by_name["orders"].retention == FOREVER


@pytest.mark.parametrize("name", ["", "_x", "x" * 256, "e\u0301"])
def test_a_topic_has_a_proper_name(desk, name) -> None:
    assert desk.create(name).code == "name_invalid"


def test_a_topic_of_the_system_is_created_by_its_name_and_never_in_passing(desk) -> None:
    assert desk.subscribe("_pipelines").code == "name_invalid"
    assert desk.create("_pipelines", FOREVER) == Done(True)
    assert desk.create("_pipeline").code == "name_invalid"


def test_there_are_no_more_topics_than_the_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(topics_max=1))
    desk.create("a")
    assert desk.create("b") == RefusedReply("limit", "this server has its 1 topics")
    assert desk.subscribe("b").code == "limit"
    desk.delete("a")
    assert desk.create("b") == Done(True)


def test_configuring_changes_what_is_kept_from_now_on(desk) -> None:
    desk.create("orders")
    assert desk.configure("orders", Retention()) == Done(False)
    assert desk.configure("orders", FOREVER) == Done(True)
    assert desk.records[-1] == TopicConfigured(TopicId(TAG | 1), FOREVER)
    assert desk.put("orders", b"a").stored


def test_what_was_let_go_before_stays_gone_whatever_is_kept_from_now_on(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", b"a", b"b", b"c")
    desk.settle(desk.settled("orders", subscription, 2))
    desk.configure("orders", FOREVER)
    assert desk.shard.by_name["orders"].low == 2
    desk.settle(desk.settled("orders", subscription, 3))
    assert desk.shard.by_name["orders"].low == 2


def test_without_retention_any_more_only_what_is_unsettled_is_kept(desk) -> None:
    desk.create("orders", FOREVER)
    subscription = desk.subscription("orders")
    desk.put("orders", b"a", b"b")
    desk.settle(desk.settled("orders", subscription, 1))
    assert desk.shard.by_name["orders"].low == 0
    desk.configure("orders", Retention())
    assert desk.shard.by_name["orders"].low == 1


def test_deleting_takes_subscriptions_and_numbers_with_it(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"a")
    assert desk.delete("orders") == Done(True)
    assert desk.records[-1] == TopicDeleted(TopicId(TAG | 1))
    assert desk.get("orders").code == "not_subscribed"
    assert desk.get().code == "not_subscribed"
    desk.resume("orders")
    assert desk.put("orders", b"a", first=1).duplicate is False


def test_what_is_not_there_cannot_be_configured_deleted_or_shown(desk) -> None:
    for number in range(6):
        desk.create(f"t{number}")
    there = RefusedReply(
        "no_such_topic", "unknown topic 'x'; this server has: t0, t1, t2, t3, t4, …"
    )
    assert desk.configure("x", FOREVER) == there
    assert desk.delete("x") == there
    assert desk.ask(ShowTopic("x")) == there
    assert desk.ask(ListSubscriptions(topic="x")) == there


def test_an_empty_server_says_that_it_has_no_topics(desk) -> None:
    assert desk.delete("x").detail == "unknown topic 'x'; this server has: none"


# ------------------------------------------------------------------ retention

HOUR = 3_600_000_000


def extents(*sizes: int) -> list[tuple[Offset, Offset, Micros, int]]:
    """Ten messages each, an hour apart, from hour 1 on."""
    return [
        (Offset(n * 10), Offset(n * 10 + 10), Micros((n + 1) * HOUR), size)
        for n, size in enumerate(sizes)
    ]


def retained(desk, retention: Retention, now: int) -> int:
    desk.create("orders", retention)
    return retained_from(
        desk.shard.by_name["orders"], extents(100, 100, 100), Ages().at(Micros(now))
    )


def test_retention_by_time_lets_go_of_what_is_older(desk) -> None:
    keep = Retention(keep_ms=3_600_000)
    assert retained(desk, keep, 2 * HOUR - 1) == 0
    assert retained(desk, keep, 2 * HOUR) == 10
    assert retained(desk, keep, 3 * HOUR) == 20
    assert retained(desk, keep, 99 * HOUR) == 30


@pytest.mark.parametrize(
    ("keep_bytes", "low"), [(1, 20), (100, 20), (101, 10), (200, 10), (300, 0), (10**9, 0)]
)
def test_retention_by_size_lets_go_of_what_is_more_never_of_less(desk, keep_bytes, low) -> None:
    assert retained(desk, Retention(keep_bytes=keep_bytes), 99 * HOUR) == low


def test_retention_by_both_keeps_what_either_keeps(desk) -> None:
    both = Retention(keep_ms=3_600_000, keep_bytes=200)
    assert retained(desk, both, 99 * HOUR) == 10
    assert retained(desk, both, HOUR) == 0


def test_retention_forever_lets_go_of_nothing(desk) -> None:
    assert retained(desk, Retention(keep_ms=1, forever=True), 99 * HOUR) == 0


def _kept(desk, retention: Retention) -> Topic:
    desk.create("orders", retention)
    desk.put("orders", *[b"x"] * 30)
    desk.sync()
    return desk.shard.by_name["orders"]


def test_what_retention_lets_go_is_a_fact(desk) -> None:
    topic = _kept(desk, Retention(keep_ms=3_600_000))
    step = desk.note(desk.broker.retain(topic, extents(9, 9, 9), Micros(3 * HOUR)))
    assert step.writes == [Write(TopicTrimmed(topic.id, Offset(20)))]
    assert desk.note(desk.broker.retain(topic, extents(9, 9, 9), Micros(3 * HOUR))).writes == []
    assert topic.low == 20


def test_retention_never_lets_go_of_what_is_not_settled(desk) -> None:
    topic = _kept(desk, Retention(keep_ms=3_600_000))
    subscription = desk.subscription("orders", start=Start("offset", 5))
    desk.note(desk.broker.retain(topic, extents(9, 9, 9), Micros(99 * HOUR)))
    assert topic.low == 5
    desk.settle(desk.settled("orders", subscription, 30))
    desk.note(desk.broker.retain(topic, extents(9, 9, 9), Micros(99 * HOUR)))
    assert topic.low == 30


def test_a_topic_without_retention_is_not_trimmed(desk) -> None:
    desk.subscribe("orders")
    topic = desk.shard.by_name["orders"]
    assert desk.broker.retain(topic, extents(9), Micros(99 * HOUR)).writes == []


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (Retention(), "until every subscription has settled"),
        (Retention(forever=True), "forever"),
        (Retention(keep_ms=1500), "1.5 s"),
        (Retention(keep_bytes=10), "10 bytes"),
        (Retention(2000, 10), "2 s and 10 bytes"),
    ],
)
def test_a_retention_is_said_in_words(retention, words) -> None:
    assert describe_retention(retention) == words


# ------------------------------------------------------------------ shown


def info(name: str, number: int, low: int, end: int) -> TopicInfo:
    created = Micros(1_000_000_000)
    topic_id = TopicId(TAG | number)
    reach, by = (Offset(low), Offset(end)), Serial(2)  # the first record let its subscriber in
    return TopicInfo(name, topic_id, *reach, 1, 1, Retention(), created, configured=by)


def test_a_topic_is_shown_with_what_holds_its_messages(desk) -> None:
    subscription = desk.subscription("orders")
    desk.put("orders", b"a", b"b")
    desk.sync()
    desk.settle(desk.settled("orders", subscription, 1))
    desk.step(desk.getting("", settled=(), wait=0))
    topic = info("orders", 1, low=1, end=2)
    at = Offset(1), Offset(2)
    shown = SubscriptionInfo("orders", "billing", subscription, *at, False, began=Offset(0))
    because = "orders/billing@1 has not settled the rest"
    assert desk.ask(ShowTopic("orders")) == TopicShown(topic, because, (shown,))


def test_a_topic_says_that_retention_keeps_it_or_that_nothing_is_kept(desk) -> None:
    desk.create("kept", FOREVER)
    desk.put("kept", b"a")
    desk.create("empty")
    assert desk.ask(ShowTopic("kept")).kept_because == "retention keeps it: forever"
    nothing = "nothing is kept: every subscription has settled everything"
    assert desk.ask(ShowTopic("empty")).kept_because == nothing


def test_what_is_not_durable_is_not_shown(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"a")
    assert desk.ask(ShowTopic("orders")).topic.end == 0


def test_topics_are_listed_by_name_a_page_at_a_time(desk) -> None:
    for name in ("b", "d", "a", "c"):
        desk.create(name)
    assert names(desk.ask(ListTopics(limit=3))) == (["a", "b", "c"], True)
    assert names(desk.ask(ListTopics(after="c", limit=3))) == (["d"], False)
    assert names(desk.ask(ListTopics(after="bb"))) == (["c", "d"], False)
    assert names(desk.ask(ListTopics(after="d"))) == ([], False)
    assert names(desk.ask(ListTopics(limit=0))) == (["a"], True)
    assert names(desk.ask(ListTopics(limit=4))) == (["a", "b", "c", "d"], False)


def test_subscriptions_are_listed_by_topic_and_client_a_page_at_a_time(desk) -> None:
    for topic, client in (("b", "x"), ("a", "y"), ("a", "x"), ("b", "z")):
        desk.subscribe(topic, client)

    def listed(**how) -> tuple[list[str], bool]:
        answer = desk.ask(ListSubscriptions(**how))
        assert isinstance(answer, SubscriptionList)
        return [f"{each.topic}/{each.client}" for each in answer.subscriptions], answer.more

    assert listed(limit=3) == (["a/x", "a/y", "b/x"], True)
    assert listed(limit=3, after=("b", "x")) == (["b/z"], False)
    assert listed(limit=4) == (["a/x", "a/y", "b/x", "b/z"], False)
    assert listed(limit=0) == listed(limit=1) == (["a/x"], True)
    assert listed(topic="a") == (["a/x", "a/y"], False)
    assert listed(client="x") == (["a/x", "b/x"], False)
    assert listed(topic="b", client="y") == ([], False)


def test_a_subscription_shows_whether_someone_waits_on_it(desk) -> None:
    desk.subscribe("orders")
    desk.subscribe("orders", "audit")
    desk.subscribe("orders", "idle")
    desk.step(desk.getting("orders", wait=5))
    desk.step(desk.getting("", "audit", wait=5))
    shown = desk.ask(ShowTopic("orders")).subscriptions
    assert {each.client: each.waiting for each in shown} == {
        "billing": True,
        "audit": True,
        "idle": False,
    }


def test_the_status_counts_what_there_is_and_what_happened(desk) -> None:
    desk.subscribe("orders")
    put, body = desk.putting("orders", b"a", b"b")
    desk.step(put, body)
    desk.step(put, body)
    desk.put("nobody", b"x")
    desk.put("orders", b"y", first=9)
    desk.step(desk.getting("orders", wait=5))
    assert desk.ask(StatusRequest()) == StatusReport(
        {
            "topics": 2,
            "subscriptions": 1,
            "patterns": 0,
            "clients": 2,
            "waiting": 1,
            "last_serial": len(desk.records),
            "generation": 1,
            "stages": 0,
            "stage_bytes": 0,
            "owners": 0,
            "idempotency_keys": 0,
            "requests": 9,
            "stored": 2,
            "stored_bytes": len(body),
            "discarded": 1,
            "duplicates": 2,
            "sent": 0,
            "refused": 1,
            "committed": 0,
        }
    )


def test_counters_begin_at_nothing() -> None:
    assert Counters() == Counters(0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("retention", [Retention(keep_ms=-1), Retention(keep_bytes=-1)])
def test_a_topic_cannot_keep_less_than_nothing(desk, retention: Retention) -> None:
    assert desk.create("orders", retention).code == "malformed"
    desk.create("kept")
    assert desk.configure("kept", retention).code == "malformed"
    assert names(desk.ask(ListTopics())) == (["kept"], False)


def test_a_new_topic_has_the_record_that_made_it_and_skips_it_when_it_is_replayed() -> None:
    topic = made(TopicCreated(TopicId(1), "orders", Retention(), Micros(5)), Serial(7))
    assert (topic.last_serial, topic.configured) == (7, 7)


class Counted(dict):
    """Subscriptions that count how often all of them are looked at."""

    looks = 0

    def values(self):
        self.looks += 1
        return super().values()


def test_the_lowest_cursor_is_looked_for_only_when_the_last_that_stood_there_has_left(desk) -> None:
    desk.create("orders")
    clients = [f"client-{number}" for number in range(20)]
    for client in clients:
        desk.subscribe("orders", client)
    desk.put("orders", *(b"m" for _ in range(10)))
    topic = desk.shard.by_name["orders"]
    topic.subscriptions = counted = Counted(topic.subscriptions)
    for cursor in range(1, 6):
        for client in clients:
            topic.move(ClientId(client), Offset(cursor))
            assert topic.low == (cursor if client == clients[-1] else cursor - 1)
    assert counted.looks <= 6
    topic.unsubscribe(ClientId(clients[0]))
    assert topic.low == 5
    for client in clients[1:]:
        topic.unsubscribe(ClientId(client))
    assert topic.low == topic.end


def test_the_lowest_cursor_follows_one_that_goes_back_and_one_whose_messages_are_lost(desk) -> None:
    desk.create("orders")
    desk.subscribe("orders", "slow")
    desk.subscribe("orders", "quick")
    desk.put("orders", *(b"m" for _ in range(10)))
    topic = desk.shard.by_name["orders"]
    topic.move(ClientId("slow"), Offset(4))
    topic.move(ClientId("quick"), Offset(8))
    assert topic.low == 4
    topic.move(ClientId("quick"), Offset(2))
    assert topic.low == 2
    topic.lose(Offset(2), Offset(5))
    assert (topic.low, topic.subscriptions[ClientId("slow")].cursor) == (5, 5)


def test_who_comes_is_one_look_however_many_are_there(desk) -> None:
    """Else each of 100,000 subscriptions of a topic would look at all before it."""
    desk.create("orders")
    desk.put("orders", *(b"m" for _ in range(10)))
    topic = desk.shard.by_name["orders"]
    topic.subscriptions = counted = Counted(topic.subscriptions)
    for number in range(50):
        desk.subscribe("orders", f"client-{number}")
        assert topic.low == topic.end
    assert counted.looks <= 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 4)), max_size=30))
def test_the_lowest_cursor_is_the_lowest_whoever_comes_moves_and_leaves(
    steps: list[tuple[str, int]],
) -> None:
    topic = Topic(TopicId(1), "orders", Retention(), Micros(0))
    for client, cursor in steps:
        there = topic.subscriptions.get(client)
        if cursor < 0:
            if there is not None:
                topic.unsubscribe(client)
        elif there is not None and cursor % 2:
            topic.move(client, cursor)
        else:
            topic.subscribe(Subscription(SubscriptionId(cursor), client, cursor))
        cursors = [each.cursor for each in topic.subscriptions.values()]
        assert topic.settled == min(cursors, default=topic.end)
