"""Puts that nobody waits for take their time when too much is unsent, and nobody waits for ever."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.client.aio.puts import AsyncPublishing
from oncemq.client.blocking.puts import FLOW_BYTES, Publishing
from oncemq.errors import Fenced, OutboxFull
from oncemq.wire import batch

OUTBOX_BYTES = 1000


class Office:
    """A client of which only the way into the outbox is real: it waits through given states."""

    def __init__(self, kind: type, unsent: int, *, connected: bool, full: bool = False) -> None:
        def check(topic: str, largest: int, size: int | None) -> int:
            if full:
                raise OutboxFull("full")
            return unsent

        self.outflow = SimpleNamespace(unsent_bytes=unsent, check=check)
        self.engine = SimpleNamespace(
            connected=connected,
            outflow=self.outflow,
            context=SimpleNamespace(failure=None),
            settings=SimpleNamespace(outbox_bytes_max=OUTBOX_BYTES),
        )
        self.states: Iterator[tuple[int, bool]] = iter(())
        self.client: Any = object.__new__(kind)
        self.client._engine = self.engine
        self.client._turns = SimpleNamespace(wait_here=self._waiter(kind))

    def room(self, *states: tuple[int, bool]) -> list[tuple[int, bool]]:
        """Ask for room while these follow each other; those that were not waited for."""
        self.states = iter(states)
        answer = self.client._room_for("orders", 1, 1)
        if asyncio.iscoroutine(answer):
            asyncio.run(answer)
        return list(self.states)

    def _waiter(self, kind: type) -> Callable[..., Any]:
        def wait(ready: Callable[[], bool], timeout: float | None, what: str) -> None:
            while not ready():
                self.outflow.unsent_bytes, self.engine.connected = next(self.states)

        async def wait_async(ready: Callable[[], bool], timeout: float | None, what: str) -> None:
            wait(ready, timeout, what)

        return wait if kind is Publishing else wait_async


@pytest.fixture(params=[Publishing, AsyncPublishing])
def kind(request: pytest.FixtureRequest) -> type:
    return request.param


def test_up_to_the_limit_nobody_waits(kind: type) -> None:
    later = [(0, True)]
    assert Office(kind, FLOW_BYTES, connected=True).room(*later) == later


def test_over_it_half_of_it_is_waited_for(kind: type) -> None:
    office = Office(kind, FLOW_BYTES + 1, connected=True)
    left = office.room((FLOW_BYTES // 2, True), (FLOW_BYTES // 2 - 1, True), (0, True))
    assert left == [(0, True)]


def test_a_client_that_cannot_send_does_not_wait(kind: type) -> None:
    later = [(0, True)]
    assert Office(kind, FLOW_BYTES + 1, connected=False).room(*later) == later
    office = Office(kind, FLOW_BYTES + 1, connected=True)
    assert office.room((FLOW_BYTES, True), (FLOW_BYTES, False), *later) == later


def test_a_full_outbox_is_waited_for_while_it_empties(kind: type) -> None:
    half = OUTBOX_BYTES // 2
    office = Office(kind, OUTBOX_BYTES, connected=True, full=True)
    assert office.room((half, True), (half - 1, True), (0, True)) == [(0, True)]


def test_a_full_outbox_that_cannot_empty_refuses(kind: type) -> None:
    with pytest.raises(OutboxFull):
        Office(kind, OUTBOX_BYTES, connected=False, full=True).room()


@pytest.mark.parametrize("full", [True, False])
def test_a_put_that_waited_while_its_client_ended_is_refused(kind: type, full: bool) -> None:
    """What is unsent then is none any more, so there seems to be room."""
    office = Office(kind, FLOW_BYTES + 1, connected=True, full=full)
    office.engine.context.failure = Fenced("a newer client uses this id")
    with pytest.raises(Fenced):
        office.room((0, True))


def test_unsent_bytes_are_those_that_have_no_answer(world: Any) -> None:
    """Whatever way a put goes: the limits of the outbox and the flow count by them."""
    shop = world.client("shop")
    shop.turn()
    outflow = shop.engine.outflow
    shop.wire.cut()
    one = len(batch.encode_payloads([b"x" * 100]))
    for number, lasting in enumerate((True, False), 1):
        shop.put("orders", b"x" * 100, lasting=lasting)
        assert outflow.unsent_bytes == number * one
    shop.gather("orders", b"y" * 10)
    assert outflow.unsent_bytes >= 2 * one + 10
    after = world.crashed("shop")  # what was recorded is there again, and counted
    assert 0 < after.engine.outflow.unsent_bytes <= outflow.unsent_bytes
    after.turn(12)
    assert after.engine.outflow.unsent_bytes == 0


def test_what_is_refused_is_not_unsent_any_more(world: Any) -> None:
    shop = world.client("shop")
    shop.turn()
    refused = shop.put("orders", b"x" * 100, required=True)  # nobody would get it
    assert shop.engine.outflow.unsent_bytes > 100
    shop.turn(12)
    assert refused.error is not None
    assert shop.engine.outflow.unsent_bytes == 0
