"""A database that is only away is told from one that waiting does not mend."""

import asyncio
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncemq.errors import DatabaseRefused
from oncemq.relay.absence import is_away, of_the_database

STARTING = ("57P03", "the database system is starting up")
FULL = ("53300", "sorry, too many clients already")
PASSWORD = ("28P01", 'password authentication failed for user "me"')
NO_DATABASE = ("3D000", 'database "name" does not exist')


@contextmanager
def refusing(state: str, words: str) -> Iterator[int]:
    """A PostgreSQL that refuses every connection with this code, in its own protocol."""
    fields = b"SFATAL\0VFATAL\0C%s\0M%s\0\0" % (state.encode(), words.encode())
    reply = b"E" + (len(fields) + 4).to_bytes(4, "big") + fields
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while (asked := connection.recv(1024)) and len(asked) == 8:
                        connection.sendall(b"N")  # no TLS, no GSS
                    connection.sendall(reply if asked else b"")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def with_psycopg(port: int) -> Exception:
    psycopg = pytest.importorskip("psycopg")
    with pytest.raises(psycopg.Error) as caught:
        psycopg.connect(f"postgresql://me@127.0.0.1:{port}/name")
    return caught.value


def with_asyncpg(port: int) -> Exception:
    asyncpg = pytest.importorskip("asyncpg")

    async def connect() -> None:
        await asyncpg.connect(f"postgresql://me@127.0.0.1:{port}/name", ssl=False)

    with pytest.raises((asyncpg.PostgresError, OSError)) as caught:
        asyncio.run(connect())
    return caught.value


@pytest.mark.parametrize("connect", [with_psycopg, with_asyncpg])
@pytest.mark.parametrize(
    ("refusal", "away"), [(STARTING, True), (FULL, True), (PASSWORD, False), (NO_DATABASE, False)]
)
def test_why_postgresql_refuses_decides(connect, refusal: tuple[str, str], away: bool) -> None:
    with refusing(*refusal) as port:
        error = connect(port)
    assert refusal[1] in str(error)
    assert of_the_database(error)
    assert is_away(error) is away


@pytest.mark.parametrize("connect", [with_psycopg, with_asyncpg])
def test_nobody_at_the_address_is_away(connect) -> None:
    assert is_away(connect(1))


def test_what_another_error_was_raised_from_is_looked_at() -> None:
    refused = DatabaseRefused("the tables cannot be made")
    assert not is_away(refused)
    refused.__cause__ = ConnectionResetError()
    assert is_away(refused)


def test_sqlite_is_away_while_it_is_locked() -> None:
    assert is_away(sqlite3.OperationalError("database is locked"))
    assert not is_away(sqlite3.DatabaseError("file is not a database"))
