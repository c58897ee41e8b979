"""A leader whose members do not answer: who asks there is told why, and asks again."""

import pytest

from oncemq.coordination.coordinator import StoreAway
from oncemq.protocol.names import Epoch, Micros
from oncemq.protocol.replies import RefusedReply, Reply, StatusReport, Subscribed
from oncemq.protocol.requests import Get, ListTopics, Request, Start, StatusRequest, Subscribe
from oncemq.wire import codec
from tests.harness.server import GUEST
from tests.harness.trio import CLIENT, TURN, Trio

SECOND = 1_000_000


@pytest.fixture
def trio() -> Trio:
    trio = Trio()
    trio.subscribe("kept")
    trio.until(trio.are_in_sync)
    return trio


def send(trio: Trio, request: Request) -> int:
    token = next(trio._tokens)
    frames = codec.encode_request(token, request)
    trio.running[trio.until_led()].inbox.append((CLIENT, frames))
    return token


def answered(trio: Trio, token: int, seconds: float) -> Reply | None:
    """What was answered within so much time."""
    for _ in range(round(seconds * SECOND / TURN)):
        trio.turn()
        if token in trio._answers:
            return trio._answers[token][0]
    return None


@pytest.mark.parametrize(
    "request_", [ListTopics(), Get(GUEST, Epoch(0), "kept", (), 0, 10, 1 << 20, 60_000)],
    ids=["a list", "a wait"],
)  # fmt: skip
def test_who_waits_for_a_leader_that_waits_is_told_why(trio: Trio, request_: Request) -> None:
    others = sorted(trio.running.keys() - {trio.until_led()})
    for name in others:
        trio.kill(name)
    token = send(trio, request_)
    reply = answered(trio, token, 4.5)
    assert isinstance(reply, RefusedReply)
    assert (reply.code, reply.leader) == ("not_leader", "")
    assert f"waits for {', '.join(others)}: start what is down" in reply.detail


def test_who_hears_nobody_gives_the_shard_to_who_is_there(trio: Trio) -> None:
    leader = trio.until_led()
    trio.cut = lambda _source, to: to == leader
    reply = answered(trio, send(trio, ListTopics()), 4.5)
    assert isinstance(reply, RefusedReply)
    assert reply.leader.removeprefix("tcp://").removesuffix(":1") in trio.running.keys() - {leader}


def test_status_is_answered_at_once_whoever_else_does_not_answer(trio: Trio) -> None:
    trio.cut = lambda _source, _to: True
    token = send(trio, StatusRequest())
    assert isinstance(answered(trio, token, 0.05), StatusReport)


def test_who_was_told_to_ask_again_is_answered_once_all_is_well(trio: Trio) -> None:
    trio.cut = lambda _source, _to: True
    token = send(trio, ListTopics())
    assert isinstance(answered(trio, token, 4.5), RefusedReply)
    trio.cut = lambda _source, _to: False
    trio.put("kept")
    reply, _ = trio.ask(ListTopics())
    assert not isinstance(reply, RefusedReply)


def test_without_etcd_a_leader_that_drains_goes_on(trio: Trio) -> None:
    """Nobody can take over: a put was refused as if the disks were full."""
    leader = trio.until_led()
    server = trio.running[leader]
    server.replica._hear_agreement(
        server.replica._agreement.heard(StoreAway("no route"), Micros(trio.now)), Micros(trio.now)
    )
    server.coordinator.ask = lambda *_: None  # type: ignore[method-assign]
    server.replica._parts.drain()
    for _ in range(20):
        reply = answered(trio, send(trio, Subscribe(GUEST, Epoch(0), "more", Start())), 0.5)
        assert isinstance(reply, Subscribed)
        assert trio.facts(leader)["cluster_refuses"] == ""
    assert trio.until_led() == leader


def test_who_asks_while_the_shard_is_given_away_is_answered_by_the_next_leader(trio: Trio) -> None:
    leader = trio.until_led()
    trio.running[leader].replica._parts.drain()
    token = send(trio, Subscribe(GUEST, Epoch(0), "more", Start()))
    reply = answered(trio, token, 0.5)
    assert isinstance(reply, RefusedReply)
    assert reply.code == "not_leader"  # which is no answer to a client
    found, _ = trio.ask(Subscribe(GUEST, Epoch(0), "more", Start()))
    assert isinstance(found, Subscribed)
    assert trio.until_led() != leader
