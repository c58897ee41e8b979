"""Whatever a closed client is asked for, it says that it is closed, in our own words."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncemq import AsyncClient, Client, OnceMQError, Unreachable
from oncemq.protocol.records import Retention

VERBS: dict[str, Callable[[Any], Any]] = {
    "subscribe": lambda mq: mq.subscribe("x"),
    "unsubscribe": lambda mq: mq.unsubscribe("orders"),
    "unsubscribe_all": lambda mq: mq.unsubscribe_all(),
    "get": lambda mq: mq.get(),
    "get of a topic": lambda mq: mq.get("orders"),
    "consume": lambda mq: mq.consume("orders"),
    "listen": lambda mq: mq.listen("orders"),
    "read": lambda mq: mq.read("orders", 0),
    "topics": lambda mq: mq.topics(),
    "topic": lambda mq: mq.topic("orders"),
    "create_topic": lambda mq: mq.create_topic("x"),
    "configure_topic": lambda mq: mq.configure_topic("orders", Retention()),
    "delete_topic": lambda mq: mq.delete_topic("x"),
    "subscriptions": lambda mq: mq.subscriptions(),
    "status": lambda mq: mq.status(),
    "put": lambda mq: mq.put("orders", b"1"),
    "put with a key": lambda mq: mq.put("orders", b"1", key=b"k"),
    "put that is not kept": lambda mq: mq.put("orders", b"1", durable=False),
    "put that nobody waits for": lambda mq: mq.put("orders", b"1", wait=False),
    "put of a kind that nobody waits for": lambda mq: mq.put("orders", b"1", key=b"k", wait=False),
    "put under a key": lambda mq: mq.put("orders", b"1", idempotency_key="k"),
    "put to several topics": lambda mq: mq.put(["orders", "bills"], b"1"),
    "put_many": lambda mq: mq.put_many("orders", [b"1"]),
    "put_many that nobody waits for": lambda mq: mq.put_many("orders", [b"1"], wait=False),
    "put_many alone": lambda mq: mq.put_many("orders", [b"1"], keys=[b"k"], wait=False),
    "flush": lambda mq: mq.flush(),
    "transaction": lambda mq: mq.transaction(),
    "stage": lambda mq: mq.stage().put_many([b"1"]),
    "stage close": lambda mq: mq.stage().close(),
    "commit": lambda mq: mq.commit("me", 1, []),
    "read_columns": lambda mq: mq.read_columns("orders", 0, 2),
    "ends": lambda mq: mq.ends([("orders", 0)]),
    "watch": lambda mq: mq.watch([("orders", 0)]),
    "lease": lambda mq: mq.lease(1.0),
    "settle_below": lambda mq: mq.settle_below([]),
}


@pytest.fixture(params=["lasting", "anonymous"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {"id": "ada", "state": tmp_path / "ada"} if request.param == "lasting" else {}


@pytest.fixture
def ada(tmp_path: Path) -> dict[str, Any]:
    return {"id": "ada", "state": tmp_path / "ada"}


def carried_out(asked: Any) -> Any:
    """What a verb of the blocking client comes to, once it is begun."""
    if hasattr(asked, "__enter__"):
        return asked.__enter__()
    return next(asked) if hasattr(asked, "__next__") else asked


async def awaited(asked: Any) -> Any:
    """What a verb of the asyncio client comes to, once it is begun."""
    if hasattr(asked, "__aenter__"):
        return await asked.__aenter__()
    if hasattr(asked, "__anext__"):
        return await anext(asked)
    return await asked if inspect.isawaitable(asked) else asked


def ended(block: Any) -> Any:
    """Go on behind a block, or to the next message of a listener; for asyncio: to be awaited."""
    if hasattr(block, "__aexit__"):
        return block.__aexit__(None, None, None)
    if hasattr(block, "__exit__"):
        return block.__exit__(None, None, None)
    return anext(block) if hasattr(block, "__anext__") else next(block)


def said_so(error: BaseException | None) -> bool:
    return isinstance(error, Unreachable) and "the client is closed" in str(error)


def test_every_verb_of_a_closed_client_says_so(server: str, options: dict[str, Any]) -> None:
    with Client(server, timeout=20, **options) as mq:
        mq.subscribe("orders")
        mq.put_many("orders", [b"1", b"2"])
        mq.get("orders")
    wrong: dict[str, object] = {}
    for name, verb in VERBS.items():
        try:
            wrong[name] = carried_out(verb(mq))
        except BaseException as error:
            if not said_so(error):
                wrong[name] = error
    assert wrong == {}
    mq.close()


async def test_every_verb_of_a_closed_asyncio_client_says_so(
    server: str, options: dict[str, Any]
) -> None:
    async with AsyncClient(server, timeout=20, **options) as mq:
        await mq.subscribe("orders")
        await mq.put_many("orders", [b"1", b"2"])
        await mq.get("orders")
    wrong: dict[str, object] = {}
    for name, verb in VERBS.items():
        try:
            wrong[name] = await awaited(verb(mq))
        except BaseException as error:
            if not said_so(error):
                wrong[name] = error
    assert wrong == {}
    await mq.close()


# What was begun before the close


BEGUN: dict[str, Callable[[Any, Any], Any]] = {
    "get": lambda _, tx: tx.get("orders"),
    "put": lambda _, tx: tx.put("bills", b"1"),
    "put_many": lambda _, tx: tx.put_many("bills", [b"1"]),
    "stage": lambda stage, _: stage.put_many([b"1"]),
    "stage close": lambda stage, _: stage.close(),
}


def closed_in_a_transaction(mq: Client, verb: Callable[[Any, Any], Any]) -> Any:
    stage = mq.stage()
    try:
        with mq.transaction() as tx:
            mq.close()
            with pytest.raises(Unreachable, match="the client is closed"):
                verb(stage, tx)
    finally:
        stage.drop()


@pytest.mark.parametrize("verb", BEGUN.values(), ids=BEGUN)
def test_what_was_begun_before_a_close_says_so(
    server: str, options: dict[str, Any], verb: Callable[[Any, Any], Any]
) -> None:
    mq = Client(server, timeout=20, **options)
    mq.subscribe("orders")
    with pytest.raises(Unreachable, match="the client is closed"):
        closed_in_a_transaction(mq, verb)


async def closed_in_an_asyncio_transaction(
    mq: AsyncClient, verb: Callable[[Any, Any], Any]
) -> None:
    stage = mq.stage()
    try:
        async with mq.transaction() as tx:
            await mq.close()
            with pytest.raises(Unreachable, match="the client is closed"):
                await verb(stage, tx)
    finally:
        stage.drop()


@pytest.mark.parametrize("verb", BEGUN.values(), ids=BEGUN)
async def test_what_was_begun_before_a_close_of_an_asyncio_client_says_so(
    server: str, options: dict[str, Any], verb: Callable[[Any, Any], Any]
) -> None:
    mq = AsyncClient(server, timeout=20, **options)
    await mq.subscribe("orders")
    with pytest.raises(Unreachable, match="the client is closed"):
        await closed_in_an_asyncio_transaction(mq, verb)


def test_a_block_whose_client_is_closed_settles_nothing(server: str, ada: dict[str, Any]) -> None:
    with Client(server) as shop:
        for block in (lambda mq: mq.consume("orders"), lambda mq: mq.listen("orders")):
            mq = Client(server, timeout=20, **ada)
            mq.subscribe("orders")
            shop.put("orders", b"1")
            begun = block(mq)
            carried_out(begun)
            mq.close()
            with pytest.raises(Unreachable, match="the client is closed"):
                ended(begun)
            with Client(server, timeout=20, **ada) as again:
                assert len(again.get("orders")) == 1


async def test_a_block_whose_asyncio_client_is_closed_settles_nothing(
    server: str, ada: dict[str, Any]
) -> None:
    with Client(server) as shop:
        for block in (lambda mq: mq.consume("orders"), lambda mq: mq.listen("orders")):
            mq = AsyncClient(server, timeout=20, **ada)
            await mq.subscribe("orders")
            shop.put("orders", b"1")
            begun = block(mq)
            await awaited(begun)
            await mq.close()
            with pytest.raises(Unreachable, match="the client is closed"):
                await ended(begun)
            async with AsyncClient(server, timeout=20, **ada) as again:
                assert len(await again.get("orders")) == 1


def test_a_receipt_that_came_before_the_close_is_there_after_it(server: str) -> None:
    with Client(server, timeout=20) as mq:
        mq.subscribe("orders")
        pending = mq.put("orders", b"1", wait=False)
    assert pending.result().offset == 0


def test_a_receipt_that_did_not_come_before_the_close_never_comes(tmp_path: Path) -> None:
    mq = Client("tcp://127.0.0.1:1", id="ada", state=tmp_path / "ada", timeout=0.1)
    pending = mq.put("orders", b"1", wait=False)
    mq.close()
    with pytest.raises(Unreachable, match="the client is closed"):
        pending.result()


# Threads


WAITS: dict[str, Callable[[Client], Any]] = {
    "get": lambda mq: mq.get("orders", wait=600),
    "consume": lambda mq: mq.consume("orders", wait=600).__enter__(),
    "listen": lambda mq: next(mq.listen("orders", wait=600), "it ended"),
    "ends": lambda mq: mq.ends([("orders", 0)], wait=600),
}


@pytest.mark.parametrize("verb", WAITS.values(), ids=WAITS)
def test_who_waits_while_another_thread_closes_the_client_is_told_so(
    server: str, options: dict[str, Any], verb: Callable[[Client], Any]
) -> None:
    mq = Client(server, timeout=20, **options)
    mq.subscribe("orders")
    errors: list[object] = []

    def waiting() -> None:
        try:
            errors.append(verb(mq))
        except OnceMQError as error:
            errors.append(error)

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    while not mq._turns._at_socket:
        thread.join(0.001)
    mq.close()
    thread.join(30)
    assert [str(each) for each in errors] == ["the client is closed: make another one"]


def test_who_waits_for_a_turn_to_get_is_told_of_the_close(server: str) -> None:
    """The block that is in the way may never end."""
    mq = Client(server, timeout=20)
    mq.subscribe("orders")
    mq.put("orders", b"1")
    block = mq.consume("orders")
    block.__enter__()
    errors: list[object] = []

    def waiting() -> None:
        try:
            errors.append(mq.get("orders"))
        except OnceMQError as error:
            errors.append(error)

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    while not mq._turns.getting._waiting:
        thread.join(0.001)
    mq.close()
    thread.join(30)
    assert [str(each) for each in errors] == ["the client is closed: make another one"]
    with pytest.raises(Unreachable):
        block.__exit__(None, None, None)


async def test_a_task_that_waits_for_its_turn_to_get_is_told_of_the_close(server: str) -> None:
    mq = AsyncClient(server, timeout=20)
    await mq.subscribe("orders")
    await mq.put("orders", b"1")
    block = mq.consume("orders")
    await block.__aenter__()
    getting = asyncio.create_task(mq.get("orders"), context=contextvars.Context())
    await asyncio.sleep(0)
    assert len(mq._turns.getting._waiting) == 1
    await mq.close()
    done, _ = await asyncio.wait([getting], timeout=30)
    assert [said_so(each.exception()) for each in done] == [True]
    with pytest.raises(Unreachable):
        await block.__aexit__(None, None, None)
