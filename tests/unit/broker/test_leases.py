"""Leases: subscriptions that end when nobody renews them, and not before."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import pytest

from oncemq.broker.state import snapshot
from oncemq.broker.state.leases import ABOUT_BYTES_MAX
from oncemq.broker.state.shard import Shard
from oncemq.protocol.client_requests import ForgetClient
from oncemq.protocol.names import Micros
from oncemq.protocol.records import ClientLeased, PatternUnsubscribed, SubscriptionEnded
from oncemq.protocol.replies import Done, RefusedReply
from oncemq.protocol.requests import Lease, ListSubscriptions, Subscribe

HOUR = 3_600
DAY_MS = 86_400_000


def lease(desk, lease_ms: int = DAY_MS, client: str = "query", about: str = "mine"):
    return desk.ask(Lease(client, desk.epoch(client), lease_ms, about))


def hours_pass(desk, hours: float) -> list[type]:
    """What upkeep writes when so much time is over."""
    desk.now += int(hours * HOUR * 1_000_000)
    step = desk.note(desk.broker.forget_guests(Micros(desk.now)))
    return [type(write.record) for write in step.writes]


@pytest.fixture
def held(desk):
    """A topic that a query holds under a lease of a day."""
    desk.subscribe("orders", "query")
    desk.put("orders", b"a")
    lease(desk)
    return desk


def test_a_lease_is_described_up_to_a_length(held) -> None:
    assert lease(held, about="é" * (ABOUT_BYTES_MAX // 2)) == Done(changed=True)
    refused = lease(held, about="é" * (ABOUT_BYTES_MAX // 2) + "a")
    assert isinstance(refused, RefusedReply)


def test_a_lease_goes_with_its_client_and_with_no_other(held) -> None:
    held.hello("other")
    held.hello("query", last=held.epoch("query"))
    assert list(held.shard.leases.grants) == ["query"]
    held.ask(ForgetClient("other"))
    assert list(held.shard.leases.grants) == ["query"]
    held.ask(ForgetClient("query", ending=True))
    assert held.shard.leases.grants == {}


def test_a_subscription_ends_when_its_lease_is_over(held) -> None:
    assert hours_pass(held, 24) == []
    assert held.shard.by_name["orders"].low == 0
    assert hours_pass(held, 6) == [SubscriptionEnded, ClientLeased]
    assert held.shard.by_name["orders"].low == 1
    assert held.shard.leases.grants == {}
    assert hours_pass(held, 100) == []


def test_a_lease_that_is_renewed_does_not_end_and_is_written_now_and_then(held) -> None:
    written = 0
    for _ in range(24 * 60 * 3):  # a renewal a minute, for three days
        assert hours_pass(held, 1 / 60) == []
        written += lease(held) == Done(changed=True)
    assert written == 12  # each quarter of a day
    assert "query" in held.shard.by_name["orders"].subscriptions


def test_a_lease_lasts_its_time_from_the_last_renewal_whatever_was_written(held) -> None:
    hours_pass(held, 5.9)
    assert lease(held) == Done(changed=False)  # not written, and yet
    assert hours_pass(held, 23.9) == []
    assert hours_pass(held, 0.3) == [SubscriptionEnded, ClientLeased]


def test_a_lease_may_be_given_up_and_none_costs_nothing(held) -> None:
    assert lease(held, 0) == Done(changed=True)
    assert lease(held, 0) == Done(changed=False)
    assert hours_pass(held, 10_000) == []
    assert "query" in held.shard.by_name["orders"].subscriptions


def test_patterns_end_before_what_they_made(desk) -> None:
    desk.create("orders.eu")
    desk.subscribe("orders.*", "query")
    lease(desk)
    assert hours_pass(desk, 31) == [PatternUnsubscribed, SubscriptionEnded, ClientLeased]


def test_who_holds_and_until_when_is_told(held) -> None:
    (info,) = held.ask(ListSubscriptions()).subscriptions
    assert info.about == "mine"
    assert info.ends == pytest.approx(held.now + 30 * HOUR * 1_000_000, abs=10)
    lease(held, 0)
    (info,) = held.ask(ListSubscriptions()).subscriptions
    assert (info.ends, info.about) == (0, "")


def test_a_lease_survives_a_crash_and_a_checkpoint(held) -> None:
    held.sync()
    after = held.crash()
    assert after.shard.leases.grants == held.shard.leases.grants
    restored = Shard(7)
    for blob in snapshot.capture(after.shard):
        snapshot.restore(restored, blob)
    assert restored.leases.grants == after.shard.leases.grants
    assert hours_pass(after, 31) == [SubscriptionEnded, ClientLeased]


def test_after_a_start_there_is_an_hour_to_renew(held) -> None:
    """The server was away for longer than the lease: its clients could not renew."""
    held.sync()
    held.now += 100 * HOUR * 1_000_000
    after = held.crash()
    after.broker.recovered(Micros(after.now))
    assert hours_pass(after, 0.9) == []
    assert lease(after) == Done(changed=True)
    assert hours_pass(after, 20) == []
    assert "query" in after.shard.by_name["orders"].subscriptions


def test_leases_that_cannot_be_are_refused(desk) -> None:
    for answer in (
        lease(desk, client="_anonymous-1"),
        lease(desk, 59_999),
        lease(desk, -1),
        lease(desk, 1 << 62),
        lease(desk, about="x" * 201),
    ):
        assert isinstance(answer, RefusedReply)
        assert answer.code == "malformed"
    desk.epoch("query")
    desk.hello("query", last=desk.epochs["query"])
    fenced = desk.ask(Lease("query", desk.epochs["query"] - 1, DAY_MS))
    assert fenced.code == "fenced"


def test_a_late_copy_of_a_renewal_does_not_lease_again_what_was_given_up(held) -> None:
    """It would end subscriptions that nobody renews any more."""
    epoch = held.epoch("query")
    renewal = Lease("query", epoch, DAY_MS, "mine", 1)
    held.ask(renewal)
    assert held.ask(Lease("query", epoch, 0, "mine", 2)) == Done(changed=True)
    assert held.ask(renewal) == Done(changed=False)
    assert hours_pass(held, 10_000) == []
    assert "query" in held.shard.by_name["orders"].subscriptions


def test_a_late_copy_of_a_lease_that_is_over_leases_nothing_made_since(held) -> None:
    renewal = Lease("query", held.epoch("query"), DAY_MS, "mine", 1)
    held.ask(renewal)
    hours_pass(held, 31)
    held.subscribe("orders", "query")
    assert held.ask(renewal) == Done(changed=False)
    assert hours_pass(held, 10_000) == []
    assert "query" in held.shard.by_name["orders"].subscriptions


def test_leases_and_changes_of_subscriptions_do_not_outdate_each_other(held) -> None:
    """They may be under way at the same time, from two threads, and come in either order."""
    epoch = held.epoch("query")
    assert held.ask(Lease("query", epoch, 2 * DAY_MS, "mine", 3)) == Done(changed=True)
    assert held.ask(Subscribe("query", epoch, "bills", number=2)).made
    assert held.ask(Subscribe("query", epoch, "notes", number=5)).made
    assert held.ask(Lease("query", epoch, DAY_MS, "mine", 4)) == Done(changed=True)
    assert held.ask(Lease("query", epoch, 2 * DAY_MS, "mine", 3)) == Done(changed=False)
    assert held.ask(Subscribe("query", epoch, "late", number=2)).code == "outdated"


def test_the_next_start_of_a_client_numbers_its_leases_anew(held) -> None:
    held.ask(Lease("query", held.epoch("query"), DAY_MS, "mine", 7))
    held.hello("query", last=held.epochs["query"])
    assert held.ask(Lease("query", held.epochs["query"], 0, "mine", 1)) == Done(changed=True)
