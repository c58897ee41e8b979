"""What every pair of hands of a handler does: blocking, and awaited."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from oncemq import App, AsyncClient, Client
from oncemq.apps.aio import AsyncHandlerIO
from oncemq.apps.blocking import BlockingHandlerIO, drive
from oncemq.apps.dead_letters import Sealed
from oncemq.apps.handler import Handler
from oncemq.apps.handler_loop import HandlerIO, TakenMessages

LETTER = Sealed(b"dead", b"key", {"why": "it broke"}, "orders@0")


class Crew(Protocol):
    """Hands for one handler at a time, and how to let them work."""

    def hands(self, **options: Any) -> HandlerIO: ...
    def run(self, work: Coroutine[Any, Any, Any]) -> Any: ...
    def stop(self) -> None: ...
    def end(self) -> None: ...


def handler_of(function: Callable[..., Any], **options: Any) -> Handler:
    app = App("tcp://127.0.0.1:1", id="shop")
    app.handler("orders", **options)(function)
    return app.handlers[0]


class BlockingCrew:
    def __init__(self, server: str, state: Path) -> None:
        self._client = Client(server, id="shop.orders", state=state)
        self._stop = threading.Event()

    def hands(self, *, yields: bool = False, **options: Any) -> BlockingHandlerIO:
        def handle(payload: bytes) -> bytes:
            return b"handled " + payload

        def handle_by_parts(payload: bytes) -> Iterator[bytes]:
            yield from (b"first " + payload, b"second " + payload)

        handler = handler_of(handle_by_parts if yields else handle, **options)
        return BlockingHandlerIO(handler, self._client, self._stop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return drive(work)

    def stop(self) -> None:
        self._stop.set()

    def end(self) -> None:
        self._client.close()


class AsyncCrew:
    def __init__(self, server: str, state: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

        async def start() -> AsyncClient:
            return await AsyncClient(server, id="shop.orders", state=state).__aenter__()

        self._client = self.run(start())

    def hands(self, *, yields: bool = False, **options: Any) -> AsyncHandlerIO:
        async def handle(payload: bytes) -> bytes:
            return b"handled " + payload

        async def handle_by_parts(payload: bytes) -> Any:
            for part in (b"first ", b"second "):
                yield part + payload

        handler = handler_of(handle_by_parts if yields else handle, **options)
        return AsyncHandlerIO(handler, self._client, self._stop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def stop(self) -> None:
        self._stop.set()

    def end(self) -> None:
        self.run(self._client.close())
        self._loop.close()


CREWS: dict[str, Callable[[str, Path], Crew]] = {"blocking": BlockingCrew, "awaited": AsyncCrew}


@pytest.fixture(params=list(CREWS))
def crew(request: pytest.FixtureRequest, oncemq_server: str, tmp_path: Path) -> Iterator[Crew]:
    crew = CREWS[request.param](oncemq_server, tmp_path / "state")
    yield crew
    crew.end()


@pytest.fixture
def mq(oncemq_client: Callable[..., Client]) -> Client:
    return oncemq_client()


def taken(
    crew: Crew, hands: HandlerIO, limit: int = 10, error: Exception | None = None
) -> list[bytes]:
    """What a block is given; it ends well, or with the error."""

    async def block() -> list[bytes]:
        async with hands.take(limit) as found:
            payloads = [each.payload for each in found.messages]
            if error is not None:
                raise error
            return payloads
        raise AssertionError("hands let errors pass")

    return crew.run(block())


def test_a_subscription_is_made_once(crew: Crew) -> None:
    hands = crew.hands()
    assert crew.run(hands.subscribe()) is True
    assert crew.run(hands.subscribe()) is False


@pytest.mark.parametrize("options", [{}, {"to": "bills"}], ids=["plain", "transactional"])
def test_messages_are_settled_by_a_block_that_ends_well_alone(
    crew: Crew, mq: Client, options: dict[str, Any]
) -> None:
    hands = crew.hands(**options)
    crew.run(hands.subscribe())
    assert taken(crew, hands) == []
    mq.put_many("orders", [b"0", b"1", b"2"])
    with pytest.raises(ValueError, match="it broke"):
        taken(crew, hands, 2, ValueError("it broke"))
    assert [taken(crew, hands, 2), taken(crew, hands, 2), taken(crew, hands)] == [
        [b"0", b"1"],
        [b"2"],
        [],
    ]


def test_a_handler_answers_with_what_it_returns_or_with_all_it_yields(crew: Crew) -> None:
    assert crew.run(crew.hands().call(b"x", {})) == b"handled x"
    assert crew.run(crew.hands(yields=True, to="bills").call(b"x", {})) == [b"first x", b"second x"]


def test_what_is_put_out_is_there_with_what_was_taken_or_not_at_all(crew: Crew, mq: Client) -> None:
    hands = crew.hands(to="bills")
    crew.run(hands.subscribe())
    mq.subscribe("bills")
    mq.put("orders", b"0")

    async def block(payloads: list[bytes], *, fails: bool = False) -> None:
        async with hands.take(1) as found:
            await put_out(found, payloads)
            if fails:
                raise ValueError("it broke")

    async def put_out(found: TakenMessages, payloads: list[bytes]) -> None:
        assert [each.payload for each in found.messages] == [b"0"]
        await hands.output(found, [])
        await hands.output(found, payloads)

    with pytest.raises(ValueError, match="it broke"):
        crew.run(block([b"lost"], fails=True))
    crew.run(block([b"a", b"b"]))
    assert [each.payload for each in mq.get("bills", limit=9)] == [b"a", b"b"]
    assert taken(crew, hands) == []


def test_a_letter_is_buried_once_and_kept_though_nobody_subscribes(crew: Crew, mq: Client) -> None:
    hands = crew.hands()
    crew.run(hands.bury(LETTER))
    crew.run(hands.bury(LETTER))
    crew.run(hands.bury(LETTER._replace(payload=b"written by a start whose note was lost")))
    assert mq.topic("orders.dead").topic.retention.forever
    mq.subscribe("orders.dead", start="earliest")
    found = [(each.payload, each.key, each.headers) for each in mq.get("orders.dead", limit=9)]
    assert found == [(b"dead", b"key", {"why": "it broke"})]


def test_a_topic_of_letters_that_keeps_nothing_is_made_to(crew: Crew, mq: Client) -> None:
    mq.create_topic("orders.dead")
    crew.run(crew.hands().bury(LETTER))
    assert mq.topic("orders.dead").topic.retention.forever


def test_without_a_database_every_failure_is_the_handlers(crew: Crew) -> None:
    assert crew.run(crew.hands().sound()) is True


def test_a_pause_ends_when_the_app_is_to_stop(crew: Crew) -> None:
    hands = crew.hands()
    began = time.monotonic()
    crew.run(hands.pause(0.05))
    assert time.monotonic() - began >= 0.04  # clocks differ a little
    crew.stop()
    crew.run(hands.pause(600.0))
