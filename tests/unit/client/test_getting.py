"""Which of the threads, or of the tasks, that share a client gets."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from oncemq.client.aio.getting import AsyncGetting
from oncemq.client.blocking.getting import Getting
from oncemq.errors import InvalidRequest
from tests.harness.waiting import until_true


def test_who_has_waited_for_a_turn_leaves_nothing_behind() -> None:
    getting = Getting(lambda: None, lambda feeds: None)

    def get() -> None:
        with getting.block("orders"):
            pass

    thread = threading.Thread(target=get)
    with getting.block("orders"):
        thread.start()
        until_true(lambda: getting._waiting, "another thread waits")
    thread.join()
    assert getting._waiting == []


class Tasks:
    """Tasks that get, each when it is told to, and end when they are told to."""

    def __init__(self) -> None:
        self.getting = AsyncGetting(lambda: None, lambda feeds: None)
        self.inside: list[str] = []
        self._ended: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, feed: str) -> None:
        """As far as it comes: inside, or where it waits for its turn."""
        self._ended[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._get(name, feed))
        await asyncio.sleep(0)

    async def end(self, name: str) -> None:
        """A task that is inside is over, and so is its block."""
        self._ended[name].set()
        await self._tasks[name]
        await asyncio.sleep(0)

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])
        await asyncio.sleep(0)

    def refusal(self, name: str) -> BaseException | None:
        return self._tasks[name].exception()

    async def _get(self, name: str, feed: str) -> None:
        async with self.getting.block(feed):
            self.inside.append(name)
            await self._ended[name].wait()
            self.inside.remove(name)


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    assert (tasks.inside, tasks.getting._waiting, tasks.getting._opened) == ([], [], [])


async def test_tasks_get_one_after_the_other_in_the_order_of_asking(tasks: Tasks) -> None:
    for name in ("first", "second", "third", "fourth"):
        await tasks.begin(name, "orders")
    await tasks.give_up("second")
    for name in ("first", "third", "fourth"):
        assert tasks.inside == [name]
        await tasks.end(name)


async def test_what_is_begun_in_a_block_keeps_others_out_when_that_is_over(tasks: Tasks) -> None:
    async with tasks.getting.block("orders"):
        await tasks.begin("inside", "refunds")
        assert tasks.inside == ["inside"]
    await tasks.begin("stranger", "orders")
    assert tasks.inside == ["inside"]
    await tasks.end("inside")
    assert tasks.inside == ["stranger"]
    await tasks.end("stranger")


async def test_who_waits_for_what_is_around_has_got_meanwhile_is_refused(tasks: Tasks) -> None:
    with tasks.getting.inside() as around:
        await tasks.begin("first", "refunds")
        adding = asyncio.create_task(tasks.getting.add(around, "orders"))
        await asyncio.sleep(0)
        await tasks.begin("waits", "orders")
        assert tasks.inside == ["first"]
        await tasks.end("first")
        await adding
        await asyncio.sleep(0)
        assert isinstance(tasks.refusal("waits"), InvalidRequest)
        assert around.feeds == ["orders"]


async def test_nobody_waits_for_a_block_that_is_over(tasks: Tasks) -> None:
    with tasks.getting.inside() as around:
        await tasks.begin("first", "refunds")
        adding = asyncio.create_task(tasks.getting.add(around, "orders"))
        await asyncio.sleep(0)
    await adding
    assert around.feeds == []
    await tasks.end("first")
