"""Puts around the deletion of their topic, with kills: each is stored once, none is mistaken."""

import pytest

from oncemq.client.verbs import messages


@pytest.fixture
def shop(world):
    node = world.client("shop")
    node.turn()
    return node


@pytest.fixture
def reader(world):
    """Wants every topic of the name, however often it is made anew."""
    node = world.client()
    node.run(messages.subscribe(node.engine, "*", "new"))
    return node


def delete(reader) -> None:
    reader.run(messages.delete_topic(reader.engine, "orders"))


def killed_after(world, node, turns: int, pace: int):
    """It runs for so long, then it and the server are killed; another starts on its disk."""
    for turn in range(turns):
        node.pump()
        if turn % pace == pace - 1:
            world.server.commit()
    world.server.crash()
    node.wire.up = False
    return world.crashed("shop")


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("pace", [1, 3, 99])
@pytest.mark.parametrize("made_between", [False, True])
def test_a_put_after_a_deletion_is_not_taken_for_one_that_the_deleted_topic_had(
    world, shop, reader, turns: int, pace: int, made_between: bool
) -> None:
    for payload in (b"a", b"b", b"c"):
        shop.put("orders", payload)
        shop.turn(8)
    delete(reader)
    if made_between:  # by others, and without anything of ours
        other = world.client()
        other.put("orders", b"other", lasting=False)
        other.turn(8)
        shop.turn(8)
        delete(reader)
    shop.put("orders", b"d")
    shop = killed_after(world, shop, turns, pace)
    shop.turn(30)
    assert shop.engine.outflow.idle
    assert world.server.stored("orders") == [b"d"]
    shop.put("orders", b"e")
    shop.turn(8)
    assert world.server.stored("orders") == [b"d", b"e"]


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("pace", [1, 3, 99])
def test_a_put_that_was_numbered_for_a_topic_that_is_deleted_too_goes_to_the_next(
    world, shop, reader, turns: int, pace: int
) -> None:
    """It knew the second topic's name, and had put nothing there."""
    for payload in (b"a", b"b", b"c"):
        shop.put("orders", payload)
        shop.turn(8)
    delete(reader)
    other = world.client()
    other.put("orders", b"other", lasting=False)
    other.turn(8)
    shop.put("orders", b"x" * (17 << 20))  # refused: it asks where it stands, and stores nothing
    shop.turn(12)
    delete(reader)
    shop.put("orders", b"d")
    shop = killed_after(world, shop, turns, pace)
    shop.turn(30)
    assert shop.engine.outflow.idle
    assert world.server.stored("orders") == [b"d"]
