"""PostgreSQL: ids, and even transaction ids, are not in the order of commits; what is published is.

Each test fails when rows are ordered by id, or by transaction id, or read with a cursor.
"""

import random
import threading
from contextlib import closing
from typing import Any

import pytest
from tests.e2e.processes import until
from tests.relay.conftest import Homes
from tests.relay.homes import Home
from tests.relay.test_relay import got

import oncemq
from oncemq import Client, Relay


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
    reader: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each transaction takes a number from one locked row: that is the order of their commits."""
    monkeypatch.setattr("oncemq.relay.ledger.ROWS_MAX", 7)
    home.look("CREATE TABLE turn (number integer)")
    home.look("INSERT INTO turn VALUES (0)")
    writers, rounds = 4, 15

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with closing(home.writer()) as connection:
            for _ in range(rounds):
                before, after = chance.randrange(3), 1 + chance.randrange(3)
                connection.execute("BEGIN")
                oncemq.outbox(connection).put_many("apart", [b"noise"] * before)
                connection.execute("SELECT pg_sleep(%s)", (chance.random() / 200,))
                row = connection.execute("UPDATE turn SET number = number + 1 RETURNING number")
                number = row.fetchone()[0]
                texts = [b"%d.%d/%d" % (number, each, after) for each in range(after)]
                oncemq.outbox(connection).put_many("orders", texts)
                connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(writers)]
    with Relay(home.connect, server=oncemq_server):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: home.left == 0, what="everything is published")
    number = home.look("SELECT number FROM turn")[0][0]
    payloads = [message.payload for message in reader.get("orders", limit=10_000)]
    expected = [
        b"%d.%d/%d" % (each, part, count)
        for each in range(1, number + 1)
        for count in [next(int(p.split(b"/")[1]) for p in payloads if p.startswith(b"%d." % each))]
        for part in range(count)
    ]
    assert payloads == expected
