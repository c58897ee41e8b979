"""G6 and fencing: who is let in, what a subscription gets, and when it gets nothing more."""

import msgspec
import pytest
from msgspec.structs import replace

from oncemq.broker import subscriptions
from oncemq.broker.gets import NOTHING_NEW
from oncemq.broker.subscriptions import LATE_MICROS
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import (
    EPOCH_MAX,
    ClientId,
    Epoch,
    LeaderEpoch,
    Offset,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import (
    ClientOpened,
    Retention,
    SubscriptionEnded,
    SubscriptionMade,
    TopicCreated,
)
from oncemq.protocol.replies import (
    RefusedReply,
    Subscribed,
    Unsubscribed,
    Welcome,
    WelcomeLimits,
    leader_changed,
)
from oncemq.protocol.requests import (
    DeleteTopic,
    Get,
    Hello,
    Lease,
    Resume,
    Settle,
    Start,
    Subscribe,
    Unsubscribe,
)
from oncemq.protocol.step import Write

TAG = 7 << 32
BILLING = ClientId("billing")


def made(topic: int, subscription: int, cursor: int = 0, *, new: bool = True) -> Subscribed:
    return Subscribed(new, TopicId(TAG | topic), SubscriptionId(TAG | subscription), Offset(cursor))


# ------------------------------------------------------------------ subscribing


def test_subscribing_makes_the_topic_and_the_subscription(desk) -> None:
    desk.hello("billing")
    step = desk.step(Subscribe(BILLING, Epoch(1), "orders"))
    assert step.writes == [
        Write(TopicCreated(TopicId(TAG | 1), "orders", Retention(), desk.now)),
        Write(
            SubscriptionMade(
                TopicId(TAG | 1), SubscriptionId(TAG | 2), BILLING, Offset(0), desk.now
            )
        ),
    ]
    (owed,) = step.replies
    assert (owed.answer, owed.after) == (made(1, 2), 3)


def test_subscribing_twice_is_answered_already_and_changes_nothing(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"a")
    before = len(desk.records)
    assert desk.subscribe("orders", start=Start("earliest")) == made(1, 2, new=False)
    assert len(desk.records) == before


def test_already_subscribed_is_said_only_when_that_is_durable(desk) -> None:
    desk.subscribe("orders")
    again = Subscribe(BILLING, desk.epoch("billing"), "orders")
    assert desk.owed(again).after == len(desk.records)


def test_unsubscribing_when_not_subscribed_says_so(desk) -> None:
    assert desk.unsubscribe("unknown") == Unsubscribed(False)
    desk.create("orders")
    assert desk.unsubscribe("orders") == Unsubscribed(False)


def test_unsubscribing_ends_it_after_that_is_durable(desk) -> None:
    desk.subscribe("orders")
    step = desk.step(Unsubscribe(BILLING, desk.epoch("billing"), "orders"))
    assert step.writes == [Write(SubscriptionEnded(TopicId(TAG | 1), BILLING))]
    ended = Unsubscribed(True, (), (SubscriptionId(TAG | 2),))
    assert (step.replies[0].answer, step.replies[0].after) == (ended, 4)
    assert desk.get("orders").code == "not_subscribed"


def test_a_late_copy_of_an_earlier_change_undoes_nothing(desk) -> None:
    granted = desk.epoch("billing")
    made = desk.ask(Subscribe(BILLING, granted, "orders", number=1)).subscription_id
    left = Unsubscribe(BILLING, granted, "orders", number=2)
    assert desk.ask(left) == Unsubscribed(True, (), (made,))
    assert desk.ask(Subscribe(BILLING, granted, "orders", number=1)).code == "outdated"
    assert desk.ask(left) == Unsubscribed(False)  # the same once more: a retry
    again = desk.ask(Subscribe(BILLING, granted, "orders", number=3))
    assert desk.ask(left).code == "outdated"
    after = desk.ask(Subscribe(BILLING, granted, "orders", number=4))
    assert after.subscription_id == again.subscription_id


def test_a_copy_that_went_to_an_earlier_leader_undoes_nothing_at_the_next_one(desk) -> None:
    """It may have been on its way to this server since before it led."""
    granted = desk.epoch("billing")
    desk.broker.recovered(desk.now, LeaderEpoch(4))
    changes = [
        Subscribe(BILLING, granted, "orders", number=1),
        Unsubscribe(BILLING, granted, "orders", number=2),
        Lease(BILLING, granted, 60_000, number=3),
    ]
    for change in changes:
        assert desk.ask(change) == leader_changed(4)
        assert desk.ask(replace(change, leader_epoch=3)) == leader_changed(4)
        assert not isinstance(desk.ask(replace(change, leader_epoch=4)), RefusedReply)
    made = desk.ask(Subscribe(BILLING, granted, "orders", number=5, leader_epoch=4))
    desk.broker.recovered(desk.now, LeaderEpoch(6))
    assert desk.ask(replace(changes[1], leader_epoch=4)).code == "leader_changed"
    there = desk.ask(Subscribe(BILLING, granted, "orders", number=5, leader_epoch=6))
    assert there.subscription_id == made.subscription_id


# ------------------------------------------------------------------ the boundary (G6)


def test_a_late_unsubscribe_spares_a_newer_subscription_whatever_others_did_since(
    desk, monkeypatch
) -> None:
    monkeypatch.setattr(subscriptions, "CHANGES_MAX", 60)
    desk.hello("billing")
    desk.ask(Subscribe(BILLING, Epoch(1), "orders", number=1))
    late = Unsubscribe(BILLING, Epoch(1), "orders", number=2)
    assert desk.ask(late).ended
    assert desk.ask(Subscribe(BILLING, Epoch(1), "orders", number=3)).made
    for number in range(100):
        guest = ClientId(f"_anonymous-{number}")
        for change in (Subscribe, Unsubscribe):
            changed = desk.ask(change(guest, Epoch(0), "news", number=1 + (change is Unsubscribe)))
            assert not isinstance(changed, RefusedReply), changed
        desk.now += 20_000_000  # copies of all of them come no more after ten minutes
    assert desk.ask(late).code == "outdated"
    assert [topic.name for topic in desk.shard.subscribed(BILLING)] == ["orders"]


def test_changes_are_remembered_up_to_a_limit_and_refused_beyond_it(desk, monkeypatch) -> None:
    monkeypatch.setattr(subscriptions, "CHANGES_MAX", 3)
    guests = [ClientId(f"_anonymous-{number}") for number in range(5)]
    for guest in guests[:3]:
        desk.ask(Subscribe(guest, Epoch(0), "news", number=1))
        desk.ask(Unsubscribe(guest, Epoch(0), "news", number=2))
    assert desk.ask(Subscribe(guests[3], Epoch(0), "news", number=1)).code == "limit"
    desk.now += LATE_MICROS
    assert desk.ask(Subscribe(guests[3], Epoch(0), "news", number=1)).made


def test_a_late_subscribe_does_not_make_a_deleted_topic_again(desk) -> None:
    desk.hello("billing")
    late = Subscribe(BILLING, Epoch(1), "orders", number=1)
    assert desk.ask(late).made
    desk.ask(DeleteTopic("orders"))
    assert desk.ask(late).code == "deleted_since"
    assert "orders" not in desk.shard.by_name
    desk.subscribe("orders", "shipping")  # somebody makes it anew
    assert desk.ask(late).code == "deleted_since"
    assert BILLING not in desk.shard.by_name["orders"].subscriptions
    assert desk.ask(Subscribe(BILLING, Epoch(1), "orders", number=2)).made


def test_a_repeated_unsubscribe_is_answered_also_after_a_deletion(desk) -> None:
    desk.hello("billing")
    desk.ask(Subscribe(BILLING, Epoch(1), "news", number=1))
    desk.ask(Subscribe(BILLING, Epoch(1), "orders", number=2))
    left = Unsubscribe(BILLING, Epoch(1), "orders", number=3)
    assert desk.ask(left).ended
    desk.ask(DeleteTopic("news"))
    assert desk.ask(left) == Unsubscribed(False)


def test_a_put_before_the_subscription_is_not_delivered_even_if_it_was_not_synced_yet(desk) -> None:
    desk.subscribe("orders", "early")
    desk.put("orders", b"before")
    assert desk.subscribe("orders") == made(1, 3, cursor=1)
    desk.put("orders", b"after")
    desk.sync()
    assert desk.spans("orders") == {"orders": range(1, 2)}


def test_the_boundary_holds_after_a_crash(desk) -> None:
    desk.subscribe("orders", "early")
    desk.put("orders", b"before")
    desk.subscribe("orders")
    desk.put("orders", b"after")
    desk.sync()
    assert desk.crash().spans("orders") == {"orders": range(1, 2)}


def test_subscribing_again_starts_afresh_under_another_identity(desk) -> None:
    desk.subscribe("orders", "keeps")
    first = desk.subscription("orders")
    desk.put("orders", b"a")
    desk.unsubscribe("orders")
    desk.put("orders", b"b")
    second = desk.subscription("orders")
    desk.put("orders", b"c")
    desk.sync()
    assert second > first
    assert desk.spans("orders") == {"orders": range(2, 3)}


def test_a_subscription_may_begin_at_the_earliest_kept_message(desk) -> None:
    slow = desk.subscription("orders", "slow")
    for payload in (b"a", b"b", b"c"):
        desk.put("orders", payload)
    desk.settle(desk.settled("orders", slow, 1), client="slow")
    assert desk.subscribe("orders", start=Start("earliest")).cursor == 1


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_subscription_may_begin_at_any_kept_offset(desk, offset) -> None:
    slow = desk.subscription("orders", "slow")
    desk.put("orders", b"a", b"b", b"c")
    desk.settle(desk.settled("orders", slow, 1), client="slow")
    assert desk.subscribe("orders", start=Start("offset", offset)).cursor == offset


@pytest.mark.parametrize("offset", [-1, 0, 4, 2**63])
def test_a_subscription_from_an_offset_that_is_not_there_is_refused(desk, offset) -> None:
    slow = desk.subscription("orders", "slow")
    desk.put("orders", b"a", b"b", b"c")
    desk.settle(desk.settled("orders", slow, 1), client="slow")
    answer = desk.subscribe("orders", start=Start("offset", offset))
    assert answer.code == "offset_out_of_range"
    assert "the topic holds 1 up to 3" in answer.detail


def test_a_refused_subscription_makes_no_topic(desk) -> None:
    assert desk.subscribe("orders", start=Start("offset", 1)).code == "offset_out_of_range"
    assert desk.subscribe("orders", start=Start("sideways")).code == "malformed"
    assert desk.subscribe("_orders").code == "name_invalid"
    assert desk.subscribe("a\nb").code == "name_invalid"
    assert desk.shard.topics == {}


def test_a_new_topic_may_be_subscribed_from_earliest(desk) -> None:
    assert desk.subscribe("orders", start=Start("earliest")) == made(1, 2)


def test_nothing_is_kept_for_a_subscription_that_ended(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"a")
    desk.sync()
    desk.unsubscribe("orders")
    assert desk.subscribe("orders", start=Start("earliest")).cursor == 1
    assert desk.get("orders") == NOTHING_NEW


def test_a_topic_has_no_more_subscriptions_than_the_limit(make_desk) -> None:
    desk = make_desk(ServerLimits(subscriptions_max=1))
    desk.subscribe("orders")
    assert desk.subscribe("orders", "other").code == "limit"
    assert desk.subscribe("orders").made is False
    assert desk.subscribe("refunds", "other").made is True


@pytest.mark.parametrize("tail", ["x" * 300, "a\nb", "e\u0301"])
def test_an_anonymous_subscriber_has_a_proper_name_too(desk, tail) -> None:
    step = desk.step(Subscribe(ClientId(f"_anonymous-{tail}"), Epoch(0), "orders"))
    assert step.writes == []
    assert step.replies[0].answer.code == "name_invalid"


def test_an_anonymous_client_needs_no_hello(desk) -> None:
    assert desk.subscribe("orders", "_anonymous-1").made
    desk.put("orders", b"a")
    desk.sync()
    assert desk.spans("orders", "_anonymous-1") == {"orders": range(1)}


# ------------------------------------------------------------------ hello


def test_hello_grants_an_epoch_and_tells_the_limits(make_desk) -> None:
    desk = make_desk(ServerLimits(message_bytes_max=10, batch_bytes_max=20, batch_messages_max=30))
    step = desk.step(Hello(BILLING, Epoch(0), 77))
    assert step.writes == [Write(ClientOpened(BILLING, Epoch(1), 77))]
    (owed,) = step.replies
    assert (owed.answer, owed.after) == (Welcome(Epoch(1), WelcomeLimits(10, 20, 30)), 1)


def test_a_hello_repeated_with_its_nonce_is_the_same_start(desk) -> None:
    first = desk.hello("billing", nonce=77)
    before = len(desk.records)
    assert desk.hello("billing", nonce=77) == first
    assert len(desk.records) == before


def test_a_hello_is_recognized_after_a_crash(desk) -> None:
    first = desk.hello("billing", nonce=77)
    desk.sync()
    assert desk.crash().hello("billing", nonce=77) == first


def test_each_start_gets_a_higher_epoch(desk) -> None:
    granted = [desk.hello("billing", last=last).client_epoch for last in (0, 1, 2)]
    assert granted == [1, 2, 3]


@pytest.mark.parametrize("last", [2, 41, EPOCH_MAX - 1])
def test_an_epoch_above_the_granted_one_is_refused_and_locks_nobody_out(desk, last) -> None:
    desk.hello("billing")
    refused = desk.hello("billing", last=last, nonce=99)
    assert refused.code == "history_lost"
    assert f"granted epoch {last}, and this server has granted it 1" in refused.detail
    assert desk.hello("never-used", last=last).code == "history_lost"
    assert desk.hello("billing", last=1).client_epoch == 2
    assert desk.hello("never-used").client_epoch == 1


def test_a_client_with_an_older_state_is_refused_and_told_what_to_do(desk) -> None:
    for last in (0, 1, 2):
        desk.hello("billing", last=last)
    answer = desk.hello("billing", last=2)
    assert answer.code == "stale_state"
    assert "epoch 2, but 3" in answer.detail
    assert desk.shard.clients.entries[BILLING].client_epoch == 3


@pytest.mark.parametrize("client", ["", "_anonymous-1", "_x", "x" * 256, "a\nb"])
def test_a_client_id_keeps_the_rules_of_names(desk, client) -> None:
    assert desk.hello(client).code == "name_invalid"
    assert desk.records == []


@pytest.mark.parametrize("last", [-1, 2**63, 2**64 - 1])
def test_an_epoch_that_cannot_be_is_refused_not_stored(desk, last) -> None:
    step = desk.step(Hello(BILLING, Epoch(last), 1))
    assert step.writes == []
    assert isinstance(step.replies[0].answer, RefusedReply)


@pytest.mark.parametrize("nonce", [0, 2**63, 2**64 - 1])
def test_whatever_hello_writes_can_be_stored(desk, nonce) -> None:
    for write in desk.step(Hello(BILLING, Epoch(2**61), nonce)).writes:
        msgspec.msgpack.encode(write.record)


# ------------------------------------------------------------------ fencing


def _requests(desk, client: str, epoch: int):
    name, granted = ClientId(client), Epoch(epoch)
    put, body = desk.putting("orders", b"a", first=1)
    return [
        (Get(name, granted, "orders"), None),
        (msgspec.structs.replace(put, client=name, client_epoch=granted), body),
        (Subscribe(name, granted, "refunds"), None),
        (Unsubscribe(name, granted, "orders"), None),
        (Settle(name, granted, ()), None),
        (Resume(name, granted, "orders", put.producer, 1), None),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_client_of_an_older_epoch_is_refused_whatever_it_asks(desk, number) -> None:
    desk.subscribe("orders")
    desk.hello("billing", last=1)
    step = desk.step(*_requests(desk, "billing", 1)[number])
    assert step.writes == []
    (owed,) = step.replies
    assert (owed.answer.code, owed.after) == ("fenced", len(desk.records))


@pytest.mark.parametrize("number", range(6))
def test_a_client_that_never_said_hello_is_asked_to(desk, number) -> None:
    step = desk.step(*_requests(desk, "stranger", 1)[number])
    assert [owed.answer.code for owed in step.replies] == ["unknown_client"]


@pytest.mark.parametrize("number", range(6))
def test_an_epoch_this_server_has_not_granted_is_asked_to_say_hello(desk, number) -> None:
    desk.subscribe("orders")
    step = desk.step(*_requests(desk, "billing", 2)[number])
    assert [owed.answer.code for owed in step.replies] == ["unknown_client"]


def test_fencing_holds_after_a_crash(desk) -> None:
    desk.subscribe("orders")
    desk.hello("billing", last=1)
    desk.sync()
    assert desk.crash().ask(Get(BILLING, Epoch(1), "orders")).code == "fenced"


def test_the_older_client_learns_that_it_is_fenced_when_it_waits_once_that_is_so(desk) -> None:
    desk.subscribe("orders")
    desk.subscribe("refunds")
    desk.step(desk.getting("orders", wait=5))
    desk.step(desk.getting("", wait=5))
    step = desk.step(Hello(BILLING, Epoch(1), 99))
    *fenced, welcome = step.replies
    assert [(owed.answer.code, owed.after) for owed in fenced] == [("fenced", welcome.after)] * 2
    assert (welcome.answer.client_epoch, welcome.after) == (2, desk.shard.serial)
    assert len(desk.broker.waiting) == 0


def test_a_get_learns_of_the_end_of_what_it_waits_for_once_that_is_durable(desk) -> None:
    desk.subscribe("orders")
    desk.step(desk.getting("orders", wait=5))
    ended, answer = desk.step(Unsubscribe(BILLING, Epoch(1), "orders")).replies
    assert (ended.answer.code, ended.after) == ("not_subscribed", answer.after)
    desk.subscribe("orders")
    desk.step(desk.getting("orders", wait=5))
    gone, answer = desk.step(DeleteTopic("orders")).replies
    assert (gone.answer.code, gone.after) == ("not_subscribed", answer.after)


def test_a_repeated_hello_fences_nobody(desk) -> None:
    desk.hello("billing", nonce=5)
    desk.subscribe("orders")
    desk.step(desk.getting("orders", wait=5))
    assert len(desk.step(Hello(BILLING, Epoch(0), 5)).replies) == 1
    assert len(desk.broker.waiting) == 1


def test_a_newer_client_takes_over_the_subscriptions_and_cursors(desk) -> None:
    desk.subscribe("orders")
    desk.put("orders", b"a")
    desk.sync()
    desk.hello("billing", last=1)
    assert desk.spans("orders") == {"orders": range(1)}


def test_client_ids_have_a_limit_and_the_known_ones_go_on(make_desk) -> None:
    desk = make_desk(ServerLimits(clients_max=2))
    for client in ("one", "two"):
        assert isinstance(desk.hello(client), Welcome)
    refused = desk.hello("three")
    assert (refused.code, "clients_max" in refused.detail) == ("limit", True)
    assert isinstance(desk.hello("one", last=1), Welcome)
