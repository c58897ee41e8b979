"""Servers of which one leads, over real sockets: found within a second, and followed."""

import asyncio
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from queue import Queue

import pytest

from oncemq import AsyncClient, Client, testing
from oncemq.errors import Unreachable
from oncemq.protocol.replies import not_leader
from tests.harness.follower import follower

FOUND_SECONDS = 1.0


@contextmanager
def dead() -> Generator[str]:
    """A port at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def unreadable() -> Generator[str]:
    """The system takes connections, and nobody reads them: a process that is stopped."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(8)
        yield f"tcp://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def full() -> Generator[str]:
    """Not even the system answers: no place is left for a connection that nobody takes."""
    with socket.socket() as bound, ExitStack() as stack:
        bound.bind(("127.0.0.1", 0))
        bound.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(bound.getsockname())
        yield f"tcp://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def mute() -> Generator[str]:
    """It takes part in the handshake, and answers nothing."""
    with follower(None) as running:
        yield running.address


@contextmanager
def refusing() -> Generator[str]:
    """It follows, and knows of no leader."""
    with follower(not_leader()) as running:
        yield running.address


BAD: list[Callable[[], AbstractContextManager[str]]] = [dead, unreadable, full, mute, refusing]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("bad", BAD)
def test_the_leader_is_found_within_a_second(
    bad: Callable[[], AbstractContextManager[str]], place: int
) -> None:
    """One of three addresses is bad, one follows, and one leads; a new client, or one that knew."""
    with bad() as address, testing.server() as leader, follower(not_leader(leader, 3)) as other:
        servers = [address, other.address, leader]
        servers = servers[place:] + servers[:place]
        begun = time.monotonic()
        with Client(servers, timeout=10) as mq:
            mq.create_topic("orders")
            took = time.monotonic() - begun
    assert took < FOUND_SECONDS, took
    print(f"{bad.__name__} at {place}: {took * 1000:.0f} ms")


@pytest.mark.parametrize("bad", [dead, unreadable, full, mute])
def test_a_named_leader_that_is_gone_is_passed_over_within_so_long(
    bad: Callable[[], AbstractContextManager[str]],
) -> None:
    """Two followers: one still names the leader of before, one has heard of the new one."""
    with (
        bad() as gone,
        testing.server() as leader,
        follower(not_leader(gone, 3)) as old,
        follower(not_leader(leader, 4)) as new,
        Client([old.address, new.address, gone], timeout=10) as mq,
    ):
        begun = time.monotonic()
        mq.create_topic("orders")
        took = time.monotonic() - begun
    # Who was named as leader and lets the client in has as long as any server to answer.
    assert took < FOUND_SECONDS + (1.0 if bad is mute else 0.0), took
    print(f"{bad.__name__}: {took * 1000:.0f} ms")


def test_an_asyncio_client_follows_too() -> None:
    async def put(server: str) -> int | None:
        async with AsyncClient(server, timeout=10) as mq:
            await mq.subscribe("orders")
            return (await mq.put("orders", b"a")).offset

    with testing.server() as leader, follower(not_leader(leader, 3)) as other:
        assert asyncio.run(put(other.address)) == 0


def test_without_a_leader_the_users_timeout_holds_and_nobody_is_asked_in_a_hurry() -> None:
    with follower(not_leader()) as one, follower(not_leader()) as two:
        one.says = not_leader(two.address, 4)
        two.says = not_leader(one.address, 5)
        with Client([one.address, two.address], timeout=2) as mq:
            begun = time.monotonic()
            with pytest.raises(Unreachable, match="no leader found within 2 s") as raised:
                mq.create_topic("orders")
            assert time.monotonic() - begun < 3
        assert f"{one.address} is not the leader" in str(raised.value)
        assert one.asked + two.asked < 60


def test_all_verbs_go_on_when_the_leader_changes(tmp_path: Path) -> None:
    """The data of the first leader is the second's, as a replica of it would have it."""
    data, state, heard = tmp_path / "data", tmp_path / "state", Queue[str]()
    with ExitStack() as stack:
        with testing.server(data) as first:
            mq = stack.enter_context(Client(first, id="shop", state=state, timeout=15))
            ear = stack.enter_context(Client(first, id="ear", state=tmp_path / "ear", timeout=15))
            for topic in ("orders", "bills", "news"):
                mq.subscribe(topic)
            ear.subscribe("news")

            def listen() -> None:
                for message in ear.listen("news"):
                    heard.put(str(message.id))
                    if message.payload == b"last":
                        return

            listening = threading.Thread(target=listen, daemon=True)
            listening.start()
            mq.put("news", b"first")
            mq.put_many("orders", [b"a", b"b"])
            assert heard.get(timeout=10) == "news@0"
            database = sqlite3.connect(tmp_path / "shop.db")
            database.execute("create table seen (id text)")
            with mq.consume("orders", limit=1, into=database) as messages:
                database.executemany("insert into seen values (?)", [(m.id,) for m in messages])
        second = stack.enter_context(testing.server(data))
        stack.enter_context(follower(not_leader(second, 2), first))
        assert mq.put("orders", b"c").id == "orders@2"
        mq.put("news", b"last")
        for _ in range(2):  # the first has what was fetched ahead
            with mq.consume("orders", limit=9, wait=5, into=database) as messages:
                database.executemany("insert into seen values (?)", [(m.id,) for m in messages])
        with mq.transaction() as work:
            work.put("bills", b"for a")
        assert [m.payload for m in mq.get("bills", wait=5)] == [b"for a"]
        assert mq.put("orders", b"d", idempotency_key="d").duplicate is False
        assert mq.put("orders", b"d", idempotency_key="d").duplicate is True
        seen = [each for (each,) in database.execute("select id from seen")]
        assert seen == ["orders@0", "orders@1", "orders@2"]
        assert heard.get(timeout=10) == "news@1"
        listening.join(10)
        assert not listening.is_alive()
        database.close()
