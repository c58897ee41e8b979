"""Gets that wait: woken by what is durable, ended by the clock, one for a client and topic."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import pytest

from oncemq.broker.gets import NOTHING_NEW
from oncemq.broker.waits import Deadlines, LongPoll, LongPolls, WaitMoments
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Micros
from oncemq.protocol.replies import Done, RefusedReply, Unsubscribed
from oncemq.protocol.requests import DeleteTopic, Get, Settled, Start, Unsubscribe
from oncemq.protocol.step import Caller, Deliver


def wait(desk, topic: str = "orders", client: str = "billing", seconds: float = 5) -> int:
    """Begin a get that waits; its token."""
    get = desk.getting(topic, client, wait=seconds)
    step = desk.broker.handle(caller := Caller(b"waits", next(desk.tokens)), get, None, desk.now)
    assert (step.writes, step.replies) == ([], [])
    return caller.token


def spans(owed) -> dict[str, range]:
    assert isinstance(owed.answer, Deliver)
    return {span.topic: range(span.start, span.end) for span in owed.answer.spans}


def test_a_waiting_get_is_woken_by_the_sync_not_by_the_append(desk) -> None:
    desk.subscription("orders")
    token = wait(desk)
    put = desk.step(*desk.putting("orders", b"a"))
    assert len(put.replies) == 1  # the receipt alone
    (owed,) = desk.sync()
    assert owed.after <= desk.durable
    assert (owed.caller.token, spans(owed)) == (token, {"orders": range(1)})
    assert len(desk.broker.waiting) == 0


def test_of_what_a_get_names_only_that_is_kept_which_it_waits_for(desk) -> None:
    identity = desk.subscription("orders")
    settled = (Settled("orders", identity, 0),) * 1_000
    epoch = desk.epoch("billing")
    for topic, only in (("orders", ()), ("", ("orders",))):
        get = Get("billing", epoch, topic, settled, wait_ms=5_000, only=("orders",) * 1_000)
        assert desk.step(get).replies == []
        kept = desk.broker.waiting.of(("billing", topic)).get
        assert (kept.settled, kept.only) == ((), only)
    desk.put("orders", b"a")
    assert [spans(owed) for owed in desk.sync()] == [{"orders": range(1)}] * 2


def test_a_waiting_get_is_answered_once(desk) -> None:
    desk.subscription("orders")
    wait(desk)
    desk.put("orders", b"a")
    desk.put("orders", b"b")
    assert len(desk.sync()) == 1
    assert desk.pass_time(10) == []


def test_the_wait_ends_with_nothing_new(desk) -> None:
    desk.subscription("orders")
    token = wait(desk, seconds=5)
    assert desk.pass_time(4.9) == []
    (owed,) = desk.pass_time(0.1)
    assert (owed.caller.token, owed.answer, owed.after) == (token, NOTHING_NEW, 0)


def test_a_wait_is_no_longer_than_the_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(wait_ms_max=1000))
    desk.subscription("orders")
    wait(desk, seconds=3600)
    assert len(desk.pass_time(1)) == 1


def test_a_negative_wait_does_not_wait(desk) -> None:
    desk.subscription("orders")
    assert desk.get("orders", wait=-1) == NOTHING_NEW


def test_the_next_deadline_is_that_of_the_get_that_waits_least(desk) -> None:
    desk.subscription("orders")
    desk.subscription("orders", "audit")
    assert desk.broker.next_deadline() is None
    wait(desk, seconds=5)
    wait(desk, client="audit", seconds=3)
    assert desk.broker.next_deadline() == desk.now + 3_000_000
    desk.pass_time(3)
    assert desk.broker.next_deadline() == desk.now + 2_000_000


def test_a_newer_get_takes_the_place_of_the_older(desk) -> None:
    desk.subscription("orders")
    wait(desk, seconds=1)
    newer = wait(desk, seconds=5)
    assert desk.pass_time(1) == []
    desk.put("orders", b"a")
    assert [owed.caller.token for owed in desk.sync()] == [newer]


def test_a_newer_get_with_a_shorter_wait_ends_in_its_own_time(desk) -> None:
    desk.subscription("orders")
    wait(desk, seconds=50)
    newer = wait(desk, seconds=1)
    assert desk.broker.next_deadline() == desk.now + 1_000_000
    assert [owed.caller.token for owed in desk.pass_time(1)] == [newer]
    assert desk.pass_time(60) == []
    assert desk.broker.next_deadline() is None


def test_a_get_whose_subscription_came_after_the_unsynced_put_goes_on_waiting(desk) -> None:
    desk.create("orders")
    desk.subscription("orders", "early")
    desk.put("orders", b"a")
    desk.subscription("orders", "late")
    wait(desk, client="late")
    assert desk.sync() == []
    desk.put("orders", b"b")
    (owed,) = desk.sync()
    assert spans(owed) == {"orders": range(1, 2)}


def test_a_get_of_any_topic_is_woken_by_each_of_them(desk) -> None:
    desk.subscription("orders")
    desk.subscription("refunds")
    wait(desk, "")
    desk.put("unsubscribed", b"x")
    assert desk.sync() == []
    desk.put("refunds", b"r")
    (owed,) = desk.sync()
    assert spans(owed) == {"refunds": range(1)}


def test_a_get_waiting_on_one_topic_is_not_woken_by_another(desk) -> None:
    desk.subscription("orders")
    desk.subscription("refunds")
    wait(desk, "orders")
    desk.put("refunds", b"r")
    assert desk.sync() == []


def test_a_get_waiting_on_some_topics_is_woken_by_these_alone(desk) -> None:
    for topic in ("a", "b", "c"):
        desk.subscription(topic)
    desk.step(desk.getting(only=("a", "b"), wait=5))
    desk.put("c", b"x")
    assert desk.sync() == []
    desk.put("b", b"x")
    (owed,) = desk.sync()
    assert spans(owed) == {"b": range(1)}


def test_a_get_waiting_on_some_topics_goes_on_when_one_of_them_is_gone(desk) -> None:
    for topic in ("a", "b"):
        desk.subscription(topic)
    desk.step(desk.getting(only=("a", "b"), wait=5))
    desk.delete("a")
    desk.put("b", b"x")
    (owed,) = desk.sync()
    assert spans(owed) == {"b": range(1)}


def test_everyone_who_waits_on_a_topic_is_woken(desk) -> None:
    for client in ("a", "b", "c"):
        desk.subscription("orders", client)
    waiting = {wait(desk, client="a"), wait(desk, client="b"), wait(desk, "", client="c")}
    desk.put("orders", b"x")
    assert {owed.caller.token for owed in desk.sync()} == waiting


def test_a_wait_ends_with_its_subscription(desk) -> None:
    subscription = desk.subscription("orders")
    token = wait(desk)
    unsubscribe = Unsubscribe(ClientId("billing"), desk.epoch("billing"), "orders")
    refused, ended = desk.step(unsubscribe).replies
    assert (refused.caller.token, refused.answer.code) == (token, "not_subscribed")
    assert ended.answer == Unsubscribed(True, (), (subscription,))
    assert len(desk.broker.waiting) == 0


def test_a_wait_ends_with_its_topic(desk) -> None:
    desk.subscription("orders")
    token = wait(desk)
    refused, done = desk.step(DeleteTopic("orders")).replies
    assert refused.caller.token == token
    assert refused.answer == RefusedReply("not_subscribed", "topic 'orders' was deleted")
    assert done.answer == Done(True)


def test_a_sync_of_a_deleted_topic_wakes_nobody_on_its_namesake(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    desk.delete("orders")
    desk.subscription("orders")
    wait(desk)
    wait(desk, "")
    assert desk.sync() == []
    desk.resume("orders")
    desk.put("orders", b"b", first=1)
    assert len(desk.sync()) == 2


def test_a_get_of_any_topic_outlives_the_subscription_it_waited_on(desk) -> None:
    desk.subscription("orders")
    wait(desk, "")
    desk.put("orders", b"a")
    desk.unsubscribe("orders")
    assert desk.sync() == []
    assert [owed.answer for owed in desk.pass_time(5)] == [NOTHING_NEW]


@pytest.mark.parametrize("topic", ["orders", ""])
def test_a_get_is_woken_with_what_it_may_have_once_its_subscription_is_durable(desk, topic) -> None:
    desk.subscription("orders", "anchor")
    desk.hello("billing")
    stored = desk.step(*desk.putting("orders", b"a")).replies[0].after
    desk.subscription("orders", start=Start("earliest"))
    desk.subscription("refunds")
    wait(desk, topic)
    (owed,) = desk.broker.synced(stored).replies
    assert (spans(owed), owed.after) == ({"orders": range(1)}, stored + 1)


def test_a_get_that_is_sent_again_does_not_begin_to_wait_anew(desk) -> None:
    desk.subscription("orders")
    get = desk.getting("orders", wait=5)
    for route in (b"first", b"again"):
        assert desk.broker.handle(Caller(route, 77), get, None, desk.now).replies == []
        assert desk.pass_time(3 if route == b"first" else 1) == []
    (owed,) = desk.pass_time(1)
    assert (owed.caller.route, owed.answer) == (b"again", NOTHING_NEW)
    assert desk.pass_time(60) == []


def test_waiting_gets_are_told_apart_by_client_and_topic() -> None:
    moments: WaitMoments = Deadlines()
    waiting = LongPolls(moments)
    get = Get(ClientId("a"), 1, "orders")
    waiter = LongPoll(Caller(b"", 1), get, Micros(5))
    waiting.add(waiter)
    assert (ClientId("a"), "orders") in waiting
    assert (ClientId("a"), "") not in waiting
    assert waiting.take((ClientId("a"), "")) is None
    assert waiting.take((ClientId("a"), "orders")) == waiter
    assert (len(waiting), moments.next()) == (0, None)
