"""A hole that the server names: clients go on behind it, and say so once."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import logging
from typing import Any

import pytest

from oncemq.client.verbs import messages as verbs
from oncemq.protocol.names import Micros, Offset
from oncemq.protocol.records import MessagesLost, Retention


@pytest.fixture
def reader(world: Any) -> Any:
    """A subscriber of `orders`, which lost @3 up to @6 of ten messages."""
    node = world.client("reader")
    node.run(verbs.create_topic(node.engine, "orders", Retention(forever=True)))
    node.run(verbs.subscribe(node.engine, "orders", "earliest"))
    for number in range(10):
        node.put("orders", b"%d" % number)
    node.turn()
    lose(world.server, 3, 6)
    return node


def lose(server: Any, first: int, end: int) -> None:
    topic = server.driver.broker.shard.by_name["orders"]
    lost = [MessagesLost(topic.id, Offset(first), Offset(end))]
    server.driver.lose(lost, Micros(server.now))
    server.commit()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and "lost" in each.getMessage()
    ]


def test_a_get_goes_on_behind_the_hole_and_says_so_once(
    reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    got = [*reader.get("orders"), *reader.get("orders"), *reader.get("orders")]
    assert got == [f"orders@{number}={number}" for number in (0, 1, 2, 6, 7, 8, 9)]
    (warning,) = warnings(caplog)
    assert "topic=orders first=3 last=5" in warning
    assert "going on at orders@6" in warning


def test_who_stands_behind_the_hole_hears_nothing(
    reader: Any, world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    newer = world.client("newer")
    newer.run(verbs.subscribe(newer.engine, "orders", 6))
    assert newer.get("orders") == [f"orders@{number}={number}" for number in range(6, 10)]
    assert warnings(caplog) == []


def test_a_restart_inside_the_hole_goes_on_behind_it(reader: Any, world: Any) -> None:
    assert len(reader.get("orders", limit=3)) == 3
    again = world.crashed("reader")
    assert again.get("orders")[0] == "orders@6=6"
    assert world.crashed("reader").engine.losses.over("orders", Offset(4)) == 4  # met by gets only
    assert again.engine.losses.over("orders", Offset(4)) == 6


def test_a_read_inside_the_hole_goes_on_behind_it(
    reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    messages = reader.run(verbs.read(reader.engine, "orders", 4, 2))
    assert [message.offset for message in messages] == [6, 7]
    assert len(warnings(caplog)) == 1


def test_a_hole_up_to_the_end_is_left_by_the_next_message(reader: Any, world: Any) -> None:
    lose(world.server, 8, 10)
    got = [*reader.get("orders"), *reader.get("orders"), *reader.get("orders")]
    assert got[-1] == "orders@7=7"
    assert reader.get("orders") == []
    assert reader.run(verbs.read(reader.engine, "orders", 8, 2)) == []
    reader.put("orders", b"10")
    assert reader.get("orders", wait_ms=1000) == ["orders@10=10"]
