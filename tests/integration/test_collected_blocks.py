"""Blocks that the collector ends, in the middle of what a thread does with its client's engine."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncemq import Client


@pytest.fixture
def mq(server: str) -> Iterator[Client]:
    with Client(server, timeout=20) as mq:
        mq.subscribe("orders")
        mq.put_many("orders", [b"1", b"2"])
        gc.disable()
        yield mq
        gc.enable()


def listening(mq: Client) -> Any:
    found = mq.listen("orders")
    assert next(found).payload == b"1"
    return found


def consuming(mq: Client) -> Any:
    found = mq.consume("orders", limit=1)
    assert [each.payload for each in found.__enter__()] == [b"1"]
    return found


def getting(mq: Client) -> Any:
    found = mq.transaction()
    assert [each.payload for each in found.__enter__().get("orders", limit=1)] == [b"1"]
    return found


def reading(mq: Client) -> Any:
    found = mq.read_columns("orders", 0, 2)
    next(found)
    return found


BLOCKS: dict[str, Callable[[Client], Any]] = {
    "listen": listening, "consume": consuming, "transaction": getting, "read_columns": reading,
}  # fmt: skip


def leave_in_a_ring(mq: Client, begin: Callable[[Client], Any]) -> None:
    ring = [begin(mq)]
    ring.append(ring)


def standing(mq: Client) -> list[Any]:
    """What the end of a block changes in an engine."""
    engine: Any = mq._engine
    return [
        engine.listening._topics, list(engine.exchanges), list(engine.outgoing.wanted),
        engine.transactions.taking, dict(engine.subscriber.prefetched._feeds), engine.pumped_at,
    ]  # fmt: skip


@pytest.mark.parametrize("begin", BLOCKS.values(), ids=BLOCKS)
def test_a_block_that_is_collected_changes_nothing_under_way(
    mq: Client, begin: Callable[[Client], Any]
) -> None:
    leave_in_a_ring(mq, begin)
    with mq._turns.lock:  # as in the middle of a verb
        before = standing(mq)
        assert gc.collect() > 0
        assert standing(mq) == before
    assert [each.payload for each in mq.get("orders", limit=2)] == [b"1", b"2"]
    assert mq.status()["listening"] == 0
