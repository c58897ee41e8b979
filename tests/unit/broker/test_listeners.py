"""Listening at the server: joined with an answer, nudged while it lags, gone when it says so."""

import pytest

from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset
from oncemq.protocol.replies import Done, ListenedAnswer, ListeningAnswer, RefusedReply, Reply
from oncemq.protocol.requests import (
    DeleteTopic,
    Hello,
    Lease,
    Leave,
    Listen,
    Settled,
    Subscribe,
    Unsubscribe,
)
from oncemq.protocol.step import Deliver, Owed


class Room:
    """A desk, and one client that listens there."""

    def __init__(self, desk) -> None:
        self.desk = desk
        self.known = 0

    def listen(
        self, *topics: str, wait: float = 0, settled: tuple[Settled, ...] = (), number: int = 0
    ) -> list[Owed]:
        client = ClientId("billing")
        listen = Listen(
            client, self.desk.epoch(client), topics, settled, self.known, int(wait * 1000), number
        )
        replies = self.desk.step(listen).replies
        self.heard(replies)
        return replies

    def heard(self, replies: list[Owed]) -> None:
        for owed in replies:
            if isinstance(owed.answer, ListeningAnswer):
                self.known = owed.answer.known

    def leave(self, number: int = 0) -> Reply | Deliver:
        return self.desk.ask(Leave(ClientId("billing"), self.desk.epoch("billing"), number))


@pytest.fixture
def room(desk) -> Room:
    return Room(desk)


def ends(replies: list[Owed]) -> dict[str, tuple[int, int]]:
    (owed,) = replies
    assert isinstance(owed.answer, ListeningAnswer), owed.answer
    return {heard.topic: (heard.cursor, heard.end) for heard in owed.answer.topics}


def test_who_has_no_subscription_is_told_so_and_does_not_wait(desk) -> None:
    """A guest needs no hello: else one connection could have as many listeners as it makes up."""
    desk.subscription("orders")
    for client, topics in (("_anonymous-1", ()), ("billing", ("orders", "refunds"))):
        known = desk.broker.shard.change_of(client)
        epoch = Epoch(0) if topics == () else desk.epoch(client)
        listen = Listen(ClientId(client), epoch, topics, (), known, 60_000)
        answer = desk.ask(listen)
        assert isinstance(answer, RefusedReply)
        assert answer.code == "not_subscribed"
    assert len(desk.broker.listeners) == 0


def test_joining_is_answered_with_the_subscriptions_and_where_they_stand(room: Room) -> None:
    desk = room.desk
    identity = desk.subscription("orders")
    desk.put("orders", b"one")
    desk.sync()
    desk.put("orders", b"not durable yet")
    (owed,) = room.listen("orders")
    topic = desk.shard.by_name["orders"]
    known = desk.shard.change_of(ClientId("billing"))
    assert owed.answer == ListeningAnswer(
        "", (ListenedAnswer("orders", topic.id, identity, Offset(0), Offset(1)),), known
    )


def test_it_is_told_where_the_feed_is(room: Room) -> None:
    room.desk.broker.listeners.feed = "tcp://127.0.0.1:5557"
    room.desk.subscribe("orders")
    (owed,) = room.listen("orders")
    assert isinstance(owed.answer, ListeningAnswer)
    assert owed.answer.feed == "tcp://127.0.0.1:5557"


@pytest.mark.parametrize("topics", [(), ("orders",), ("orders", "refunds")])
def test_without_a_subscription_it_is_refused(room: Room, topics: tuple[str, ...]) -> None:
    if len(topics) > 1:
        room.desk.subscribe("orders")
    (owed,) = room.listen(*topics)
    assert isinstance(owed.answer, RefusedReply)
    assert owed.answer.code == "not_subscribed"


def test_of_no_topics_in_particular_it_hears_all_of_its_own(room: Room) -> None:
    room.desk.subscribe("orders")
    room.desk.subscribe("refunds")
    room.desk.subscribe("secrets", "audit")
    assert ends(room.listen()) == {"orders": (0, 0), "refunds": (0, 0)}


def test_it_waits_until_its_time_is_over(room: Room) -> None:
    room.desk.subscribe("orders")
    room.listen("orders")
    assert room.listen("orders", wait=20) == []
    assert room.desk.pass_time(19.9) == []
    (owed,) = room.desk.pass_time(0.2)
    assert owed.answer == Done(changed=False)
    assert len(room.desk.broker.listeners) == 0


def test_one_that_lags_is_nudged_within_the_retry_time(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    room.listen("orders")
    room.listen("orders", wait=60)
    desk.pass_time(1)
    desk.put("orders", b"lost on the feed")
    desk.sync()
    nudges = [owed for _ in range(7) for owed in desk.pass_time(0.5)]
    assert ends(nudges) == {"orders": (0, 1)}


def test_a_nudge_is_repeated_forever(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    room.listen("orders")
    desk.put("orders", b"never settled")
    desk.sync()
    for _ in range(5):
        room.listen("orders", wait=60)
        assert ends([owed for _ in range(7) for owed in desk.pass_time(0.5)])


def test_one_that_settles_is_not_nudged(room: Room) -> None:
    desk = room.desk
    identity = desk.subscription("orders")
    room.listen("orders")
    room.listen("orders", wait=60)
    for number in range(1, 6):
        desk.put("orders", b"came")
        desk.sync()
        settled = (desk.settled("orders", identity, number),)
        assert desk.pass_time(1.4) == []
        assert room.listen("orders", wait=60, settled=settled) == []
    assert desk.cursor("orders") == 5


def test_the_retry_time_is_a_rule(make_desk) -> None:
    room = Room(make_desk(ServerLimits(retry_ms=100)))
    room.desk.subscribe("orders")
    room.listen("orders")
    room.listen("orders", wait=60)
    room.desk.put("orders", b"x")
    room.desk.sync()
    room.desk.pass_time(0.06)
    assert ends(room.desk.pass_time(0.06)) == {"orders": (0, 1)}


def test_an_acknowledgement_waits_for_no_sync(room: Room) -> None:
    desk = room.desk
    identity = desk.subscription("orders")
    desk.put("orders", b"x")
    desk.sync()
    room.listen("orders")
    assert room.listen("orders", wait=9, settled=(desk.settled("orders", identity, 1),)) == []
    assert desk.cursor("orders") == 1


def test_a_subscription_that_is_made_or_ends_is_told_once_it_is_durable(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    room.listen()
    room.listen(wait=60)
    subscribe = Subscribe(ClientId("billing"), desk.epoch("billing"), "refunds")
    _, told = desk.step(subscribe).replies
    assert ends([told]) == {"orders": (0, 0), "refunds": (0, 0)}
    assert told.after == desk.shard.serial
    room.heard([told])
    assert room.listen(wait=60) == []
    unsubscribe = Unsubscribe(ClientId("billing"), desk.epoch("billing"), "refunds")
    _, told = desk.step(unsubscribe).replies
    assert ends([told]) == {"orders": (0, 0)}


def test_a_listener_is_told_when_the_lease_of_its_subscriptions_is_over(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    lease = Lease(ClientId("billing"), desk.epoch("billing"), 86_400_000, "mine")
    assert desk.ask(lease) == Done(changed=True)
    room.listen("orders")
    room.listen("orders", wait=60)
    desk.now += 7 * 86_400_000_000
    (told,) = desk.note(desk.broker.forget_guests(Micros(desk.now))).replies
    assert isinstance(told.answer, RefusedReply)
    assert told.answer.code == "not_subscribed"
    assert told.after == desk.shard.serial


def test_a_topic_that_is_left_or_deleted_refuses_its_listener(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    room.listen("orders")
    room.listen("orders", wait=60)
    refused = [owed.answer for owed in desk.step(DeleteTopic("orders")).replies]
    assert Done(changed=True) in refused
    assert [each.code for each in refused if isinstance(each, RefusedReply)] == ["not_subscribed"]


def test_a_pattern_that_ended_before_it_made_anything_refuses_its_listener(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders.*")
    assert ends(room.listen("orders.*")) == {}
    assert room.listen("orders.*", wait=60) == []
    unsubscribe = Unsubscribe(ClientId("billing"), desk.epoch("billing"), "orders.*")
    refused = [owed.answer for owed in desk.step(unsubscribe).replies]
    assert [each.code for each in refused if isinstance(each, RefusedReply)] == ["not_subscribed"]
    assert len(desk.broker.listeners) == 0


def test_a_goodbye_is_answered_and_ends_it(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    room.listen("orders")
    room.listen("orders", wait=60, number=3)
    assert room.leave(2) == Done(changed=False)  # late: of an earlier one
    assert ClientId("billing") in desk.broker.listeners
    assert room.leave(3) == Done(changed=True)
    assert room.leave(3) == Done(changed=False)
    desk.put("orders", b"x")
    desk.sync()
    assert [owed for _ in range(20) for owed in desk.pass_time(1)] == []
    assert desk.broker.next_deadline() is None


def test_a_newer_client_fences_the_listener(room: Room) -> None:
    desk = room.desk
    desk.subscribe("orders")
    room.listen("orders")
    old = Epoch(desk.epochs["billing"])
    room.listen("orders", wait=60)
    hello = Hello(ClientId("billing"), old, 77)
    fenced = [owed.answer for owed in desk.step(hello).replies]
    assert [each.code for each in fenced if isinstance(each, RefusedReply)] == ["fenced"]
    late = desk.ask(Listen(ClientId("billing"), old, ("orders",)))
    assert isinstance(late, RefusedReply)
    assert late.code == "fenced"


def test_after_a_restart_what_it_knew_is_asked_anew(room: Room) -> None:
    room.desk.subscribe("orders")
    room.desk.subscribe("refunds")
    room.listen("orders")
    room.desk.put("orders", b"x")
    room.desk.sync()
    room.desk = room.desk.crash()
    assert ends(room.listen("orders", wait=60)) == {"orders": (0, 1)}
    assert room.listen("orders", wait=60) == []
