"""What either client does around its verbs: how long it waits, what it refuses, what it lets go."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq import (
    AsyncClient,
    Client,
    Corrupt,
    Fenced,
    InvalidRequest,
    Unreachable,
    Unwanted,
    testing,
)
from oncemq.client.aio import base as awaited_base
from oncemq.client.blocking import base as blocking_base
from oncemq.client.verbs import columns
from oncemq.protocol.client_replies import ClientList
from oncemq.protocol.names import Offset, TopicId
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, PutAccepted, Result
from oncemq.wire import codec
from tests.integration.conftest import Connect

LONG = 600.0  # seconds; longer than any of these clients waits for a server that is away


def inside(client: Any) -> Any:
    """The client itself, where it is driven from another thread."""
    return getattr(client, "_client", client)


def waiting(client: Any, ready: Callable[[], bool]) -> None:
    """Wait as a verb of this client does."""
    answer = inside(client)._turns.wait_until(ready, 5.0, "what never comes")
    if inspect.isawaitable(answer):
        client._run(answer)


@pytest.fixture
def mq(server: str, connect: Connect) -> Any:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    return mq


def ids(messages: Any) -> list[str]:
    return [each.id for each in messages]


# A server that lies


PUTS: dict[str, Callable[[Any], Any]] = {
    "put": lambda mq: mq.put("orders", b"1"),
    "put_many": lambda mq: mq.put_many("orders", [b"1", b"2"]),
    "a put under a key": lambda mq: mq.put("orders", b"1", idempotency_key="k"),
}


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
@pytest.mark.parametrize("count", [0, 3, 2**63])
def test_a_receipt_for_other_messages_is_not_believed(
    mq: Any, put: Callable[[Any], Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = codec.decode_reply

    def lying(frames: Any) -> Any:
        token, reply, bodies = honest(frames)
        if isinstance(reply, PutAccepted):
            reply = msgspec.structs.replace(reply, count=count)
        return token, reply, bodies

    monkeypatch.setattr(codec, "decode_reply", lying)
    with pytest.raises(Corrupt, match=f"the server gave a receipt for {count}: nobody knows"):
        put(mq)
    monkeypatch.undo()
    with pytest.raises(Corrupt):
        mq.status()


@pytest.mark.parametrize(
    "results",
    [
        (),
        (Result("orders", TopicId(1), Offset(0), 1),),
        (Result("bills", TopicId(2), Offset(0), 0),),
    ],
    ids=["none", "of one topic", "of no message"],
)
def test_receipts_of_a_commit_for_other_messages_are_not_believed(
    mq: Any, results: tuple[Result, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.subscribe("orders")
    mq.subscribe("bills")
    honest = codec.decode_reply

    def lying(frames: Any) -> Any:
        token, reply, bodies = honest(frames)
        if isinstance(reply, CommitDone):
            reply = msgspec.structs.replace(reply, results=results)
        return token, reply, bodies

    monkeypatch.setattr(codec, "decode_reply", lying)
    with pytest.raises(Corrupt, match=r"the server gave receipts for .*: nobody knows"):
        mq.put(["orders", "bills"], b"1")
    monkeypatch.undo()
    with pytest.raises(Corrupt):
        mq.status()


ASKED: dict[str, Callable[[Any], Any]] = {
    **PUTS,
    "put to several topics": lambda mq: mq.put(["orders", "bills"], b"1"),
    "get": lambda mq: mq.get("orders"),
    "get of any topic": lambda mq: mq.get(),
    "consume": lambda mq: mq.consume("orders", wait=0).__enter__(),
    "listen": lambda mq: next(iter(mq.listen("orders"))),
    "read": lambda mq: mq.read("orders", 0),
    "subscribe": lambda mq: mq.subscribe("bills"),
    "unsubscribe": lambda mq: mq.unsubscribe("orders"),
    "topics": lambda mq: mq.topics(),
    "topic": lambda mq: mq.topic("orders"),
    "create_topic": lambda mq: mq.create_topic("bills"),
    "subscriptions": lambda mq: mq.subscriptions(),
    "status": lambda mq: mq.status(),
    "ends": lambda mq: mq.ends([("orders", 0)]),
}


@pytest.mark.parametrize("verb", ASKED.values(), ids=ASKED)
def test_an_answer_to_something_else_is_not_believed(
    mq: Any, verb: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.subscribe("orders")
    honest = codec.decode_reply

    def lying(frames: Any) -> Any:
        token, _, _ = honest(frames)
        return token, ClientList((), more=False), ()

    monkeypatch.setattr(codec, "decode_reply", lying)
    with pytest.raises(Corrupt, match="the server answered ClientList: nobody knows"):
        verb(mq)
    monkeypatch.undo()
    with pytest.raises(Corrupt):
        mq.status()


# Waiting


def consumed(mq: Any) -> list[str]:
    with mq.consume("orders", wait=LONG) as messages:
        return ids(messages)


WAITS: dict[str, Callable[[Any], Any]] = {
    "get": lambda mq: ids(mq.get("orders", wait=LONG)),
    "consume": consumed,
    "listen": lambda mq: ids(islice(mq.listen("orders", wait=LONG), 1)),
    "ends": lambda mq: [f"{each.name}@{each.end - 1}" for each in mq.ends(ENDS, wait=LONG)],
    "watch": lambda mq: [f"{each.name}@0" for each in mq.watch(ENDS, wait=LONG).topics],
}
ENDS = [("orders", 7)]


@pytest.mark.parametrize("verb", WAITS.values(), ids=WAITS)
def test_who_waits_longer_than_the_timeout_is_given_what_comes(
    verb: Callable[[Any], Any], server: str, connect: Connect
) -> None:
    """The timeout is for the server's answer: it begins when the wait is over."""
    mq = connect(server, timeout=10)
    mq.subscribe("orders")
    mq.put("orders", b"1")
    assert verb(mq) == ["orders@0"]


def test_who_waits_while_the_client_fails_is_told_why(mq: Any) -> None:
    error = Fenced("a newer client uses this id")
    inside(mq)._engine.fail(error)
    with pytest.raises(Fenced, match="newer client"):
        waiting(mq, lambda: False)
    for verb in (mq.flush, lambda: mq.put("orders", b"1", idempotency_key="k")):
        with pytest.raises(Fenced, match="newer client"):
            verb()


def test_an_error_that_is_raised_again_and_again_does_not_grow(mq: Any) -> None:
    """Whoever asks a client that ended once a second must not fill the memory with frames."""
    inside(mq)._engine.fail(Fenced("a newer client uses this id"))

    def frames() -> int:
        with pytest.raises(Fenced) as raised:
            mq.get("orders")
        return len(raised.traceback)

    assert frames() == frames()


def test_who_waits_when_the_client_is_closed_is_told_so(server: str, connect: Connect) -> None:
    mq = connect(server)
    mq.subscribe("orders")
    inside(mq)._turns.closed = True
    with pytest.raises(Unreachable, match="the client is closed"):
        waiting(mq, lambda: False)
    inside(mq)._turns.closed = False


# Listening


@pytest.mark.parametrize("name", ["ada", None])
def test_a_message_is_settled_when_the_next_is_asked_for_and_leaving_is_said(
    server: str, connect: Connect, name: str | None
) -> None:
    mq = connect(server, name)
    mq.subscribe("orders")
    mq.put_many("orders", [b"0", b"1", b"2"])
    listening = mq.listen("orders")
    assert ids(islice(listening, 2)) == ["orders@0", "orders@1"]
    assert mq.status()["listening"] == 1
    listening.close()
    assert mq.status()["listening"] == 0
    assert ids(mq.get("orders", limit=9)) == ["orders@1", "orders@2"]


# Refusals


@pytest.mark.parametrize("options", [{"wait": False}, {"idempotency_key": "k"}])
def test_a_put_to_several_topics_waits_and_has_no_key(mq: Any, options: dict[str, Any]) -> None:
    mq.create_topic("log", Retention(forever=True))
    with pytest.raises(InvalidRequest, match="several topics"):
        mq.put(["orders", "log"], b"1", **options)
    assert [mq.topic(name).topic.end for name in ("orders", "log")] == [0, 0]


def test_a_topic_whose_name_cannot_be_is_refused(mq: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        mq.create_topic("x" * 1_000)
    assert refused.value.code == "name_invalid"


# What is given up


def test_a_stage_that_is_dropped_is_given_up_at_the_server_at_once(server: str) -> None:
    with Client(server, timeout=20) as mq:
        stage = mq.stage()
        stage.put_many([b"a"])
        stage.close()
        assert int(mq.status()["stage_bytes"]) > 0
        sends = mq.counters["sends"]
        stage.drop()
        assert mq.counters["sends"] == sends + 1
        assert mq.status()["stage_bytes"] == 0


async def test_a_stage_that_is_dropped_is_given_up_by_asyncio_too(server: str) -> None:
    async with AsyncClient(server, timeout=20) as mq:
        stage = mq.stage()
        await stage.put_many([b"a"])
        await stage.close()
        assert int((await mq.status())["stage_bytes"]) > 0
        sends = mq.counters["sends"]
        stage.drop()
        assert mq.counters["sends"] == sends + 1
        assert (await mq.status())["stage_bytes"] == 0


@pytest.fixture
def five(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server with five messages on a topic, each too large to be read with another."""
    monkeypatch.setattr(columns, "READ_BYTES", 1_000)
    with Client(server, timeout=20) as mq:
        mq.create_topic("orders", Retention(forever=True))
        for number in range(5):
            mq.put("orders", b"%d" % number * 600)
    return server


def test_the_next_columns_come_while_these_are_worked_on_and_are_dropped_with_the_reader(
    five: str,
) -> None:
    with Client(five, timeout=20) as mq:
        reading = mq.read_columns("orders", 0, 5)
        assert (next(reading).first_offset, mq.counters["sends"]) == (0, 2)
        assert [each.first_offset for each in reading] == [1, 2, 3, 4]
        for _ in range(9):  # now and then the answer is there already
            reading = mq.read_columns("orders", 0, 5)
            assert next(reading).first_offset == 0
            del reading
            assert len(mq._engine.exchanges) == 0


async def test_the_same_columns_come_to_asyncio(five: str) -> None:
    async with AsyncClient(five, timeout=20) as mq:
        reading = mq.read_columns("orders", 0, 5)
        assert ((await anext(reading)).first_offset, mq.counters["sends"]) == (0, 2)
        assert [each.first_offset async for each in reading] == [1, 2, 3, 4]
        for _ in range(9):  # now and then the answer is there already
            reading = mq.read_columns("orders", 0, 5)
            assert (await anext(reading)).first_offset == 0
            await reading.aclose()
            assert len(mq._engine.exchanges) == 0


# Receipts that are awaited


async def looked_at_by_awaiting(future: asyncio.Future[Any]) -> None:
    with pytest.raises(Unwanted):
        await future


async def looked_at_by_its_result(future: asyncio.Future[Any]) -> None:
    with pytest.raises(Unwanted):
        future.result()


async def looked_at_by_its_exception(future: asyncio.Future[Any]) -> None:
    assert isinstance(future.exception(), Unwanted)


@pytest.mark.parametrize(
    "look", [looked_at_by_awaiting, looked_at_by_its_result, looked_at_by_its_exception]
)
async def test_a_put_whose_future_was_looked_at_is_not_told_of_again(
    server: str, look: Callable[[asyncio.Future[Any]], Any]
) -> None:
    async with AsyncClient(server, timeout=20) as mq:
        seen = await mq.put("orders", b"1", wait=False, required=True)
        await asyncio.wait([seen])
        await look(seen)
        await mq.flush()
        unseen = await mq.put("orders", b"1", wait=False, required=True)
        await asyncio.wait([unseen])
        with pytest.raises(Unwanted):
            await mq.flush()


async def test_a_future_that_is_cancelled_waits_no_longer_and_the_put_goes_on(server: str) -> None:
    async with AsyncClient(server, timeout=20) as mq:
        await mq.subscribe("orders")
        future: Any = await mq.put("orders", b"1", wait=False)
        assert future.cancel()
        await asyncio.wait([future._waiting])
        assert (future.cancelled(), future._waiting.cancelled()) == (True, True)
        await mq.flush()
        assert ids(await mq.get("orders")) == ["orders@0"]


async def test_a_future_whose_loop_ends_is_cancelled(server: str) -> None:
    async with AsyncClient(server, timeout=20) as mq:
        await mq.subscribe("orders")
        future: Any = await mq.put("orders", b"1", wait=False)
        future._waiting.cancel()
        await asyncio.wait([future])
        assert future.cancelled()


def test_closing_waits_for_the_last_puts_and_says_what_became_of_them(
    connect: Connect, server: str
) -> None:
    client = connect(server)
    client.put("orders", b"x", required=True, wait=False)
    with pytest.raises(Unwanted):
        client.close()


def test_closing_waits_for_a_server_that_is_away_while_a_put_is_recorded_nowhere(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base in (awaited_base, blocking_base):
        monkeypatch.setattr(base, "AWAY_SECONDS", 0.0)
    address = f"ipc://{tmp_path}/once"
    client = connect(address)
    client.put("orders", b"x", required=True, wait=False)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(client.close)
        with testing.server(bind=address), pytest.raises(Unwanted):
            closing.result()


def test_a_block_that_fails_ends_with_its_own_error_whatever_became_of_its_puts(
    connect: Connect, tmp_path: Path
) -> None:
    def put_and_fail() -> None:
        with connect(f"ipc://{tmp_path}/nobody") as client:
            client.put("orders", b"x", wait=False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        put_and_fail()


def test_who_waits_for_a_receipt_is_given_no_promise_of_one(
    connect: Connect, tmp_path: Path
) -> None:
    client = connect(f"ipc://{tmp_path}/nobody", "shop", timeout=0.1)
    client.put("orders", b"1", wait=False)  # others may join its batch
    with pytest.raises(Unreachable):
        client.put("orders", b"2")
