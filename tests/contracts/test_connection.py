"""What every connection does with the inbox's statements: each library's, and the simulator's.

`tests/databases/test_connections.py` has what only real ones can do: SQL of any kind, the user's
own transactions, refusals.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncemq.databases import inbox as table
from oncemq.databases.blocking.work import run
from oncemq.databases.connections import Connection
from oncemq.databases.statements import Ask, Bound, Step, Tell, Work
from oncemq.databases.with_asyncpg import Asyncpg
from oncemq.databases.with_psycopg import Psycopg
from oncemq.databases.with_sqlalchemy import SqlAlchemy
from oncemq.databases.with_sqlite3 import Sqlite3
from simulator.machines.fake_database import FakeConnection, FakeDatabase
from tests.databases.desks import Desk

KINDS: dict[str, type] = {
    "simulated": FakeConnection,
    "sqlite3": Sqlite3,
    "session-sqlite": SqlAlchemy,
    "psycopg": Psycopg,
    "psycopg-async": Psycopg,
    "asyncpg": Asyncpg,
    "sqlalchemy-asyncpg": SqlAlchemy,
}
ROW: dict[str, str | int] = {"client": "shop", "topic": "orders", "subscription_id": 7}


class Office:
    """A database, and connections to it of one kind."""

    def __init__(
        self, connect: Callable[[], Connection], work: Callable[[Connection, Work[Any]], Any]
    ) -> None:
        self.connect = connect
        self._work = work

    def do(self, connection: Connection, *steps: Step) -> list[Any]:
        """Carry out steps as they are; what each answers."""
        return self._work(connection, _each(steps))

    def commit(self, connection: Connection, *steps: Step) -> list[Any]:
        """Carry them out in a transaction."""
        return self.do(connection, Bound.BEGIN, *steps, Bound.CHECK, Bound.COMMIT)[1:-2]

    def rows(self) -> list[Any]:
        """What another connection sees."""
        return self.do(self.connect(), Bound.BEGIN, read(), Bound.ROLLBACK)[1]


def _each(steps: tuple[Step, ...]) -> Work[list[Any]]:
    answers: list[Any] = []
    for step in steps:
        answer = yield step
        answers += [answer]
    return answers


@pytest.fixture(params=list(KINDS))
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    kind: str = request.param
    if kind == "simulated":
        database = FakeDatabase(pytest.fail)
        yield Office(lambda: FakeConnection(database), run)
        return
    postgres = None if "sqlite" in kind else request.getfixturevalue("postgres")
    desk = Desk(kind, tmp_path, postgres)
    found = Office(lambda: desk.recognize(desk.connect()), desk.work)
    connection = found.connect()
    assert type(connection) is KINDS[kind]
    desk.work(connection, table.see_to_table(connection))
    yield found
    desk.end()


def read(**keys: str | int) -> Ask:
    return Ask(table.READ, {**ROW, **keys})


def add(cursor: int, taken: int, **keys: str | int) -> Tell:
    return Tell(table.ADD, {**ROW, **keys, "cursor": cursor, "taken": taken})


def move(fence: int, before: int, after: int) -> Tell:
    return Tell(table.MOVE, {**ROW, "fence": fence, "before": before, "after": after})


def take(fence: int, cursor: int, taken: int) -> Tell:
    return Tell(table.TAKE, {**ROW, "fence": fence, "cursor": cursor, "taken": taken})


def test_a_new_connection_has_nothing_under_way(office: Office) -> None:
    connection = office.connect()
    assert (connection.closed, connection.in_transaction) == (False, False)
    assert connection.kind in ("sqlite", "postgresql")


def test_a_transaction_is_open_from_its_begin_to_its_end(office: Office) -> None:
    connection = office.connect()
    for end in (Bound.COMMIT, Bound.ROLLBACK):
        office.do(connection, Bound.BEGIN)
        assert connection.in_transaction
        office.do(connection, read(), end)
        assert not connection.in_transaction


def test_a_row_that_is_added_is_read_by_itself_at_once_and_by_others_when_committed(
    office: Office,
) -> None:
    connection = office.connect()
    answers = office.do(connection, Bound.BEGIN, read(), add(5, 1), read())
    assert [list(map(tuple, answers[1])), answers[2], list(map(tuple, answers[3]))] == [
        [],
        1,
        [(5, 1)],
    ]
    office.do(connection, Bound.CHECK, Bound.COMMIT)
    assert office.rows() == [(5, 1)]


def test_what_is_rolled_back_never_was(office: Office) -> None:
    connection = office.connect()
    office.do(connection, Bound.BEGIN, add(5, 1), Bound.ROLLBACK)
    assert office.rows() == []
    assert office.commit(connection, add(6, 1)) == [1]
    office.do(connection, Bound.BEGIN, move(1, 6, 9), Bound.ROLLBACK)
    assert office.rows() == [(6, 1)]


def test_a_row_that_is_there_is_not_added_again(office: Office) -> None:
    first, second = office.connect(), office.connect()
    assert office.commit(first, add(5, 1)) == [1]
    assert office.commit(second, add(8, 2)) == [0]
    assert office.rows() == [(5, 1)]


def test_a_cursor_moves_from_where_it_is_and_under_its_fence_alone(office: Office) -> None:
    connection = office.connect()
    office.commit(connection, add(5, 1))
    assert office.commit(connection, move(1, 4, 9), move(2, 5, 9), move(1, 5, 7)) == [0, 0, 1]
    assert office.commit(connection, move(1, 5, 9), move(1, 7, 8)) == [0, 1]
    assert office.rows() == [(8, 1)]


def test_who_takes_over_fences_who_was_there(office: Office) -> None:
    elder, newer = office.connect(), office.connect()
    office.commit(elder, add(5, 1))
    assert office.commit(newer, take(1, 4, 2), take(2, 5, 3), take(1, 5, 2)) == [0, 0, 1]
    assert office.commit(elder, move(1, 5, 6)) == [0]
    assert office.commit(newer, move(2, 5, 6)) == [1]
    assert office.rows() == [(6, 2)]


def test_rows_are_of_one_client_topic_and_subscription(office: Office) -> None:
    connection = office.connect()
    others: list[dict[str, str | int]] = [
        {"client": "other"}, {"topic": "refunds"}, {"subscription_id": 8},
    ]  # fmt: skip
    office.commit(connection, add(5, 1), *(add(1, 1, **keys) for keys in others))
    assert office.commit(connection, move(1, 5, 6)) == [1]
    answers = office.commit(connection, *(read(**keys) for keys in others))
    assert [list(map(tuple, rows)) for rows in answers] == [[(1, 1)]] * 3


def test_rows_of_subscriptions_before_are_cleared_away_of_the_same_log_alone(
    office: Office,
) -> None:
    connection = office.connect()
    here = 3 << 32
    numbers = [here - 1, here, here + 4, here + 5, here + 6]
    office.commit(connection, *(add(1, 1, subscription_id=number) for number in numbers))
    prune = Tell(table.PRUNE, {**ROW, "subscription_id": here + 5, "log": here})
    assert office.commit(connection, prune) == [2]
    left = office.commit(connection, *(read(subscription_id=number) for number in numbers))
    assert [len(rows) for rows in left] == [1, 0, 0, 1, 1]
