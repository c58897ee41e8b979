"""Every kind of connection keeps the same contract: steps, transactions, refusals."""

import re
import sqlite3
from typing import Any

import pytest

from oncemq import DatabaseRefused
from oncemq.databases.blocking.work import run
from oncemq.databases.connections import make_ready, recognize
from oncemq.databases.statements import Ask, Bound, Tell, TellMany, Work, numbered, pyformat
from tests.databases.desks import Desk

TABLE = "CREATE TABLE things (number BIGINT PRIMARY KEY, name TEXT)"
INSERT = "INSERT INTO things VALUES (CAST(:number AS BIGINT), :name)"
BIG = 1 << 61


@pytest.fixture
def connection(desk: Desk) -> Any:
    connection = desk.connect()
    desk.do(connection, TABLE)
    desk.commit(connection)
    return connection


def in_transaction(*steps: Any, end: Bound = Bound.COMMIT) -> Work[list[Any]]:
    yield Bound.BEGIN
    answers: list[Any] = []
    for step in steps:
        answer = yield step
        answers += [answer]
    yield end
    return answers


def test_questions_and_changes_are_answered(desk: Desk, connection: Any) -> None:
    known = desk.recognize(connection)
    assert known.kind == desk.database
    answers = desk.work(
        known,
        in_transaction(
            Tell(INSERT, {"number": BIG, "name": "50% :odd"}),
            TellMany(INSERT, [{"number": 1, "name": None}, {"number": 2, "name": "two"}]),
            Tell(
                "UPDATE things SET name = 'less' WHERE number < CAST(:most AS BIGINT)", {"most": 3}
            ),
            Tell("UPDATE things SET name = 'none' WHERE number = 0", {}),
            Ask("SELECT number, name FROM things ORDER BY number", {}),
        ),
    )
    rows = [(1, "less"), (2, "less"), (BIG, "50% :odd")]
    assert [answers[0], answers[2], answers[3], answers[4]] == [1, 2, 0, rows]
    assert desk.look("SELECT number, name FROM things ORDER BY number") == rows
    assert not known.in_transaction


def test_what_is_rolled_back_never_was(desk: Desk, connection: Any) -> None:
    known = desk.recognize(connection)
    step = Tell(INSERT, {"number": 1, "name": "one"})
    desk.work(known, in_transaction(step, end=Bound.ROLLBACK))
    assert not known.in_transaction
    assert desk.look("SELECT * FROM things") == []


def test_the_users_own_statements_are_in_the_transaction(desk: Desk, connection: Any) -> None:
    known = desk.recognize(connection)
    desk.work(known, _alone(Bound.BEGIN))
    assert known.in_transaction
    desk.do(connection, "INSERT INTO things VALUES (7, 'mine')")
    assert desk.look("SELECT * FROM things") == []
    desk.work(known, _alone(Bound.COMMIT))
    assert desk.look("SELECT * FROM things") == [(7, "mine")]


def test_what_the_library_raises_reaches_the_work(desk: Desk, connection: Any) -> None:
    def failing() -> Work[str]:
        yield Bound.BEGIN
        try:
            yield Ask("SELECT * FROM nowhere", {})
        except Exception as error:
            yield Bound.ROLLBACK
            return str(error)
        return ""

    known = desk.recognize(connection)
    assert "nowhere" in desk.work(known, failing())
    assert not known.in_transaction


def test_an_open_transaction_that_only_read_is_ended(desk: Desk, connection: Any) -> None:
    known = desk.recognize(connection)
    desk.do(connection, "SELECT * FROM things")
    desk.work(known, make_ready(known))
    assert not known.in_transaction
    desk.work(known, in_transaction(Tell(INSERT, {"number": 1, "name": "one"})))


def test_an_open_transaction_that_wrote_is_refused(desk: Desk, connection: Any) -> None:
    if desk.kind in ("asyncpg", "psycopg-autocommit", "sqlite3-none"):
        desk.do(connection, "BEGIN")
    desk.do(connection, "INSERT INTO things VALUES (7, 'mine')")
    known = desk.recognize(connection)
    with pytest.raises(DatabaseRefused, match="commit it or roll it back first"):
        desk.work(known, make_ready(known))
    if desk.kind not in ("asyncpg", "psycopg-autocommit", "sqlite3-none"):
        desk.commit(connection)
        assert desk.look("SELECT * FROM things") == [(7, "mine")]


@pytest.mark.parametrize("desk", ["session-sqlite", "session-psycopg"], indirect=True)
def test_a_session_with_objects_to_be_written_is_refused(desk: Desk, connection: Any) -> None:
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

    class Base(DeclarativeBase):
        pass

    class Thing(Base):
        __tablename__ = "things"
        number: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str]

    connection.add(Thing(number=1, name="pending"))
    known = desk.recognize(connection)
    with pytest.raises(DatabaseRefused, match="commit it or roll it back first"):
        desk.work(known, make_ready(known))
    assert desk.look("SELECT * FROM things") == []


def test_a_closed_connection_is_refused(desk: Desk) -> None:
    connection = desk.connect()
    known = desk.recognize(connection)
    desk.close(connection)
    if "session" in desk.kind:  # it opens again when it is used
        desk.work(known, in_transaction(Tell(TABLE, {})))
        return
    with pytest.raises(DatabaseRefused, match="is closed; give an open one"):
        desk.work(known, make_ready(known))


def test_a_commit_inside_the_block_is_noticed(desk: Desk, connection: Any) -> None:
    known = desk.recognize(connection)
    desk.work(known, _alone(Bound.BEGIN))
    with pytest.raises(Exception, match=r"inside it|forbidden within"):
        if desk.kind == "asyncpg":
            desk.do(connection, "COMMIT")
        desk.commit(connection)
        desk.work(known, _alone(Bound.CHECK))


def test_a_connection_of_the_other_manner_is_refused(desk: Desk) -> None:
    connection = desk.connect()
    if desk.kind.startswith("sqlite3"):
        assert recognize(connection, awaitable=not desk.awaitable).kind == "sqlite"
        return
    other = "AsyncClient" if desk.awaitable else "Client"
    with pytest.raises(DatabaseRefused, match=f"use it with {other};"):
        recognize(connection, awaitable=not desk.awaitable)


def _alone(step: Bound) -> Work[None]:
    yield step


# What is no connection


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("sqlite:///x.db", "builtins.str is not a connection we know; give a sqlite3.Connection"),
        (None, "NoneType is not a connection we know"),
    ],
)
def test_something_else_is_refused_and_what_is_supported_is_said(what: Any, said: str) -> None:
    with pytest.raises(DatabaseRefused, match=re.escape(said)):
        recognize(what, awaitable=False)


def test_an_engine_is_refused() -> None:
    import sqlalchemy

    with pytest.raises(DatabaseRefused, match=re.escape("give `engine.connect()`")):
        recognize(sqlalchemy.create_engine("sqlite://"), awaitable=False)


def test_a_pool_is_refused() -> None:
    class Pool:
        pass

    with pytest.raises(DatabaseRefused, match="give a connection taken from it"):
        recognize(Pool(), awaitable=True)


def test_another_database_is_refused() -> None:
    import sqlalchemy

    class Dialect:
        name = "oracle"

    class Elsewhere(sqlalchemy.Connection):
        def __init__(self) -> None:
            self.dialect = Dialect()  # type: ignore[assignment]

    with pytest.raises(DatabaseRefused, match="connected to oracle; SQLite and PostgreSQL"):
        recognize(Elsewhere(), awaitable=False)


def test_sqlalchemy_in_autocommit_is_refused() -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine("sqlite://", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:  # noqa: SIM117
        with pytest.raises(DatabaseRefused, match="is in AUTOCOMMIT and has no transactions"):
            recognize(connection, awaitable=False)
    engine.dispose()


def test_a_transaction_that_sqlalchemy_was_told_to_begin_is_refused() -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine("sqlite://")
    desk_of = pytest.raises(DatabaseRefused, match=re.escape("Give one from `engine.connect()`"))
    with engine.begin() as connection, desk_of:
        known = recognize(connection, awaitable=False)
        run(known, make_ready(known))
        run(known, _alone(Bound.BEGIN))
    engine.dispose()


def test_sqlite3_that_is_always_in_a_transaction_is_refused() -> None:
    class Always(sqlite3.Connection):
        autocommit = False

    connection = sqlite3.connect(":memory:", factory=Always)
    with pytest.raises(DatabaseRefused, match="open it with autocommit=True"):
        recognize(connection, awaitable=False)
    connection.close()


def test_the_users_own_rows_and_text_do_not_matter() -> None:

    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    known = recognize(connection, awaitable=False)
    assert run(known, in_transaction(Ask("SELECT 1, 'a'", {}))) == [[(1, "a")]]
    connection.close()


# Parameters


def test_parameters_are_translated() -> None:
    sql = "SELECT ':a', CAST(:a AS BIGINT), x::TEXT, '10%' WHERE b = :b AND c = :a"
    assert pyformat("a = :a AND b LIKE '%'") == "a = %(a)s AND b LIKE '%%'"
    text, names = numbered("a = :a AND b = :b AND c = :a AND x::TEXT = ''")
    assert text == "a = $1 AND b = $2 AND c = $1 AND x::TEXT = ''"
    assert names == ("a", "b")
    assert numbered(sql)[1] == ("a", "b")
