"""Handlers with `into=`: effect and cursor in one commit of the user's database."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq import App, Client, ConfigError, DatabaseRefused
from oncemq.apps import dead_letter_admin
from oncemq.testing import Chaos
from tests.databases.postgres import Postgres
from tests.e2e.processes import until


class Order(msgspec.Struct, frozen=True):
    id: int


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a table that keeps duplicates, so that they would show."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (place INTEGER PRIMARY KEY, id INTEGER)")
    return path


def order(number: int) -> bytes:
    return msgspec.json.encode(Order(number))


def rows(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [number for (number,) in connection.execute("SELECT id FROM orders ORDER BY place")]
    finally:
        connection.close()


def insert(order: Order, connection: Any) -> None:
    connection.execute("INSERT INTO orders (id) VALUES (?)", (order.id,))


async def insert_awaitably(order: Order, connection: Any) -> None:
    insert(order, connection)


def insert_many(orders: list[Order], connection: Any) -> None:
    many = [(each.id,) for each in orders]
    connection.executemany("INSERT INTO orders (id) VALUES (?)", many)


@pytest.mark.parametrize(
    ("way", "function"),
    [
        ("url", insert),
        ("path", insert_many),
        ("function", insert_awaitably),
        ("connection", insert),
    ],
)
def test_what_a_handler_writes_is_there_once(
    app: App, mq: Client, path: Path, function: Any, way: str
) -> None:
    given = sqlite3.connect(path, check_same_thread=False)
    ways: dict[str, Any] = {
        "url": f"sqlite:///{path}",
        "path": str(path),
        "function": lambda: sqlite3.connect(path),
        "connection": given,
    }
    app.handler("orders", into=ways[way], limit=7)(function)
    for start in range(0, 40, 20):
        with app.running():
            mq.put_many("orders", [order(n) for n in range(start, start + 20)])
            until(lambda end=start + 20: len(rows(path)) == end)
    assert rows(path) == list(range(40))
    assert given.execute("SELECT 1").fetchall() == [(1,)], "a connection that was given stays open"
    given.close()


async def insert_with_psycopg(order: Order, connection: Any) -> None:
    await connection.execute("INSERT INTO orders (id) VALUES (%s)", (order.id,))


async def insert_with_asyncpg(order: Order, connection: Any) -> None:
    await connection.execute("INSERT INTO orders (id) VALUES ($1)", order.id)


def insert_blocking(order: Order, connection: Any) -> None:
    connection.execute("INSERT INTO orders (id) VALUES (%s)", (order.id,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "function"),
    [
        ("postgresql", insert_blocking),
        ("postgresql+psycopg", insert_with_psycopg),
        ("postgresql+asyncpg", insert_with_asyncpg),
    ],
)
def test_a_url_of_postgresql_is_opened_with_the_library_that_fits(
    app: App, mq: Client, postgres: Postgres, scheme: str, function: Any
) -> None:
    import psycopg

    url = postgres.url(schema=postgres.new_schema())
    with psycopg.connect(url, autocommit=True) as watch:
        watch.execute("CREATE TABLE orders (place SERIAL, id INTEGER)")
        app.handler("orders", into=url.replace("postgresql", scheme, 1))(function)
        with app.running():
            mq.put_many("orders", [order(n) for n in range(20)])
            until(lambda: watch.execute("SELECT count(*) FROM orders").fetchone() == (20,))
        found = watch.execute("SELECT id FROM orders ORDER BY place").fetchall()
    assert [number for (number,) in found] == list(range(20))


def test_a_message_that_fails_among_others_takes_none_of_them_along(
    app: App, mq: Client, path: Path
) -> None:
    @app.handler("orders", into=str(path), retries=1, backoff=0.001)
    def handle(order: Order, connection: sqlite3.Connection) -> None:
        insert(order, connection)
        if order.id == 5:
            raise ValueError("not five")

    with app.running():
        mq.put_many("orders", [order(n) for n in range(10)])
        until(lambda: len(rows(path)) == 9)
    assert rows(path) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert (letter.origin, letter.attempts) == ("orders@5", 2)


def test_a_commit_that_fails_is_a_failure_of_the_message(app: App, mq: Client, path: Path) -> None:
    """A constraint that is looked at when the transaction ends, and not before."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE teas (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO teas VALUES (1)")
        connection.execute(
            "CREATE TABLE cups (tea INTEGER REFERENCES teas (id) DEFERRABLE INITIALLY DEFERRED)"
        )

    def connect() -> sqlite3.Connection:
        opened = sqlite3.connect(path)
        opened.execute("PRAGMA foreign_keys = ON")
        return opened

    @app.handler("orders", into=connect, retries=0)
    def handle(order: Order, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO cups VALUES (?)", (order.id,))
        insert(order, connection)

    with app.running():
        mq.put_many("orders", [order(n) for n in (1, 2, 1)])
        until(lambda: rows(path) == [1, 1])
    (letter,) = dead_letter_admin.open_letters(mq, "orders.dead")
    assert letter.origin == "orders@1"
    assert "FOREIGN KEY constraint failed" in letter.reason


def test_a_database_that_is_away_is_no_messages_fault(app: App, mq: Client, path: Path) -> None:
    opened: list[sqlite3.Connection] = []
    away = threading.Event()
    waited = threading.Event()

    def connect() -> sqlite3.Connection:
        if away.is_set():
            waited.set()
            raise sqlite3.OperationalError("no database here")
        opened.append(sqlite3.connect(path, check_same_thread=False))
        return opened[-1]

    @app.handler("orders", into=connect, retries=0)
    def handle(order: Order, connection: sqlite3.Connection) -> None:
        if order.id == 3 and len(opened) == 1:
            away.set()
            connection.close()  # as a server that went away
        insert(order, connection)

    with app.running():
        mq.put_many("orders", [order(n) for n in range(6)])
        waited.wait(30)
        away.clear()
        until(lambda: len(rows(path)) == 6)
    assert rows(path) == list(range(6))
    assert "orders.dead" not in [each.name for each in mq.topics()]
    assert len(opened) == 2


def test_a_given_connection_that_was_lost_stops_the_app(app: App, mq: Client, path: Path) -> None:
    connection = sqlite3.connect(path, check_same_thread=False)

    @app.handler("orders", into=connection)
    def handle(order: Order, connection: sqlite3.Connection) -> None:
        connection.close()
        raise ValueError("where is it?")

    def run() -> None:
        with app.running():
            mq.put("orders", order(0))
            until(lambda: "shop-app" not in [each.name for each in threading.enumerate()])

    with pytest.raises(DatabaseRefused, match="give a function that opens one, or a URL"):
        run()


@pytest.mark.parametrize(
    ("into", "function", "said"),
    [
        ("mysql://shop", insert, "no database is known as 'mysql'; write sqlite:///shop.db"),
        ("postgresql+asyncpg://shop", insert, "'asyncpg' does not block"),
        (7, insert, "is not a connection we know"),
    ],
)
def test_what_is_no_database_is_refused_at_once(into: Any, function: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        App(id="shop").handler("orders", into=into)(function)


def test_two_handlers_may_not_share_a_connection(path: Path) -> None:
    app = App(id="shop")
    connection = sqlite3.connect(path)
    app.handler("orders", into=connection)(insert)
    with pytest.raises(ConfigError, match="their transactions would mix"):
        app.handler("teas", into=connection)(insert)
    connection.close()


@pytest.mark.slow
def test_rows_are_messages_through_all_chaos(
    app: App, mq: Client, path: Path, oncemq_chaos: Chaos
) -> None:
    app.handler("orders", into=str(path), limit=10)(insert)
    with app.running():
        oncemq_chaos.duplicate_requests(0.2)
        oncemq_chaos.delay(0.005, 0.2)
        oncemq_chaos.drop_replies(0.5, times=2)
        oncemq_chaos.crash_after_append(0.02, times=3)
        oncemq_chaos.crash_before_sync(0.02, times=3)
        oncemq_chaos.crash_after_sync(0.02, times=3)
        for n in range(300):
            mq.put("orders", order(n))
        oncemq_chaos.calm()
        until(lambda: len(rows(path)) >= 300)
    assert rows(path) == list(range(300))
    assert sum(oncemq_chaos.injected.values()) > 20, oncemq_chaos


def test_a_database_that_is_locked_before_any_message_is_waited_for(
    app: App, mq: Client, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oncemq.app")
    other = sqlite3.connect(path)
    other.execute("PRAGMA journal_mode=WAL")  # else this test's own reading locks the handler out
    other.execute("BEGIN EXCLUSIVE")
    app.handler("orders", into=lambda: sqlite3.connect(path, timeout=0))(insert)
    with app.running():
        until(lambda: "handler waits" in caplog.text)
        mq.put("orders", order(1))
        other.rollback()
        until(lambda: len(rows(path)) == 1)
    other.close()
    assert "handler goes on" in caplog.text
    assert "handler failed" not in caplog.text
