"""One asyncio client and several event loops: it goes along, unless the one before still runs."""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq import AsyncClient, Client, InvalidRequest
from tests.harness.waiting import until_true


@pytest.fixture
def mq(server: str, tmp_path: Path) -> Iterator[AsyncClient]:
    """Made where no loop runs."""
    mq = AsyncClient(server, id="ada", state=tmp_path / "ada", timeout=20)
    yield mq
    asyncio.run(mq.close())


async def subscribed(mq: AsyncClient) -> None:
    await mq.subscribe("orders")


async def got(mq: AsyncClient, wait: float = 0.0) -> list[str]:
    return [each.id for each in await mq.get("orders", limit=9, wait=wait)]


def test_a_client_goes_along_to_the_next_loop(mq: AsyncClient) -> None:
    async def exchanged() -> list[str]:
        await mq.put("orders", b"1")
        return await got(mq)

    asyncio.run(subscribed(mq))
    began = time.monotonic()
    assert [asyncio.run(exchanged()) for _ in range(10)] == [[f"orders@{n}"] for n in range(10)]
    assert time.monotonic() - began < 3  # not 0.2 s for each answer


def test_what_comes_wakes_who_waits_in_the_next_loop(mq: AsyncClient, server: str) -> None:
    async def waited() -> tuple[list[str], float]:
        getting = asyncio.create_task(got(mq, wait=20))
        await asyncio.sleep(0)
        with Client(server) as shop:
            shop.put("orders", b"1")
        began = time.monotonic()
        return await getting, time.monotonic() - began

    asyncio.run(subscribed(mq))
    ids, seconds = asyncio.run(waited())
    assert ids == ["orders@0"]
    assert seconds < 0.1


def test_a_put_that_nobody_waits_for_leaves_in_the_next_loop(mq: AsyncClient) -> None:
    async def put() -> None:
        await mq.put("orders", b"1", wait=False)

    async def flushed() -> list[str]:
        await mq.put("orders", b"2", wait=False)
        for _ in range(200):
            if not mq.unsent:
                break
            await asyncio.sleep(0.01)
        return await got(mq, wait=5)

    asyncio.run(subscribed(mq))
    asyncio.run(put())
    assert asyncio.run(flushed()) == ["orders@0", "orders@1"]


def test_a_loop_that_was_closed_with_tasks_of_it_left_is_left(mq: AsyncClient) -> None:
    asyncio.run(subscribed(mq))
    loop = asyncio.new_event_loop()
    asyncio.run(mq.put_many("orders", [b"1", b"2"]))
    worked_on: list[str] = []

    async def working() -> None:
        async with mq.consume("orders", limit=1) as messages:
            worked_on.append(messages[0].id)
            await asyncio.Event().wait()

    left = [loop.create_task(each) for each in (working(), got(mq, wait=600))]
    loop.run_until_complete(asyncio.wait(left, timeout=0.2))
    loop.close()
    assert worked_on == ["orders@0"]
    assert asyncio.run(got(mq)) == ["orders@0", "orders@1"]
    assert [each.done() for each in left] == [False, False]
    for each in left:
        each.get_coro().close()  # else they say, when they are collected, that they were left


def test_a_transaction_of_a_closed_loop_ends_in_silence_when_it_is_collected(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coroutine that nobody has any more is closed where that is, also where no loop runs."""

    async def left_open(begun: asyncio.Event) -> None:
        async with mq.transaction() as tx:
            await tx.put("orders", b"1")
            begun.set()
            await asyncio.Event().wait()

    async def left() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(left_open(begun))
        await begun.wait()
        assert not task.done()

    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: raised.append(told.exc_value))
    asyncio.run(subscribed(mq))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(left())
    loop.close()
    gc.collect()
    assert raised == []
    assert asyncio.run(got(mq)) == []


def test_two_loops_that_run_in_turns_share_a_client(mq: AsyncClient) -> None:
    loops = [asyncio.new_event_loop() for _ in range(2)]
    loops[0].run_until_complete(subscribed(mq))
    for number in range(6):
        loop = loops[number % 2]
        loop.run_until_complete(mq.put("orders", b"1"))
        assert loop.run_until_complete(got(mq)) == [f"orders@{number}"]
    for loop in loops:
        loop.close()


def test_a_client_whose_loop_runs_is_refused_to_another(mq: AsyncClient) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(subscribed(mq), loop).result(20)

    async def every() -> list[str]:
        said: list[str] = []
        for verb in (
            lambda: mq.get("orders"),
            lambda: mq.put("orders", b"1"),
            lambda: mq.put("orders", b"1", wait=False),
            lambda: mq.put_many("orders", [b"1"], wait=False),
            lambda: mq.put("orders", b"1", idempotency_key="k"),
            mq.status,
            mq.flush,
            lambda: anext(mq.listen("orders")),
            lambda: mq.transaction().__aenter__(),
        ):
            with pytest.raises(InvalidRequest) as refused:
                await verb()
            said.append(str(refused.value))
        return said

    said = set(asyncio.run(every()))
    (words,) = said
    assert "another event loop" in words
    assert "run_coroutine_threadsafe" in words
    assert asyncio.run_coroutine_threadsafe(got(mq), loop).result(20) == []
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    until_true(lambda: not loop.is_running(), "the loop stops")
    loop.close()
