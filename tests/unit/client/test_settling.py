"""Many cursors: told in parts, before messages are taken; those that ended are forgotten."""

import pytest

from oncemq.client.verbs import messages
from oncemq.errors import HistoryLost
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.requests import Get, Settle
from oncemq.wire import codec
from tests.harness.client import Node, World

FEW = 5  # cursors in one request: so many topics are quick


@pytest.fixture
def world(tmp_path, monkeypatch):
    for module in ("session.told_cursors", "client.engine.settling"):
        monkeypatch.setattr(f"oncemq.{module}.TOLD_MAX", FEW)
    world = World(tmp_path, ServerLimits(request_entries_max=FEW))
    yield world
    world.close()


@pytest.fixture
def shop(world):
    return world.client()


def put(shop: Node, *topics: str) -> None:
    for topic in topics:
        ticket = shop.put(topic, b"x", lasting=False)
        while not ticket.done:
            shop.turn(1)


def delete(shop: Node, topic: str) -> None:
    shop.run(messages.delete_topic(shop.engine, topic))


def sent_by(node: Node) -> list:
    """What a client sends from here on."""
    requests, send = [], node.wire.send

    def watched(frames) -> bool:
        requests.append(codec.decode_request([bytes(each) for each in frames])[1])
        return send(frames)

    node.wire.send = watched
    return requests


def cursors(world: World, node: Node) -> dict[str, int]:
    """By the server's account."""
    topics = world.server.driver.broker.shard.topics.values()
    return {each.name: each.subscriptions[node.engine.client].cursor for each in topics}


NAMES = [f"s.{number:02}" for number in range(4 * FEW)]


@pytest.fixture
def reader(world, shop):
    """A client that has taken a message of each of many topics, and closed."""
    reader = world.client("reader")
    reader.run(messages.subscribe(reader.engine, "s.*", "new"))
    put(shop, *NAMES)
    taken = []
    while some := reader.get("s.*"):
        taken += some
    assert len(taken) == len(NAMES)
    return reader


def test_a_client_with_more_cursors_than_a_request_may_name_goes_on_after_its_start(
    world, shop, reader
) -> None:
    reader.run(messages.leave(reader.engine))
    assert set(cursors(world, reader).values()) == {1}  # all of it was told, in parts
    reader.close()
    put(shop, *NAMES)
    again = world.client("reader")
    requests = sent_by(again)
    assert sorted(again.get("s.*")) == [f"{name}@1=x" for name in NAMES]
    assert again.get("s.*") == []
    told = [each for each in requests if isinstance(each, Settle | Get)]
    first_get = next(n for n, each in enumerate(told) if isinstance(each, Get))
    named = {settled.topic for each in told[:first_get] for settled in each.settled}
    assert named == set(NAMES)  # before any message is asked for
    assert max(len(each.settled) for each in told) == FEW


def test_a_listener_with_more_cursors_than_a_request_may_name_goes_on(world, shop, reader) -> None:
    reader.close()
    again = world.client("reader")
    put(shop, *NAMES)
    taken = []
    while len(taken) < len(NAMES):
        some = again.run(again.engine.listening.take(("s.*",), 100, 1000))
        messages.settle(again.engine, some)
        taken += [str(each.id) for each in some]
    assert sorted(taken) == [f"{name}@1" for name in NAMES]
    again.turn()
    again.turn()
    assert set(cursors(world, again).values()) == {2}


def test_topics_that_come_and_go_leave_nothing_behind(world, shop) -> None:
    reader = world.client("reader")
    reader.run(messages.subscribe(reader.engine, "s.*", "new"))
    most = 0
    for name in NAMES:
        put(shop, name)
        assert reader.get("s.*", wait_ms=1000) == [f"{name}@0=x"]
        delete(shop, name)
        most = max(most, len(reader.engine.subscriber.cursors))
    reader.turn()
    assert most <= FEW + 2
    journal = reader.state.journal
    assert journal is not None
    assert len(journal.cursors()) == len(reader.engine.subscriber.cursors) <= FEW + 1


def test_a_guest_forgets_topics_that_come_and_go_as_well(world, shop) -> None:
    guest = world.client()
    guest.run(messages.subscribe(guest.engine, "s.*", "new"))
    for name in NAMES:
        put(shop, name)
        assert guest.get("s.*", wait_ms=1000) == [f"{name}@0=x"]
        delete(shop, name)
        assert len(guest.engine.subscriber.cursors) <= FEW + 2


def test_what_ended_while_the_client_was_away_is_forgotten_at_its_start(
    world, shop, reader
) -> None:
    reader.close()
    for name in NAMES[1:]:
        delete(shop, name)
    put(shop, NAMES[0])
    again = world.client("reader")
    assert again.get("s.*") == [f"{NAMES[0]}@1=x"]
    assert again.engine.subscriber.cursors.topics == [NAMES[0]]
    journal = again.state.journal
    assert journal is not None
    assert list(journal.cursors()) == [NAMES[0]]


def test_of_many_cursors_one_beyond_the_end_is_told_before_any_message_is_taken(
    world, shop, reader
) -> None:
    """A server that was set back while the connection was gone."""
    reader.wire.cut()
    reader.turn()
    last = world.server.driver.broker.shard.by_name[NAMES[-1]]
    last.end = last.visible = 0
    put(shop, NAMES[0])
    reader.wire.mend()
    with pytest.raises(HistoryLost, match=r"beyond the end.*client accept"):
        reader.get(NAMES[0])


def test_a_server_without_room_is_told_later_and_gives_messages_meanwhile(
    world, shop, reader, monkeypatch
) -> None:
    reader.close()
    put(shop, *NAMES)
    again = world.client("reader")
    with monkeypatch.context() as full:
        let_in = again.engine  # a hello needs room, too
        full.setattr(world.server.log, "has_room", lambda *_, **__: let_in.client_epoch is None)
        assert len(again.get("s.*")) == len(NAMES)
        assert set(cursors(world, again).values()) == {1}
    world.server.now += 2_000_000
    assert again.get("s.*") == []
    assert set(cursors(world, again).values()) == {2}
