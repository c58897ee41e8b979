"""A put into the outbox is a write like the user's own: with every connection we know."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq import DatabaseRefused, InvalidRequest
from oncemq.wire.batch import Headers
from tests.databases.desks import Desk

ROWS = "SELECT topic, payload, key, headers FROM oncemq_outbox ORDER BY id"
EXPLICIT = ("asyncpg", "psycopg-autocommit", "sqlite3-none")  # nothing begins by itself


def begin(desk: Desk, connection: Any) -> None:
    """A transaction of the user's own, where the library does not begin one by itself."""
    if desk.kind in EXPLICIT:
        desk.do(connection, "BEGIN")


def end(desk: Desk, connection: Any, how: str) -> None:
    if desk.kind in EXPLICIT:
        desk.do(connection, how.upper())
    else:
        desk.run(getattr(connection, how)())


def put(desk: Desk, connection: Any, topic: str, payload: bytes, **how: Any) -> None:
    desk.run(oncemq.outbox(connection).put(topic, payload, **how))


@pytest.fixture
def connection(desk: Desk) -> Any:
    """A connection to a database with an outbox, and a table of the user's own."""
    connection = desk.connect()
    desk.run(oncemq.outbox(connection).create())
    desk.do(connection, "CREATE TABLE IF NOT EXISTS orders (number integer)")
    desk.commit(connection)
    return connection


def rows(desk: Desk) -> list[tuple[Any, ...]]:
    return [
        tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in row)
        for row in desk.look(ROWS)
    ]


def test_what_is_put_commits_with_the_users_own_writes(desk: Desk, connection: Any) -> None:
    begin(desk, connection)
    desk.do(connection, "INSERT INTO orders VALUES (1)")
    put(desk, connection, "orders", b"one", key=b"k", headers={"to": "café"})
    assert rows(desk) == []
    end(desk, connection, "commit")
    assert rows(desk) == [("orders", b"one", b"k", '{"to":"café"}')]
    assert desk.look("SELECT number FROM orders") == [(1,)]


def test_what_is_rolled_back_was_never_put(desk: Desk, connection: Any) -> None:
    begin(desk, connection)
    desk.do(connection, "INSERT INTO orders VALUES (1)")
    put(desk, connection, "orders", b"one")
    end(desk, connection, "rollback")
    assert rows(desk) == []
    assert desk.look("SELECT number FROM orders") == []


def test_many_are_put_in_their_order(desk: Desk, connection: Any) -> None:
    begin(desk, connection)
    box = oncemq.outbox(connection)
    headers: list[Headers | None] = [None, {"a": "b"}]
    desk.run(box.put_many("orders", [b"1", b"2"], keys=[b"", None], headers=headers))
    desk.run(box.put_many("orders", []))
    end(desk, connection, "commit")
    assert rows(desk) == [
        ("orders", b"1", b"", None),
        ("orders", b"2", None, '{"a":"b"}'),
    ]


def test_without_an_outbox_the_way_to_one_is_named(desk: Desk) -> None:
    connection = desk.connect()
    with pytest.raises(DatabaseRefused, match=r"outbox\(connection\)\.create\(\)"):
        put(desk, connection, "orders", b"one")
    if desk.kind not in EXPLICIT:
        end(desk, connection, "rollback")


def test_the_tables_are_not_made_inside_a_transaction_of_the_users(
    desk: Desk, connection: Any
) -> None:
    begin(desk, connection)
    desk.do(connection, "INSERT INTO orders VALUES (1)")
    with pytest.raises(DatabaseRefused, match="commit it or roll it back first"):
        desk.run(oncemq.outbox(connection).create())
    end(desk, connection, "rollback")


@pytest.mark.parametrize(
    ("topic", "payload", "how", "error", "words"),
    [
        ("", b"", {}, InvalidRequest, "empty"),
        ("_system", b"", {}, InvalidRequest, "the system's"),
        ("orders", "text", {}, TypeError, "encode it first"),
        ("orders", b"", {"key": "text"}, TypeError, "encode it first"),
        ("orders", b"", {"headers": {"a": 1}}, TypeError, "names and values of text"),
    ],
)
def test_what_no_server_takes_is_refused_at_once(
    topic: str, payload: Any, how: dict[str, Any], error: type[Exception], words: str
) -> None:
    connection = sqlite3.connect(":memory:")
    oncemq.outbox(connection).create()
    with pytest.raises(error, match=words):
        oncemq.outbox(connection).put(topic, payload, **how)
    connection.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit= before 3.12")
def test_a_connection_that_is_always_in_a_transaction_will_do() -> None:
    connection = sqlite3.connect(":memory:", autocommit=False)  # pyright: ignore[reportCallIssue]
    connection.executescript(oncemq.outbox_schema("sqlite"))
    connection.commit()  # there the table, too, is made in a transaction
    oncemq.outbox(connection).put("orders", b"one")
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM oncemq_outbox").fetchone() == (0,)
    connection.close()


def test_the_schema_is_there_for_those_who_may_make_tables() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(oncemq.outbox_schema("sqlite"))
    oncemq.outbox(connection).put("orders", b"one")
    connection.close()
    assert "CREATE CONSTRAINT TRIGGER" in oncemq.outbox_schema("postgresql")
    with pytest.raises(ValueError, match="sqlite, postgresql"):
        oncemq.outbox_schema("mysql")


def test_a_put_that_the_database_refuses_raises_what_the_database_says(tmp_path: Path) -> None:
    path = tmp_path / "user.db"
    with closing(sqlite3.connect(path)) as owner:
        oncemq.outbox(owner).create()
    reading = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    refused = pytest.raises(sqlite3.OperationalError, match="readonly database")
    with closing(reading) as reader, refused:
        oncemq.outbox(reader).put("orders", b"x")
