"""Numbers on deleted topics are forgotten, and none is ever used twice for it."""

import shutil

import pytest

from oncemq.client.state import outbox
from oncemq.client.state.outbox import Slot
from oncemq.client.verbs import messages
from oncemq.errors import HistoryLost
from oncemq.session.publisher import TopicPuts

KEPT = 10


@pytest.fixture
def shop(world):
    """A publisher with state that asks once it has more than a few lanes."""
    return few_lanes(world, world.client("shop"))


def few_lanes(world, node):
    node.engine.settings.lanes_kept = KEPT
    node.engine.outflow._forgetting.most = KEPT
    node.turn()
    return node


@pytest.fixture
def reader(world):
    return world.client()


def lanes(node) -> dict[str, TopicPuts]:
    return node.engine.outflow._publisher.by_topic


def subscribe(node, topic: str) -> None:
    node.run(messages.subscribe(node.engine, topic, "new"))


def delete(node, topic: str) -> None:
    node.run(messages.delete_topic(node.engine, topic))


def live_and_die(shop, reader, topic: str, *payloads: bytes, lasting: bool = True) -> None:
    """A topic that is made, put to and deleted."""
    subscribe(reader, topic)
    for payload in payloads or (b"x",):
        ticket = shop.put(topic, payload, lasting=lasting)
        shop.turn()
        assert ticket.result()[0].stored
    delete(reader, topic)


def push_out(shop, reader) -> None:
    """So many topics that those which are gone are forgotten."""
    for number in range(2 * KEPT):
        live_and_die(shop, reader, f"filler{number}")


def test_the_lanes_of_deleted_topics_are_forgotten_and_those_of_others_kept(shop, reader) -> None:
    for name in ("kept", "also kept"):
        subscribe(reader, name)
        shop.put(name, b"1")
    shop.turn()
    producer = shop.state.slots[0].producer
    for number in range(300):
        live_and_die(shop, reader, f"order{number}")
    assert len(lanes(shop)) <= KEPT + 2
    for name in ("kept", "also kept"):
        sure = lanes(shop)[name].numbers[producer]
        assert (sure.next, sure.sure) == (2, True)


def test_lanes_of_topics_that_are_there_are_asked_about_seldom(shop, reader) -> None:
    asked = []
    compare = shop.engine.outflow._forgetting._ask
    shop.engine.outflow._forgetting._ask = lambda known: (asked.append(known), compare(known))[1]
    for number in range(100):
        subscribe(reader, f"order{number}")
        shop.put(f"order{number}", b"x")
        shop.turn()
    assert len(lanes(shop)) == 100
    assert len([known for known in asked if known]) == 4  # at 11, 23, 47 and 95 lanes


def test_an_outbox_written_anew_has_no_lanes_of_deleted_topics(
    world, shop, reader, monkeypatch
) -> None:
    monkeypatch.setattr(outbox, "ROTATE_BYTES", 2_000)
    shop.state.slots[0]._rotate_bytes = 2_000
    for number in range(300):
        live_and_die(shop, reader, f"order{number}")
    rotated: list[int] = []
    rotate = Slot.rotate

    def counted(self, lanes, pending) -> None:
        rotated.append(len(lanes))
        rotate(self, lanes, pending)

    monkeypatch.setattr(Slot, "rotate", counted)
    for number in range(300, 330):
        live_and_die(shop, reader, f"order{number}")
    assert rotated
    assert max(rotated) <= KEPT + 2
    assert len(world.crashed("shop").state.slots[0].lanes) == 0  # the publisher has them
    assert len(lanes(world.nodes[-1])) < 3 * KEPT


@pytest.mark.parametrize("lasting", [True, False])
def test_a_forgotten_topic_that_is_made_anew_gets_every_put_once(
    world, shop, reader, lasting: bool
) -> None:
    live_and_die(shop, reader, "orders", b"1", b"2", b"3", lasting=lasting)
    push_out(shop, reader)
    assert "orders" not in lanes(shop)
    subscribe(reader, "orders")
    tickets = [shop.put("orders", payload, lasting=lasting) for payload in (b"4", b"5")]
    shop.turn(20)
    assert [ticket.result()[0].id for ticket in tickets] == ["orders@0", "orders@1"]
    assert world.server.stored("orders") == [b"4", b"5"]


@pytest.mark.parametrize("turns", range(12))
def test_a_kill_at_any_moment_after_forgetting_neither_loses_nor_doubles(
    world, shop, reader, turns: int
) -> None:
    live_and_die(shop, reader, "orders", b"1", b"2", b"3")
    push_out(shop, reader)
    subscribe(reader, "orders")
    shop.put("orders", b"4")
    for _ in range(turns):
        shop.pump()
        if turns % 2:
            world.server.commit()
    shop.wire.up = False
    again = world.crashed("shop")
    again.put("orders", b"5")
    again.turn(30)
    assert again.engine.outflow.idle
    assert world.server.stored("orders") == [b"4", b"5"]


def test_what_is_on_its_way_when_the_answer_comes_keeps_its_numbers(world, shop, reader) -> None:
    live_and_die(shop, reader, "orders", b"1", b"2")
    for number in range(KEPT):
        subscribe(reader, f"there{number}")
        shop.put(f"there{number}", b"x")
    shop.pump()  # the question leaves with them
    world.server.commit()
    subscribe(reader, "orders")  # made anew before the answer is looked at
    ticket = shop.put("orders", b"3")
    shop.turn(20)
    assert ticket.result()[0].id == "orders@0"
    assert world.server.stored("orders") == [b"3"]


def test_numbers_on_a_topic_that_the_server_lost_are_not_forgotten(world, shop, reader) -> None:
    """A server that went back in time has no such topic, and never deleted it."""
    backup = world.directory / "backup"
    shutil.copytree(world.server.directory, backup)
    subscribe(reader, "orders")
    shop.put("orders", b"1")
    shop.turn()
    world.server.log.close()
    shutil.rmtree(world.server.directory)
    shutil.copytree(backup, world.server.directory)
    world.server.start()
    world.server.driver.broker.shard.identities._tag += 1  # as with each new generation
    for number in range(2 * KEPT):
        shop.put(f"other{number}", b"x")
    shop.turn(30)
    assert "orders" in lanes(shop)
    shop.put("orders", b"2")
    shop.turn(10)
    assert isinstance(shop.engine.failure, HistoryLost)


def test_numbers_with_receipts_that_a_deleted_topic_did_not_have_are_not_forgotten(
    world, shop, reader
) -> None:
    """The server went back in time, and the topic was deleted after that."""
    subscribe(reader, "orders")
    shop.put("orders", b"1")
    shop.turn()
    backup = world.directory / "backup"
    shutil.copytree(world.server.directory, backup)
    shop.put("orders", b"2")
    shop.turn()
    world.server.log.close()
    shutil.rmtree(world.server.directory)
    shutil.copytree(backup, world.server.directory)
    world.server.start()
    delete(world.client(), "orders")
    for number in range(2 * KEPT):
        shop.put(f"other{number}", b"x")
    shop.turn(30)
    assert "orders" in lanes(shop)
    shop.put("orders", b"3")
    shop.turn(10)
    assert isinstance(shop.engine.failure, HistoryLost)


def test_a_topic_that_is_back_with_old_numbers_takes_no_put_for_one_of_them(
    world, shop, reader
) -> None:
    """The server went back to before the deletion, and the client was killed before it asked."""
    subscribe(reader, "orders")
    for payload in (b"1", b"2", b"3", *(b"%d" % number for number in range(4, 14))):
        shop.put("orders", payload)
        shop.turn()
    backup = world.directory / "backup"
    shutil.copytree(world.server.directory, backup)
    delete(reader, "orders")
    push_out(shop, reader)
    assert "orders" not in lanes(shop)
    shop.put("orders", b"new")  # recorded, and not sent
    world.server.log.close()
    shutil.rmtree(world.server.directory)
    shutil.copytree(backup, world.server.directory)
    world.server.start()
    again = world.crashed("shop")
    again.turn(40)
    assert again.engine.outflow.idle
    assert world.server.stored("orders")[-1] == b"new"


def test_a_server_that_cannot_say_makes_nobody_forget(shop, reader, monkeypatch) -> None:
    monkeypatch.setattr("oncemq.broker.comparison._was_deleted", lambda shard, known: False)
    push_out(shop, reader)
    assert len(lanes(shop)) == 2 * KEPT


@pytest.mark.parametrize("rewritten", [True, False])
def test_an_unsent_put_survives_two_kills_though_a_deleted_topic_had_its_number(
    world, shop, reader, rewritten: bool
) -> None:
    """The server remembers numbers of the deleted topic: they are another producer's now."""
    live_and_die(shop, reader, "orders", b"1", b"2", b"3")
    push_out(shop, reader)
    assert "orders" not in lanes(shop)
    if rewritten:
        slot = shop.state.slots[0]
        slot.rotate(*shop.engine.outflow.producers.kept_in(slot))
    shop.put("orders", b"4")
    shop.engine.outflow.seal_all()  # recorded, and not sent
    shop.wire.up = False
    again = world.crashed("shop")  # killed before it asks
    again.wire.up = False
    third = world.crashed("shop")
    subscribe(reader, "orders")
    third.turn(30)
    assert third.engine.outflow.idle
    assert world.server.stored("orders") == [b"4"]


def test_topics_that_are_there_keep_their_producer_and_what_the_server_lost_is_told(
    world, shop, reader
) -> None:
    subscribe(reader, "kept")
    shop.put("kept", b"1")
    shop.turn()
    first = shop.state.slots[0].producer
    push_out(shop, reader)
    producers = shop.engine.outflow.producers
    assert shop.state.slots[0].producer != first
    assert producers.for_topic("kept", lasting=True) == first
    assert producers.for_topic("new", lasting=True) == shop.state.slots[0].producer
    assert len(producers._slots) <= KEPT + 2  # those without numbers are not kept
    again = world.crashed("shop")
    again.put("kept", b"2")
    again.turn(20)
    assert world.server.stored("kept") == [b"1", b"2"]
    assert again.engine.outflow.producers.for_topic("kept", lasting=True) == first
