"""PostgreSQL: ids, and even transaction ids, are not in the order of commits; what is published is.

Each test fails when rows are ordered by id, or by transaction id, or read with a cursor.
"""

from contextlib import closing
from typing import Any

import pytest

import oncemq
from oncemq import Client, Relay
from oncemq.protocol.records import Retention
from tests.e2e.processes import until
from tests.relay.books import Books
from tests.relay.conftest import Homes
from tests.relay.homes import Home
from tests.relay.test_relay import got


@pytest.fixture
def home(make_home: Homes) -> Home:
    return make_home("psycopg")


def put(connection: Any, payload: bytes) -> None:
    oncemq.outbox(connection).put("orders", payload)


def test_a_small_id_that_commits_late_is_not_lost(
    home: Home, oncemq_server: str, reader: Client
) -> None:
    with closing(home.writer()) as slow, Relay(home.connect, server=oncemq_server):
        slow.execute("BEGIN")
        put(slow, b"slow")
        home.write("orders", [b"quick"])
        assert got(reader, 1) == [b"quick"]
        until(lambda: home.left == 0, what="it is freed")
        slow.execute("COMMIT")
        assert got(reader, 1) == [b"slow"]


def test_a_transaction_comes_after_what_it_saw_though_it_began_first(
    home: Home, oncemq_server: str, reader: Client
) -> None:
    """Its transaction id is lower, and so is the id of its first row."""
    home.look("CREATE TABLE balance (amount integer)")
    home.look("INSERT INTO balance VALUES (0)")
    with closing(home.writer()) as early:
        early.execute("BEGIN")
        put(early, b"early, first row")
        with closing(home.writer()) as late:
            late.execute("BEGIN")
            late.execute("UPDATE balance SET amount = 1")
            put(late, b"late")
            late.execute("COMMIT")
        early.execute("UPDATE balance SET amount = amount + 1")  # it builds on the late one
        put(early, b"early, second row")
        early.execute("COMMIT")
    with Relay(home.connect, server=oncemq_server):
        assert got(reader, 3) == [b"late", b"early, first row", b"early, second row"]


def test_a_savepoint_that_was_rolled_back_leaves_nothing(
    home: Home, oncemq_server: str, reader: Client
) -> None:
    with closing(home.writer()) as connection:
        connection.execute("BEGIN")
        put(connection, b"1")
        connection.execute("SAVEPOINT here")
        put(connection, b"never")
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # its trigger has run already
        connection.execute("ROLLBACK TO here")
        put(connection, b"2")
        connection.execute("COMMIT")
    with Relay(home.connect, server=oncemq_server):
        assert got(reader, 2) == [b"1", b"2"]


def test_a_writer_finds_the_outbox_by_the_name_of_its_schema(
    home: Home, oncemq_server: str, reader: Client
) -> None:
    with closing(home.writer()) as connection:
        ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
        connection.execute("SET search_path = public")
        table = f"{schema}.oncemq_outbox"
        connection.execute(f"INSERT INTO {table} (topic, payload) VALUES ('orders', '1')")
    with Relay(home.connect, server=oncemq_server):
        assert got(reader, 1) == [b"1"]


def test_rows_that_no_trigger_saw_are_published(
    home: Home, oncemq_server: str, reader: Client
) -> None:
    with closing(home.writer()) as connection:
        connection.execute("SET session_replication_role = replica")  # as a restore does
        put(connection, b"1")
    assert home.look("SELECT place FROM oncemq_outbox") == [(0,)]
    with Relay(home.connect, server=oncemq_server):
        assert got(reader, 1) == [b"1"]


def test_writers_that_overlap_are_each_in_order_and_whole(
    home: Home,
    oncemq_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncemq.relay.tables.ROWS_MAX", 7)
    books = Books(home)
    with Client(oncemq_server) as client, Relay(home.connect, server=oncemq_server):
        for topic in ("orders", "apart"):
            client.create_topic(topic, Retention(forever=True))
        books.write_at_once(writers=4, count=15, seed=1)
        until(lambda: home.left == 0, what="everything is published")
        assert books.check(client) > 50
