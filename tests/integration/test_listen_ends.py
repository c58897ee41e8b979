"""How listening ends: nothing that was taken is passed over, nothing comes after an unsubscribe."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncemq import AsyncClient, Client, InvalidRequest, NotSubscribed


@pytest.fixture(params=["lasting", "anonymous"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    named = {"id": "ada", "state": tmp_path / "ada"}
    return {"timeout": 10, **(named if request.param == "lasting" else {})}


def offsets(topic: str, first: int, last: int) -> list[str]:
    return [f"{topic}@{offset}" for offset in range(first, last + 1)]


def test_who_gets_right_after_a_listener_broke_off_gets_what_that_did_not_hand_out(
    server: str, options: dict[str, Any]
) -> None:
    with Client(server, **options) as mq:
        mq.subscribe("a")
        mq.put_many("a", [b"x"] * 150)
        block, got = mq._turns.getting.block, []

        @contextmanager
        def then_another_thread_gets(*arguments: Any, **named: Any) -> Iterator[None]:
            try:
                with block(*arguments, **named):
                    yield
            finally:
                mq._turns.getting.block = block  # the get itself is a block as well
                getting = threading.Thread(target=lambda: got.extend(mq.get("a", limit=5)))
                getting.start()
                getting.join()

        mq._turns.getting.block = then_another_thread_gets
        for message in mq.listen("a", wait=5):
            if message.offset == 2:
                break  # two were settled; this one comes again
        while messages := mq.get("a", limit=500):
            got += messages
        assert [each.id for each in got] == offsets("a", 2, 149)


def test_a_listener_that_ends_while_another_waits_does_not_leave_that_one_waiting(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both listen to the same: what the one ends, the other begins anew."""
    with Client(server, timeout=10) as mq:
        mq.subscribe("a")
        listening, waits = mq._engine.listening, threading.Event()
        wait = listening._wait

        def waiting(*args: Any) -> Any:
            waits.set()
            return wait(*args)

        monkeypatch.setattr(listening, "_wait", waiting)
        got: list[str] = []

        def listen() -> None:
            for message in mq.listen("a", wait=9):
                got.append(message.id)
                break

        other = threading.Thread(target=listen)
        other.start()
        assert waits.wait(9)
        with mq._turns.lock:
            listening.leave(("a",))  # as a listener does that is interrupted before its turn
        mq.put("a", b"x")
        other.join(9)
        assert got == ["a@0"]


@pytest.mark.parametrize("topics", [("a.b",), (), ("a.b", "a.c"), ("a.*",)])
def test_an_unsubscribe_between_two_messages_is_the_end_of_them(
    server: str, options: dict[str, Any], topics: tuple[str, ...]
) -> None:
    with Client(server, **options) as mq:
        asked = "a.*" if topics == ("a.*",) else "a.b"
        mq.subscribe(asked)
        if topics == ("a.b", "a.c"):
            mq.subscribe("a.c")
        mq.put_many("a.b", [b"x"] * 10)
        listening = mq.listen(*topics, wait=0.2)
        got = [next(listening).id for _ in range(3)]
        assert mq.unsubscribe(asked)
        assert mq.subscribe(asked)  # it is another subscription
        mq.put("a.b", b"y")
        got += [next(listening).id]
        assert got == [*offsets("a.b", 0, 2), "a.b@10"]
        assert mq.unsubscribe(asked)
        if len(topics) == 1:
            with pytest.raises(NotSubscribed):
                next(listening)
        listening.close()


@pytest.mark.parametrize("topics", [("a.b",), (), ("a.b", "a.c"), ("a.*",)])
async def test_the_same_for_asyncio(
    server: str, options: dict[str, Any], topics: tuple[str, ...]
) -> None:
    async with AsyncClient(server, **options) as mq:
        asked = "a.*" if topics == ("a.*",) else "a.b"
        await mq.subscribe(asked)
        if topics == ("a.b", "a.c"):
            await mq.subscribe("a.c")
        await mq.put_many("a.b", [b"x"] * 10)
        async with aclosing(mq.listen(*topics, wait=0.2)) as listening:
            got = [(await anext(listening)).id for _ in range(3)]
            assert await mq.unsubscribe(asked)
            assert await mq.subscribe(asked)
            await mq.put("a.b", b"y")
            got += [(await anext(listening)).id]
            assert got == [*offsets("a.b", 0, 2), "a.b@10"]
            assert await mq.unsubscribe(asked)
            if len(topics) == 1:
                with pytest.raises(NotSubscribed):
                    await anext(listening)


def test_what_an_interrupted_get_left_is_not_given_after_an_unsubscribe(server: str) -> None:
    with Client(server, timeout=10) as mq:
        mq.subscribe("a")
        mq.put_many("a", [b"x"] * 4)

        def left_over() -> None:
            from oncemq.client.shell.handouts import Handout

            handout = Handout(came_back=True)
            mq._handouts.settled(handout, mq.get("a", limit=2))

        left_over()
        assert mq.unsubscribe("a")
        with pytest.raises(NotSubscribed):
            mq.get("a")
        mq.subscribe("a")
        mq.put_many("a", [b"y"] * 3)
        left_over()
        listening = mq.listen("a", wait=5)
        assert next(listening).id == "a@4"
        assert mq.unsubscribe("a")
        with pytest.raises(NotSubscribed):
            next(listening)


async def test_a_listener_that_nobody_has_any_more_is_over(
    server: str, options: dict[str, Any]
) -> None:
    async with AsyncClient(server, **options) as mq:
        await mq.subscribe("a")
        await mq.put_many("a", [b"x"] * 5)
        async for message in mq.listen("a", wait=5):
            if message.offset == 1:
                break
        # The loop has had no time yet to close the generator; and when it does, that changes
        # nothing for who gets meanwhile.
        async with mq.consume("a", limit=2) as messages:
            assert [each.id for each in messages] == ["a@1", "a@2"]
            for _ in range(5):
                await asyncio.sleep(0)
        assert [each.id for each in await mq.get("a", limit=9)] == ["a@3", "a@4"]


async def test_a_listener_that_somebody_has_is_ended_by_closing_it(server: str) -> None:
    async with AsyncClient(server, timeout=10) as mq:
        await mq.subscribe("a")
        await mq.put_many("a", [b"x"] * 3)
        listening = mq.listen("a", wait=5)
        assert [(await anext(listening)).id for _ in range(2)] == ["a@0", "a@1"]
        with pytest.raises(InvalidRequest, match=r"contextlib\.aclosing"):
            await mq.get("a")
        await listening.aclose()
        assert [each.id for each in await mq.get("a", limit=9)] == ["a@1", "a@2"]
        async with aclosing(mq.listen("a", wait=5)) as closing:
            await mq.put("a", b"x")
            assert (await anext(closing)).id == "a@3"
        assert [each.id for each in await mq.get("a", limit=9)] == ["a@3"]
        with pytest.raises(StopAsyncIteration):
            await anext(closing)
