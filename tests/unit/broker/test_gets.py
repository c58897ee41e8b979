"""G1, G4: each subscription gets each durable message once, in order, and only from its cursor."""

import pytest
from msgspec import structs

from oncemq.broker.gets import NOTHING_NEW
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Offset, SubscriptionId, TopicId
from oncemq.protocol.records import CursorMoved, Retention
from oncemq.protocol.replies import Done, RefusedReply
from oncemq.protocol.requests import Get, Read, Settle, Start, Subscribe
from oncemq.protocol.step import Deliver, Span, Write

ID = TopicId((7 << 32) | 1)


@pytest.fixture
def orders(desk):
    """`billing` subscribes to orders; three messages are durable."""
    desk.id = desk.subscription("orders")
    desk.put("orders", b"a")
    desk.put("orders", b"b", b"c")
    desk.sync()
    return desk


# ------------------------------------------------------------------ what there is


def test_a_get_is_owed_everything_from_the_cursor_to_what_is_durable(orders) -> None:
    answer = orders.get("orders", limit=2)
    span = Span("orders", ID, SubscriptionId(orders.id), Offset(0), Offset(3))
    assert answer == Deliver((span,), 2, 1 << 20)


def test_a_message_is_not_visible_before_it_is_synced(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    assert desk.get("orders") == NOTHING_NEW
    desk.sync()
    assert desk.spans("orders") == {"orders": range(1)}


def test_a_sync_shows_no_more_than_it_covers(desk) -> None:
    desk.subscription("orders")
    desk.put("orders", b"a")
    durable = len(desk.records)
    desk.put("orders", b"b")
    desk.broker.synced(durable)
    assert desk.spans("orders") == {"orders": range(1)}


def test_nothing_new_is_an_answer(orders) -> None:
    assert orders.get("orders", settled=(orders.settled("orders", orders.id, 3),)) == NOTHING_NEW


def test_a_get_without_a_subscription_is_refused(desk) -> None:
    desk.create("orders")
    for topic in ("orders", "unknown", ""):
        answer = desk.get(topic)
        assert isinstance(answer, RefusedReply)
        assert answer.code == "not_subscribed"


def test_a_get_repeated_gives_the_same_until_it_is_settled(orders) -> None:
    assert orders.get("orders") == orders.get("orders")


def test_a_get_is_owed_at_once_even_when_it_moves_a_cursor(orders) -> None:
    owed = orders.owed(orders.getting("orders", settled=(orders.settled("orders", orders.id, 1),)))
    assert owed.after <= orders.durable


def test_a_client_may_read_ahead_of_its_cursor_but_never_behind_it(orders) -> None:
    assert orders.spans("orders", start=2) == {"orders": range(2, 3)}
    orders.settle(orders.settled("orders", orders.id, 1))
    assert orders.spans("orders", start=0) == {"orders": range(1, 3)}
    assert orders.get("orders", start=3) == NOTHING_NEW
    assert orders.get("orders", start=2**63) == NOTHING_NEW


def test_a_start_is_of_the_subscription_it_names_and_means_nothing_to_another(orders) -> None:
    mine = orders.shard.by_name["orders"].subscriptions["billing"].id
    asked = orders.getting("orders", start=2)
    for subscription_id, expected in ((0, 2), (mine, 2), (mine + 1, 0)):
        (owed,) = orders.step(structs.replace(asked, subscription_id=subscription_id)).replies
        assert owed.answer.spans[0].start == expected


def test_two_subscriptions_have_cursors_of_their_own(orders) -> None:
    orders.subscription("orders", "audit", Start("earliest"))
    orders.settle(orders.settled("orders", orders.id, 2))
    assert orders.spans("orders") == {"orders": range(2, 3)}
    assert orders.spans("orders", "audit") == {"orders": range(3)}


@pytest.mark.parametrize("limit", [0, -5])
def test_a_get_asks_for_one_message_at_least(orders, limit) -> None:
    assert orders.get("orders", limit=limit).limit == 1


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-1, 1), (500, 500), (2**62, 1000)])
def test_a_get_brings_at_least_something_and_no_more_than_a_batch_may_have(
    make_desk, asked, given
) -> None:
    desk = make_desk(ServerLimits(batch_bytes_max=1000))
    desk.subscription("orders")
    desk.create("orders", Retention(forever=True))
    desk.put("orders", b"a")
    desk.sync()
    get = Get(ClientId("billing"), desk.epoch("billing"), "orders", bytes_max=asked)
    assert desk.ask(get).bytes_max == given
    assert desk.ask(Read("orders", Offset(0), bytes_max=asked)).bytes_max == given


# ------------------------------------------------------------------ any topic


def test_a_get_of_any_topic_is_owed_the_spans_of_all_subscribed_ones(orders) -> None:
    orders.subscription("refunds")
    orders.subscription("quiet")
    orders.put("refunds", b"r")
    orders.put("unsubscribed", b"x")
    orders.sync()
    assert orders.spans() == {"orders": range(3), "refunds": range(1)}


def test_a_get_of_any_topic_goes_from_the_cursors_whatever_start_says(orders) -> None:
    assert orders.spans(start=2) == {"orders": range(3)}


@pytest.fixture
def three(desk):
    """`billing` subscribes to a, b and c, one durable message in each."""
    for topic in ("a", "b", "c"):
        desk.subscription(topic)
        desk.put(topic, b"x")
    desk.sync()
    return desk


def test_a_get_of_some_topics_is_owed_the_spans_of_these(three) -> None:
    assert three.spans(only=("a", "c")) == {"a": range(1), "c": range(1)}


def test_a_topic_named_twice_is_owed_once(three) -> None:
    assert len(three.get(only=("a", "a", "b", "a")).spans) == 2


def test_each_of_some_topics_must_be_subscribed(three) -> None:
    for only in (("a", "unknown"), ("unknown",)):
        assert three.get(only=only).code == "not_subscribed"


# ------------------------------------------------------------------ settling (G4)


def test_a_get_settles_what_it_says_and_no_more(orders) -> None:
    get = orders.getting("orders", settled=(orders.settled("orders", orders.id, 2),))
    step = orders.step(get)
    assert step.writes == [Write(CursorMoved(ID, ClientId("billing"), Offset(2)))]
    (span,) = step.replies[0].answer.spans
    assert (span.start, span.end) == (2, 3)


def test_a_settled_message_is_not_given_again_after_a_crash(orders) -> None:
    orders.settle(orders.settled("orders", orders.id, 2))
    orders.sync()
    assert orders.crash().spans("orders") == {"orders": range(2, 3)}


def test_settle_answers_when_it_is_durable_and_says_whether_anything_moved(orders) -> None:
    settled = (orders.settled("orders", orders.id, 2),)
    settle = Settle(ClientId("billing"), orders.epoch("billing"), settled)
    owed = orders.owed(settle)
    assert (owed.answer, owed.after) == (Done(changed=True), len(orders.records))
    assert orders.ask(settle) == Done(changed=False)


def test_a_cursor_never_goes_back(orders) -> None:
    orders.settle(orders.settled("orders", orders.id, 2))
    assert orders.settle(orders.settled("orders", orders.id, 1)) == Done(changed=False)
    assert orders.cursor("orders") == 2


def test_a_cursor_never_goes_back_within_one_request(orders) -> None:
    places = [orders.settled("orders", orders.id, cursor) for cursor in (3, 1, 2)]
    orders.settle(*places)
    assert orders.cursor("orders") == 3
    moved = [record for record in orders.records if isinstance(record, CursorMoved)]
    assert moved == [CursorMoved(ID, ClientId("billing"), Offset(3))]


def test_a_cursor_beyond_the_end_is_refused_and_moves_nothing(orders) -> None:
    other = orders.subscription("refunds")
    orders.put("refunds", b"r")
    orders.sync()
    settled = (orders.settled("refunds", other, 1), orders.settled("orders", orders.id, 4))
    step = orders.step(orders.getting("orders", settled=settled))
    assert step.writes == []
    assert step.replies[0].answer.code == "cursor_beyond_end"
    assert "orders/billing@4" in step.replies[0].answer.detail


def test_settling_a_subscription_that_ended_changes_nothing(orders) -> None:
    ended = orders.id
    orders.unsubscribe("orders")
    orders.subscription("orders", start=Start("earliest"))
    before = orders.cursor("orders")
    orders.put("orders", b"d")
    assert not orders.settle(orders.settled("orders", ended, 4)).changed
    assert orders.cursor("orders") == before
    assert not orders.settle(orders.settled("gone", ended, 4)).changed


def test_settling_names_the_subscriptions_that_ended(orders) -> None:
    ended, topic = orders.id, orders.settled("orders", orders.id, 1)
    assert orders.settle(topic) == Done(changed=True)
    orders.unsubscribe("orders")
    assert orders.settle(topic) == Done(changed=False, ended=(ended,))
    again = orders.subscription("orders", start=Start("earliest"))
    orders.put("orders", b"d")
    both = (topic, orders.settled("orders", again, 4))
    assert orders.settle(*both) == Done(changed=True, ended=(ended,))


def test_a_subscription_of_a_future_that_was_lost_is_not_called_ended(orders) -> None:
    never_given = orders.broker.shard.identities.next()
    assert orders.settle(orders.settled("orders", never_given, 1)) == Done(changed=False)


def test_settling_for_one_client_moves_no_other_clients_cursor(orders) -> None:
    audit = orders.subscription("orders", "audit", Start("earliest"))
    assert not orders.settle(orders.settled("orders", audit, 2), client="billing").changed
    assert orders.cursor("orders", "audit") == 0


# ------------------------------------------------------------------ reading without a subscription


def test_a_read_gives_what_is_kept_and_settles_nothing(orders) -> None:
    span = Span("orders", ID, SubscriptionId(0), Offset(1), Offset(3))
    assert orders.ask(Read("orders", Offset(1), 10, 500)) == Deliver((span,), 10, 500)
    assert orders.cursor("orders") == 0


def test_a_read_at_the_end_finds_nothing_new(orders) -> None:
    assert orders.ask(Read("orders", Offset(3))) == NOTHING_NEW


@pytest.mark.parametrize("offset", [-1, 1, 4, 2**63])
def test_a_read_outside_what_is_kept_is_refused(orders, offset) -> None:
    orders.settle(orders.settled("orders", orders.id, 2))
    answer = orders.ask(Read("orders", Offset(offset)))
    assert answer.code == "offset_out_of_range"
    assert "holds offsets 2 up to 3" in answer.detail


def test_a_read_of_an_unknown_topic_says_what_there_is(orders) -> None:
    answer = orders.ask(Read("ordres", Offset(0)))
    assert answer == RefusedReply(
        "no_such_topic", "unknown topic 'ordres'; this server has: orders"
    )


def test_messages_wait_until_the_subscription_that_gets_them_is_durable(desk) -> None:
    desk.subscribe("orders", "anchor")
    desk.put("orders", b"a")
    desk.sync()
    made = desk.step(Subscribe(ClientId("late"), desk.epoch("late"), "orders", Start("earliest")))
    owed = desk.owed(desk.getting("orders", client="late"))
    assert owed.after == made.replies[0].after > desk.durable


def test_a_refused_read_waits_for_the_deletion_it_rests_on(desk) -> None:
    desk.create("orders", Retention(forever=True))
    desk.put("orders", b"a")
    desk.sync()
    desk.delete("orders")
    owed = desk.owed(Read("orders", Offset(0)))
    assert (owed.answer.code, owed.after) == ("no_such_topic", desk.shard.serial)
    assert owed.after > desk.durable
