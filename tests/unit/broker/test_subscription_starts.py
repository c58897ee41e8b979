"""Where a subscription began: who finds it elsewhere knows that messages of it were settled."""

import msgspec

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import ClientId, Offset, SubscriptionId
from oncemq.protocol.records import MessagesLost
from oncemq.protocol.replies import NO_OFFSET, SubscriptionInfo, SubscriptionList
from oncemq.protocol.requests import ListSubscriptions, Start

ME = ClientId("me")


def began(desk, topic: str = "orders", client: str = "billing") -> tuple[int, int]:
    """Where the server says that a subscription began, and where it stands."""
    desk.sync()
    shown = desk.ask(ListSubscriptions(topic, client))
    assert isinstance(shown, SubscriptionList)
    (info,) = shown.subscriptions
    return info.began, info.cursor


def used(desk) -> int:
    """A subscription that began at @2 and has settled one message."""
    desk.subscription("orders", "earlier")
    desk.put("orders", b"a", b"b")
    subscription = desk.subscription("orders")
    desk.put("orders", b"c", b"d")
    desk.sync()
    desk.settle(desk.settled("orders", subscription, 3))
    return subscription


def test_a_subscription_says_where_it_began(desk) -> None:
    used(desk)
    assert began(desk) == (2, 3)
    assert began(desk.crash()) == (2, 3)
    assert began(desk, client="earlier") == (0, 0)


def test_one_that_asked_for_a_start_began_there(desk) -> None:
    used(desk)
    desk.subscribe("orders", "late", Start("offset", 1))
    desk.subscribe("orders", "eager", Start("earliest"))
    assert began(desk, client="late") == (1, 1)
    assert began(desk, client="eager") == (0, 0)


def test_a_checkpoint_keeps_it(desk) -> None:
    used(desk)
    restored = Shard(7)
    for blob in snapshot.capture(desk.shard):
        snapshot.restore(restored, blob)
    found = restored.by_name["orders"].subscriptions
    assert found == desk.shard.by_name["orders"].subscriptions
    assert {client: each.began for client, each in found.items()} == {"earlier": 0, "billing": 2}


def test_of_a_checkpoint_that_does_not_say_it_began_no_later_than_it_stood(desk, make_desk) -> None:
    """An older version wrote it: what is settled from now on is known again."""
    subscription = used(desk)
    after = make_desk()
    for blob in snapshot.capture(desk.shard):
        kind, *fields = msgspec.msgpack.decode(blob)
        topic_before_it = [kind, *fields[:13]] if kind == 1 else [kind, *fields]
        snapshot.restore(after.shard, msgspec.msgpack.encode(topic_before_it))
    after.shard.serial = desk.shard.serial
    after.records, after.epochs = desk.records, desk.epochs
    assert began(after) == (3, 3)
    after.settle(after.settled("orders", subscription, 4))
    assert began(after) == (3, 4)


def test_a_pattern_s_subscription_that_is_asked_for_by_name_began_where_the_pattern_s_did(
    desk,
) -> None:
    desk.subscribe("ord.*", "billing")
    desk.subscription("ord.eu", "other")
    desk.put("ord.eu", b"a", b"b")
    desk.sync()
    first = desk.shard.by_name["ord.eu"].subscriptions["billing"]
    desk.settle(desk.settled("ord.eu", first.id, 1))
    assert began(desk, "ord.eu") == (0, 1)
    desk.subscribe("ord.eu", "billing")
    assert began(desk, "ord.eu") == (0, 1)
    assert began(desk.crash(), "ord.eu") == (0, 1)


def test_made_again_it_begins_again(desk) -> None:
    used(desk)
    desk.unsubscribe("orders")
    desk.subscription("orders")
    assert began(desk) == (4, 4)


def test_a_hole_that_it_has_to_pass_over_is_not_taken_for_settled_messages(desk) -> None:
    used(desk)
    topic = desk.shard.by_name["orders"]
    desk.shard.apply(MessagesLost(topic.id, Offset(0), Offset(4)), desk.shard.serial + 1)
    fresh, taken = topic.subscriptions["earlier"], topic.subscriptions["billing"]
    assert [(each.began, each.cursor) for each in (fresh, taken)] == [(4, 4), (2, 4)]


def test_who_is_not_told_by_an_older_server_does_not_know() -> None:
    """A server of before says nothing of it."""
    older = [SubscriptionInfo("orders", ME, SubscriptionId(9), Offset(3), Offset(4), waiting=True)]
    blob = msgspec.msgpack.encode([msgspec.to_builtins(each)[:9] for each in older])
    assert msgspec.msgpack.decode(blob, type=list[SubscriptionInfo]) == older
    assert older[0].began == NO_OFFSET
