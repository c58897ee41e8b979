"""The relay against a real server and real databases: what commits is published, once, in order."""

import asyncio
import logging
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from oncemq import Client, DatabaseRefused, Fenced, Relay
from oncemq.protocol.records import Retention
from oncemq.relay import session
from oncemq.relay.database import RelayDatabase
from oncemq.testing.chaos import Chaos
from tests.e2e.processes import until
from tests.relay.conftest import Homes
from tests.relay.homes import Home


def got(reader: Client, count: int) -> list[bytes]:
    """So many messages, and then no more."""
    found: list[bytes] = []
    while len(found) < count:
        messages = reader.get("orders", limit=1000, wait=30)
        assert messages, f"only {len(found)} of {count} came"
        found += [message.payload for message in messages]
    return found + [message.payload for message in reader.get("orders", limit=1000)]


KINDS = (
    "sqlite3 sqlalchemy-sqlite psycopg sqlalchemy-psycopg psycopg-async asyncpg sqlalchemy-asyncpg"
).split()


@pytest.mark.parametrize("kind", KINDS)
def test_what_commits_is_published_and_freed(
    kind: str, make_home: Homes, oncemq_server: str, reader: Client
) -> None:
    if kind == "sqlalchemy-asyncpg":
        pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs sqlalchemy[asyncio]")
    home = make_home(kind)
    home.write("orders", [b"before"])
    with Relay(home.connect, server=oncemq_server):
        home.write("orders", [b"never"], commit=False)
        home.write("orders", [b"1", b"2"])
        assert got(reader, 3) == [b"before", b"1", b"2"]
        home.write("orders", [b"3"])
        assert got(reader, 1) == [b"3"]
        until(lambda: home.left == 0, what="the rows are freed")


def test_keys_and_headers_go_along(home: Home, oncemq_server: str, reader: Client) -> None:
    import oncemq

    with closing(home.writer()) as connection:
        oncemq.outbox(connection).put("orders", b"", key=b"k", headers={"a": "ü"})
        connection.execute("INSERT INTO oncemq_outbox (topic, payload) VALUES ('orders', '2')")
    with Relay(home.connect, server=oncemq_server):
        first, second = reader.get("orders", wait=30) + reader.get("orders", wait=30)
    assert (first.payload, first.key, first.headers) == (b"", b"k", {"a": "ü"})
    assert (second.payload, second.key, second.headers) == (b"2", None, {})


async def test_a_relay_lives_beside_asyncio(
    make_home: Homes, oncemq_server: str, reader: Client
) -> None:
    home = make_home("asyncpg")
    async with Relay(home.connect, server=oncemq_server):
        home.write("orders", [b"1"])
        assert await asyncio.to_thread(got, reader, 1) == [b"1"]


def test_many_topics_take_turns(
    make_home: Homes, oncemq_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ACTIVE_MAX", 3)
    home = make_home("sqlite3")
    topics = [f"topic {number}" for number in range(10)]
    with Client(oncemq_server) as client:
        for topic in topics:
            client.create_topic(topic, Retention(forever=True))
            home.write(topic, [b"%d" % number for number in range(20)])
        with Relay(home.connect, server=oncemq_server):
            until(lambda: home.left == 0, what="all are published")
        for topic in topics:
            payloads = [message.payload for message in client.read(topic, 0, limit=100)]
            assert payloads == [b"%d" % number for number in range(20)]


def test_a_relay_waits_for_its_server(home: Home, tmp_path: Any) -> None:
    from oncemq.testing import server

    with server(tmp_path / "data") as address, Client(address) as client:
        client.create_topic("orders", Retention(forever=True))
    with Relay(home.connect, server=address):
        home.write("orders", [b"1"])
        with server(tmp_path / "data", bind=address):
            until(lambda: home.left == 0, what="it is published")


def test_of_two_relays_one_works_and_the_other_takes_over(
    home: Home, oncemq_server: str, reader: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncemq.relay")
    with Relay(home.connect, server=oncemq_server) as first:
        home.write("orders", [b"1"])
        assert got(reader, 1) == [b"1"]
        with Relay(home.connect, server=oncemq_server):
            until(lambda: "another relay is at work" in caplog.text, what="the second waits")
            first.stop()
            home.write("orders", [b"2"])
            assert got(reader, 1) == [b"2"]


class Unlocked(RelayDatabase):
    """A desk at which everyone is the one relay."""

    def lock(self) -> bool:
        return True


@pytest.mark.parametrize("own_ids", [False, True], ids=["fenced", "numbers alone"])
def test_even_relays_that_all_send_publish_each_row_once(
    home: Home,
    oncemq_server: str,
    reader: Client,
    own_ids: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ids of their own the server fences none of them: the numbers alone must do."""
    monkeypatch.setattr("oncemq.relay.relay.RelayDatabase", Unlocked)
    monkeypatch.setattr("oncemq.relay.relay.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("oncemq.relay.tables.ROWS_MAX", 7)
    stop = threading.Event()

    def keep_relaying(name: str) -> None:
        while not stop.is_set():
            with suppress(Fenced), Relay(home.connect, server=oncemq_server, id=name) as relay:
                while not stop.wait(0.01) and relay.failure is None:
                    pass

    names = [f"relay {number}" if own_ids else "relay" for number in range(2)]
    threads = [threading.Thread(target=keep_relaying, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    try:
        for number in range(30):
            home.write("orders", [b"%d" % (number * 5 + each) for each in range(5)])
        assert got(reader, 150) == [b"%d" % number for number in range(150)]
        until(lambda: home.left == 0, what="the rows are freed")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    ("connect", "words"),
    [
        (lambda: object(), "not a connection we know"),
        (lambda: sqlite3.connect(":memory:"), "give it a file"),
    ],
)
def test_a_connection_that_cannot_be_used_ends_the_relay(connect: Any, words: str) -> None:
    with pytest.raises(DatabaseRefused, match=words):
        Relay(connect).run()


def test_a_database_that_comes_back_is_gone_on_with(
    make_home: Homes, oncemq_server: str, reader: Client, caplog: pytest.LogCaptureFixture
) -> None:
    home = make_home("psycopg")
    with Relay(home.connect, server=oncemq_server):
        home.write("orders", [b"1"])
        assert got(reader, 1) == [b"1"]
        home.look(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
        )
        home.write("orders", [b"2"])
        assert got(reader, 1) == [b"2"]
    assert "database away" in caplog.text


@pytest.mark.slow
def test_a_server_that_crashes_and_loses_answers_changes_nothing(
    make_home: Homes, oncemq_server: str, reader: Client, oncemq_chaos: Chaos
) -> None:
    home = make_home("sqlite3")
    with Relay(home.connect, server=oncemq_server):
        for number, strike in enumerate(
            (
                oncemq_chaos.crash_after_append,
                oncemq_chaos.crash_before_sync,
                oncemq_chaos.crash_after_sync,
                lambda: oncemq_chaos.drop_replies(times=1),
                lambda: oncemq_chaos.duplicate_requests(times=3),
            )
        ):
            strike()
            home.write("orders", [b"%d.%d" % (number, each) for each in range(3)])
            until(lambda: home.left == 0, what="they are published")
            oncemq_chaos.calm()
        expected = [b"%d.%d" % (number, each) for number in range(5) for each in range(3)]
        assert got(reader, 15) == expected
    assert sum(map(bool, oncemq_chaos.injected.values())) == 5, oncemq_chaos


def test_a_relay_that_ended_has_ended_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it still does: what it failed with is raised here, and not lost."""
    ended: list[str] = []

    class Late(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            super().join(timeout)
            ended.append("joined")

    monkeypatch.setattr("oncemq.relay.relay.threading.Thread", Late)
    monkeypatch.setattr(Relay, "_run", lambda relay: None)
    with Relay(lambda: sqlite3.connect(tmp_path / "shop.db"), server="tcp://127.0.0.1:1"):
        pass
    assert ended == ["joined"]
