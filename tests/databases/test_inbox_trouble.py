"""What may go wrong with a user's database in the middle of it: nothing is lost or doubled."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncemq import AsyncClient, Client, DatabaseRefused, inbox_schema, testing
from oncemq.errors import ConfigError
from tests.databases.postgres import Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with testing.server() as address:
        yield address


@pytest.fixture
def client(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    name = request.node.name
    with Client(server, id=name, state=tmp_path / "state") as mq:
        mq.subscribe(name)
        yield mq


def put(client: Client, *numbers: int) -> None:
    client.put_many(client.id, [b"%d" % number for number in numbers])


def consume(client: Client, into: Any, insert: str) -> list[int]:
    """One block, as a user writes it; the topic has the client's name."""
    with client.consume(client.id, wait=0, into=into) as messages:
        for message in messages:
            into.execute(insert, (int(message.payload),))
    return [int(message.payload) for message in messages]


# SQLite

SQLITE = "INSERT INTO effects VALUES (?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "user.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE effects (number)")
    database.close()
    return path


def test_a_file_that_another_has_locked_costs_nothing(client: Client, path: Path) -> None:
    put(client, 1, 2)
    ours, other = sqlite3.connect(path, timeout=0), sqlite3.connect(path, isolation_level=None)
    assert consume(client, ours, SQLITE) == [1, 2]
    put(client, 3)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        consume(client, ours, SQLITE)
    other.execute("COMMIT")
    assert consume(client, ours, SQLITE) == [3]
    assert other.execute("SELECT * FROM effects").fetchall() == [(1,), (2,), (3,)]
    ours.close()
    other.close()


def test_a_database_that_may_not_be_written_is_an_error_of_its_own(
    client: Client, path: Path
) -> None:
    put(client, 1)
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(Exception, match=r"readonly database"):
        consume(client, reader, SQLITE)
    reader.close()


class TwoDatabases:
    """One client, each of two topics into a database of its own."""

    def __init__(self, client: Client, root: Path) -> None:
        self.client = client
        self.databases: dict[str, sqlite3.Connection] = {}
        for topic in ("left", "right"):
            database = self.databases[topic] = sqlite3.connect(root / f"{topic}.db")
            database.execute("PRAGMA foreign_keys = ON")
            database.executescript(
                "CREATE TABLE parents (number INTEGER PRIMARY KEY); CREATE TABLE effects (number, "
                "parent REFERENCES parents (number) DEFERRABLE INITIALLY DEFERRED)"
            )
            client.subscribe(topic)
            client.put_many(topic, [b"%d" % number for number in range(6)])

    def consume(self, topic: str | None, into: str = "", *, parent: int | None = None) -> list[int]:
        """A block; with a `parent` that is not there its commit fails."""
        into = into or topic or "left"
        database = self.databases[into]
        with self.client.consume(topic, limit=2, wait=0, into=database) as messages:
            values = [(int(each.payload), parent) for each in messages]
            database.executemany("INSERT INTO effects VALUES (?, ?)", values)
        return [int(each.payload) for each in messages]

    def effects(self) -> dict[str, list[int]]:
        look = "SELECT number FROM effects"
        found = {topic: each.execute(look).fetchall() for topic, each in self.databases.items()}
        return {topic: [number for (number,) in rows] for topic, rows in found.items()}

    def close(self) -> None:
        for each in self.databases.values():
            each.close()


@pytest.fixture
def two(client: Client, tmp_path: Path) -> Iterator[TwoDatabases]:
    two = TwoDatabases(client, tmp_path)
    yield two
    for topic in two.databases:
        client.unsubscribe(topic)
    two.close()


def test_after_a_failed_commit_each_topic_goes_on_in_its_own_database(two: TwoDatabases) -> None:
    assert [two.consume("left"), two.consume("right")] == [[0, 1], [0, 1]]
    with pytest.raises(sqlite3.IntegrityError):
        two.consume("left", parent=9)
    order = ("right", "left", "right", "left")
    assert [two.consume(topic) for topic in order] == [[2, 3], [2, 3], [4, 5], [4, 5]]
    assert two.effects() == {"left": [*range(6)], "right": [*range(6)]}


def test_a_topic_s_block_in_another_database_is_refused_and_costs_nothing(
    two: TwoDatabases,
) -> None:
    assert [two.consume("left"), two.consume("right")] == [[0, 1], [0, 1]]
    for topic in ("left", None):  # None: all of them, of which one is in another database
        with pytest.raises(DatabaseRefused, match="goes to another database than before"):
            two.consume(topic, into="right")
    assert [two.consume("left"), two.consume("right")] == [[2, 3], [2, 3]]
    assert two.effects() == {"left": [*range(4)], "right": [*range(4)]}


def test_the_schema_can_be_had_for_each_database_and_no_other() -> None:
    assert "updated TEXT" in inbox_schema("sqlite")
    assert "updated TIMESTAMPTZ" in inbox_schema("postgresql")
    with pytest.raises(ConfigError, match="no schema for 'oracle'; there is one for sqlite and"):
        inbox_schema("oracle")  # type: ignore[arg-type]


# PostgreSQL

POSTGRESQL = "INSERT INTO effects VALUES (%s)"


@pytest.fixture
def home(postgres: Postgres) -> Callable[..., Any]:
    """Connects to a schema of the test's own that has the table of effects."""
    import psycopg

    dsn = postgres.dsn(postgres.new_schema())
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE TABLE effects (number BIGINT)")
    return lambda **options: psycopg.connect(dsn, **options)


def test_a_connection_that_is_lost_in_the_block_rolls_back(
    client: Client, home: Callable[..., Any]
) -> None:
    import psycopg

    put(client, 1, 2)
    with home() as ours, home(autocommit=True) as other:
        with (
            pytest.raises(psycopg.OperationalError),
            client.consume(client.id, into=ours) as messages,
        ):
            ours.execute(POSTGRESQL, (int(messages[0].payload),))
            other.execute("SELECT pg_terminate_backend(%s)", (ours.info.backend_pid,))
        assert other.execute("SELECT * FROM effects").fetchall() == []
        with home() as anew:
            assert consume(client, anew, POSTGRESQL) == [1, 2]
        assert other.execute("SELECT * FROM effects").fetchall() == [(1,), (2,)]


def test_who_may_not_make_tables_is_told_what_to_run(
    client: Client, home: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    put(client, 1)
    with home(autocommit=True) as owner:
        (schema,) = owner.execute("SELECT current_schema()").fetchone()
        owner.execute("CREATE ROLE limited LOGIN")
        owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO limited")
        owner.execute("GRANT ALL ON effects TO limited")
        try:
            with home(user="limited") as limited:
                with pytest.raises(DatabaseRefused, match="permission denied") as refused:
                    consume(client, limited, POSTGRESQL)
                assert inbox_schema("postgresql") in refused.value.detail
                owner.execute(inbox_schema("postgresql"))
                owner.execute("GRANT ALL ON oncemq_inbox TO limited")
                assert consume(client, limited, POSTGRESQL) == [1]
        finally:
            owner.execute("DROP OWNED BY limited; DROP ROLE limited")


def test_a_serialization_failure_of_the_users_own_is_theirs_and_costs_nothing(
    client: Client, home: Callable[..., Any]
) -> None:
    import psycopg

    put(client, 1)
    with home() as ours, home(autocommit=True) as other:
        ours.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        other.execute("INSERT INTO effects VALUES (0)")
        with (
            pytest.raises(psycopg.errors.SerializationFailure),
            client.consume(client.id, into=ours) as messages,
        ):
            ours.execute("SELECT * FROM effects")
            other.execute("UPDATE effects SET number = number + 10")
            ours.execute("UPDATE effects SET number = %s", (int(messages[0].payload),))
        assert consume(client, ours, POSTGRESQL) == [1]
        assert other.execute("SELECT * FROM effects ORDER BY 1").fetchall() == [(1,), (10,)]


async def test_a_cancelled_block_rolls_back_and_its_messages_come_again(
    server: str, postgres: Postgres, tmp_path: Path
) -> None:
    import asyncpg

    connection = await asyncpg.connect(**postgres.asyncpg(postgres.new_schema()))
    await connection.execute("CREATE TABLE effects (number BIGINT)")
    async with AsyncClient(server, id="cancelled", state=tmp_path / "state") as mq:
        await mq.subscribe("cancelled")
        await mq.put("cancelled", b"1")
        written = asyncio.Event()

        async def work(*, stuck: bool) -> None:
            async with mq.consume("cancelled", into=connection) as messages:
                for message in messages:
                    number = int(message.payload)
                    await connection.execute("INSERT INTO effects VALUES ($1)", number)
                written.set()
                if stuck:
                    await asyncio.Event().wait()

        task = asyncio.create_task(work(stuck=True))
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await connection.fetch("SELECT * FROM effects") == []
        await work(stuck=False)
        assert [tuple(row) for row in await connection.fetch("SELECT * FROM effects")] == [(1,)]
    await connection.close()


def test_a_name_with_a_quote_in_it_is_no_trouble(server: str, path: Path, tmp_path: Path) -> None:
    database = sqlite3.connect(path)
    with Client(server, id="o'brien", state=tmp_path / "state") as mq:
        mq.subscribe("it's")
        mq.put("it's", b"1")
        mq.get("it's")
        with (
            pytest.raises(DatabaseRefused, match=re.escape("it's/o'brien")) as refused,
            mq.consume("it's", wait=0, into=database),
        ):
            pass
        database.execute(refused.value.detail.partition("\n")[2])
        database.commit()
        with mq.consume("it's", wait=0, into=database) as messages:
            assert messages == []
    database.close()
