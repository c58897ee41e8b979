"""Getting inside a block: the same rule in both clients, and never a wait without end."""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from oncemq import AsyncClient, Client, InvalidRequest, Message
from oncemq.client.ticket import Ticket


def test_inside_a_block_other_topics_may_be_got_and_its_own_not(server: str) -> None:
    with Client(server, timeout=5) as mq:
        for topic in ("a", "b"):
            mq.subscribe(topic)
            mq.put_many(topic, [b"1", b"2"])
        with mq.consume("a", limit=1) as messages:
            assert [each.id for each in messages] == ["a@0"]
            assert [each.id for each in mq.get("b")] == ["b@0"]
            for feed in ("a", None):
                with pytest.raises(InvalidRequest, match="block that gets from 'a' is open"):
                    mq.get(feed)
            with mq.consume("b") as inner:
                assert [each.id for each in inner] == ["b@1"]
                with pytest.raises(InvalidRequest, match="is open"):
                    mq.get("b")
        listening = mq.listen("a")
        assert next(listening).id == "a@1"
        with pytest.raises(InvalidRequest, match="is open"):
            mq.get("a")
        listening.close()
        assert [each.id for each in mq.get("a")] == ["a@1"]


@pytest.fixture
def threads() -> Iterator[list[ThreadPoolExecutor]]:
    """Three threads that live on, so that none is taken for another that had its number."""
    with ExitStack() as stack:
        yield [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3)]


def test_a_listener_may_go_on_and_end_on_other_threads_than_the_one_that_began_it(
    server: str, threads: list[ThreadPoolExecutor]
) -> None:
    """As where a web framework takes each message in whichever thread of its pool is free."""
    first, second, third = threads
    with Client(server, timeout=10) as mq:
        mq.subscribe("a")
        mq.put_many("a", [b"x"] * 150)  # more than one block has
        listening = mq.listen("a")
        for number in range(120):
            thread = (first, second)[number % 2]
            assert thread.submit(lambda: next(listening).id).result(10) == f"a@{number}"
        third.submit(listening.close).result(10)
        assert [each.id for each in third.submit(mq.get, "a").result(10)] == ["a@119"]


def test_a_listener_that_another_thread_collects_is_over(
    server: str, threads: list[ThreadPoolExecutor]
) -> None:
    with Client(server, timeout=10) as mq:
        mq.subscribe("a")
        mq.put_many("a", [b"1", b"2"])
        kept = [mq.listen("a")]
        assert threads[0].submit(lambda: next(kept[0]).id).result(10) == "a@0"
        kept.clear()
        assert [each.id for each in threads[1].submit(mq.get, "a").result(10)] == ["a@0"]


def test_a_block_that_another_thread_ends_is_over_and_others_of_its_thread_are_not(
    server: str, threads: list[ThreadPoolExecutor]
) -> None:
    first, second, third = threads
    with Client(server, timeout=10) as mq:
        for topic in ("a", "b"):
            mq.subscribe(topic)
            mq.put_many(topic, [b"1", b"2"])
        outer, inner = mq.consume("a", limit=1), mq.consume("b", limit=1)
        assert [each.id for each in first.submit(outer.__enter__).result(10)] == ["a@0"]
        assert [each.id for each in first.submit(inner.__enter__).result(10)] == ["b@0"]
        error = ValueError("as the user raised it")
        assert second.submit(outer.__exit__, ValueError, error, None).result(10) is False
        getting = third.submit(mq.get, "b")
        with pytest.raises(TimeoutError):
            getting.result(0)  # the inner one is open: it would be settled along with it
        assert second.submit(inner.__exit__, None, None, None).result(10) is False
        assert [each.id for each in getting.result(10)] == ["b@1"]
        assert [each.id for each in second.submit(mq.get, "a").result(10)] == ["a@0"]


def test_a_block_that_raises_gives_everything_again_whatever_was_got_inside(server: str) -> None:
    with Client(server, timeout=5) as mq:
        mq.subscribe("a")
        mq.put_many("a", [b"1", b"2", b"3"])
        with pytest.raises(InvalidRequest), mq.consume("a", limit=1):
            mq.get("a")  # settled, it would have taken the block's own along
        assert [each.id for each in mq.get("a", limit=9)] == ["a@0", "a@1", "a@2"]


async def test_the_rule_holds_for_asyncio(server: str) -> None:
    async with AsyncClient(server, timeout=5) as mq:
        for topic in ("a", "b"):
            await mq.subscribe(topic)
            await mq.put_many(topic, [b"1", b"2"])
        async with mq.consume("a", limit=1) as messages:
            assert [each.id for each in messages] == ["a@0"]
            assert [each.id for each in await asyncio.wait_for(mq.get("b"), 5)] == ["b@0"]
            with pytest.raises(InvalidRequest, match="block that gets from 'a' is open"):
                await asyncio.wait_for(mq.get("a"), 5)
            with pytest.raises(InvalidRequest, match="is open"):
                await mq.get()
            # Those inside take turns, as those outside do.
            both = await asyncio.gather(mq.get("b"), mq.get("b"))
            assert [[each.id for each in one] for one in both] == [["b@1"], []]
        listening = mq.listen("a")
        assert (await anext(listening)).id == "a@1"
        with pytest.raises(InvalidRequest, match="is open"):
            await mq.get("a")
        await listening.aclose()
        assert [each.id for each in await mq.get("a")] == ["a@1"]


async def test_another_task_waits_until_the_block_is_over(server: str) -> None:
    async with AsyncClient(server, timeout=5) as mq:
        await mq.subscribe("a")
        await mq.put_many("a", [b"1", b"2"])
        begun, done = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with mq.consume("a", limit=1):
                begun.set()
                await done.wait()

        working = asyncio.create_task(work())
        await begun.wait()
        waiting = asyncio.create_task(mq.get("a"))
        await asyncio.sleep(0)
        assert not waiting.done()
        done.set()
        await working
        assert [each.id for each in await waiting] == ["a@1"]


async def test_a_get_inside_a_transaction_is_refused_at_once(server: str) -> None:
    async with AsyncClient(server, timeout=5) as mq:
        for topic in ("a", "b"):
            await mq.subscribe(topic)
            await mq.put_many(topic, [b"1", b"2"])
        async with mq.transaction() as tx:
            assert [each.id for each in await tx.get("a", limit=1)] == ["a@0"]
            assert [each.id for each in await tx.get("b", limit=1)] == ["b@0"]
            assert [each.id for each in await tx.get("a", limit=1)] == ["a@1"]
            for topic in ("a", "c"):
                with pytest.raises(InvalidRequest, match="open here"):
                    await asyncio.wait_for(mq.get(topic), 5)


async def test_a_block_begun_inside_another_keeps_everybody_else_out_until_it_is_over(
    server: str,
) -> None:
    """Also when the other one ends first: the cursor has one place."""
    async with AsyncClient(server, timeout=5) as mq:
        for topic in ("a", "b"):
            await mq.subscribe(topic)
            await mq.put_many(topic, [b"1", b"2", b"3", b"4"])
        working, fail = asyncio.Event(), asyncio.Event()

        async def side() -> None:
            async with mq.consume("b", limit=2):
                working.set()
                await fail.wait()
                raise ZeroDivisionError

        async with mq.consume("a"):
            inside = asyncio.create_task(side())
            beside = asyncio.create_task(_after(working, mq.get("b", limit=9)))
            await working.wait()
        outside = asyncio.create_task(mq.get("b", limit=2))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not outside.done()
        assert not beside.done()
        fail.set()
        with pytest.raises(ZeroDivisionError):
            await inside
        got = [each.id for one in (await beside, await outside) for each in one]
        assert sorted(got) == ["b@0", "b@1", "b@2", "b@3"]


async def _after(event: asyncio.Event, get: Coroutine[Any, Any, list[Message]]) -> list[Message]:
    await event.wait()
    return await get


async def test_those_who_wait_get_in_turn_and_who_gives_up_is_passed_over(server: str) -> None:
    async with AsyncClient(server, timeout=5) as mq:
        await mq.subscribe("a")
        await mq.put_many("a", [b"1", b"2", b"3"])
        begun, done = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        async def work() -> None:
            async with mq.consume("a", limit=1):
                begun.set()
                await done.wait()

        async def get(name: str) -> None:
            order.extend(f"{name} got {each.id}" for each in await mq.get("a"))

        working = asyncio.create_task(work())
        await begun.wait()
        waiting = [asyncio.create_task(get(name)) for name in ("ada", "bob", "eve")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        done.set()
        await working
        await get("ian")  # asked last
        await asyncio.wait(waiting)
        assert order == ["bob got a@1", "eve got a@2"]


async def test_gets_of_one_transaction_may_be_tasks_of_their_own(server: str) -> None:
    async with AsyncClient(server, timeout=5) as mq:
        for topic in ("a", "b", "c"):
            await mq.subscribe(topic)
            await mq.put_many(topic, [b"1", b"2"])
        async with asyncio.timeout(20):
            async with mq.transaction() as tx:
                both = await asyncio.gather(tx.get("a", limit=1), tx.get("b", limit=1))
                assert [[each.id for each in one] for one in both] == [["a@0"], ["b@0"]]
                assert [each.id for each in await tx.get("a", limit=1)] == ["a@1"]
                one = await asyncio.wait_for(tx.get("c", limit=1), 5)
                assert [each.id for each in one] == ["c@0"]
                with pytest.raises(InvalidRequest, match="open here"):
                    await mq.get("a")
            got = [await mq.get(topic, limit=9) for topic in ("a", "b", "c")]
            assert [[each.id for each in one] for one in got] == [[], ["b@1"], ["c@1"]]


async def test_a_get_that_outlives_its_transaction_takes_nothing(server: str) -> None:
    async with AsyncClient(server, timeout=5) as mq:
        await mq.subscribe("a")
        asked, fetch = asyncio.Event(), mq._engine.fetch

        def noticed(topic: str, limit: int, wait_ms: int) -> Ticket[bool]:
            asked.set()
            return fetch(topic, limit, wait_ms)

        mq._engine.fetch = noticed
        async with mq.transaction() as tx:
            late = asyncio.create_task(tx.get("a", wait=5))
            await asked.wait()
        await mq.put_many("a", [b"1", b"2"])
        with pytest.raises(InvalidRequest, match="the transaction is over"):
            await late
        assert [each.id for each in await mq.get("a", limit=9, wait=5)] == ["a@0", "a@1"]
