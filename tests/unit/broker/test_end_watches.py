"""Where topics end, for readers that keep their own cursor: told at once, or when it changes."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import pytest

from oncemq.broker import end_watches
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.replies import Ends
from oncemq.protocol.requests import DeleteTopic, WatchEnds
from oncemq.protocol.step import Caller


@pytest.fixture
def orders(desk):
    """A desk with a topic that holds one message."""
    desk.subscription("orders")
    desk.put("orders", b"a")
    desk.sync()
    return desk


def watch(desk, *topics: tuple[str, int], seconds: float = 5, route: bytes = b"spark") -> list:
    """Ask where topics end; what is answered at once."""
    caller = Caller(route, next(desk.tokens))
    step = desk.broker.handle(caller, WatchEnds(topics, int(seconds * 1000)), None, desk.now)
    assert step.writes == []
    return step.replies


def told(owed) -> dict[str, tuple[int, int]]:
    assert isinstance(owed.answer, Ends)
    return {each.name: (each.low, each.end) for each in owed.answer.topics}


def test_an_end_that_differs_is_told_at_once(orders) -> None:
    for seen in (0, 2):
        (owed,) = watch(orders, ("orders", seen))
        assert told(owed) == {"orders": (0, 1)}


def test_without_a_wait_the_end_is_told_at_once(orders) -> None:
    (owed,) = watch(orders, ("orders", 1), seconds=0)
    assert told(owed) == {"orders": (0, 1)}


def test_a_watcher_is_woken_by_the_sync_not_by_the_append(orders) -> None:
    assert watch(orders, ("orders", 1)) == []
    assert len(orders.step(*orders.putting("orders", b"b")).replies) == 1  # the receipt alone
    (owed,) = orders.sync()
    assert told(owed) == {"orders": (0, 2)}
    assert orders.pass_time(10) == []


def test_what_others_put_wakes_nobody(orders) -> None:
    orders.subscription("refunds")
    assert watch(orders, ("orders", 1)) == []
    orders.put("refunds", b"x")
    assert orders.sync() == []


def test_one_of_several_topics_wakes_and_all_are_told(orders) -> None:
    orders.subscription("refunds")
    assert watch(orders, ("orders", 1), ("refunds", 0)) == []
    orders.put("refunds", b"x")
    (owed,) = orders.sync()
    assert told(owed) == {"orders": (0, 1), "refunds": (0, 1)}
    orders.put("orders", b"b")
    assert orders.sync() == []  # answered once


def test_the_wait_ends_with_the_same_end(orders) -> None:
    assert watch(orders, ("orders", 1), seconds=5) == []
    assert orders.pass_time(4.9) == []
    (owed,) = orders.pass_time(0.1)
    assert told(owed) == {"orders": (0, 1)}
    assert orders.broker.next_deadline() is None


def test_a_wait_is_no_longer_than_the_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(wait_ms_max=1000))
    desk.subscription("orders")
    assert watch(desk, ("orders", 0), seconds=3600) == []
    assert len(desk.pass_time(1)) == 1


def test_a_missing_topic_is_left_out_and_not_waited_for(orders) -> None:
    (owed,) = watch(orders, ("orders", 1), ("ordres", 0))
    assert told(owed) == {"orders": (0, 1)}


def test_a_deleted_topic_wakes_who_watches_it(orders) -> None:
    assert watch(orders, ("orders", 1)) == []
    (owed, _) = orders.step(DeleteTopic("orders")).replies
    assert told(owed) == {}


def test_a_newer_question_of_a_connection_replaces_the_older(orders) -> None:
    assert watch(orders, ("orders", 1), seconds=5) == []
    assert watch(orders, ("orders", 1), seconds=9) == []
    assert watch(orders, ("orders", 1), seconds=7, route=b"another") == []
    assert orders.pass_time(5) == []
    assert len(orders.pass_time(2)) == 1
    assert len(orders.pass_time(2)) == 1


def test_a_topic_named_many_times_is_waited_for_once(orders) -> None:
    assert watch(orders, *[("orders", 1)] * 1_000) == []
    orders.put("orders", b"b")
    assert [told(owed) for owed in orders.sync()] == [{"orders": (0, 2)}]


def test_what_all_watchers_name_is_bounded_and_the_oldest_is_answered(
    orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of connections that are gone: a wait outlives its connection by up to a minute."""
    monkeypatch.setattr(end_watches, "NAMES_MAX", 3 * (1 + end_watches.WATCHER_NAMES))
    for route in (b"first", b"second", b"third"):
        assert watch(orders, ("orders", 1), route=route) == []
    (owed,) = watch(orders, ("orders", 1), route=b"fourth")
    assert (owed.caller.route, told(owed)) == (b"first", {"orders": (0, 1)})
    assert watch(orders, ("orders", 1), route=b"second") == []  # asks anew: the third is the oldest
    (owed,) = watch(orders, ("orders", 1), route=b"fifth")
    assert owed.caller.route == b"third"
    orders.put("orders", b"b")
    assert [owed.caller.route for owed in orders.sync()] == [b"fourth", b"second", b"fifth"]
    assert [watch(orders, ("orders", 2), route=bytes((n,))) for n in range(3)] == [[]] * 3


def test_a_topic_that_is_not_durable_yet_is_not_told_before_it_is(desk) -> None:
    desk.create("orders")
    (owed,) = watch(desk, ("orders", 5))
    assert owed.after == len(desk.records) > desk.durable
