"""A user's database with an outbox: its writers, and the ways a relay may connect to it."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import oncemq
from tests.databases.postgres import Postgres


class Home:
    """A database of one test. `kind` names the connection the relay gets."""

    def __init__(self, kind: str, directory: Path, postgres: Postgres | None) -> None:
        self.kind = kind
        self._path = directory / "user.db"
        self._postgres = postgres
        self._schema = postgres.new_schema() if postgres else ""
        with closing(self.writer()) as connection:
            if postgres is None:
                connection.execute("PRAGMA journal_mode = WAL")
            oncemq.outbox(connection).create()

    @property
    def url(self) -> str:
        """As `once relay` takes it."""
        if self._postgres is None:
            return str(self._path)
        return self._postgres.url("", self._schema)

    def writer(self) -> Any:
        """A connection for the user's own writes: a statement by itself commits by itself."""
        if self._postgres is None:
            return sqlite3.connect(self._path, isolation_level=None, timeout=60)
        import psycopg

        return psycopg.connect(self._postgres.dsn(self._schema), autocommit=True)

    def write(self, topic: str, payloads: Iterable[bytes], *, commit: bool = True) -> None:
        """One transaction."""
        with closing(self.writer()) as connection:
            connection.execute("BEGIN")
            oncemq.outbox(connection).put_many(topic, list(payloads))
            connection.execute("COMMIT" if commit else "ROLLBACK")

    def look(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self.writer()) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    @property
    def left(self) -> int:
        """Rows that are not published yet."""
        return self.look("SELECT count(*) FROM oncemq_outbox")[0][0]

    @property
    def connect(self) -> Callable[[], Any]:
        """What to give a relay."""
        return getattr(self, "_" + self.kind.replace("-", "_"))

    def _sqlite3(self) -> Any:
        return sqlite3.connect(self._path)

    def _sqlalchemy_sqlite(self) -> Any:
        import sqlalchemy

        pool = sqlalchemy.NullPool  # else the engine keeps what the relay closes
        url = f"sqlite:///{self._path}"
        return sqlalchemy.create_engine(url, poolclass=pool).connect()

    def _psycopg(self) -> Any:
        import psycopg

        assert self._postgres is not None
        return psycopg.connect(self._postgres.dsn(self._schema))

    def _sqlalchemy_psycopg(self) -> Any:
        import sqlalchemy

        assert self._postgres is not None
        pool = sqlalchemy.NullPool
        url = self._postgres.url("+psycopg", self._schema)
        return sqlalchemy.create_engine(url, poolclass=pool).connect()

    async def _psycopg_async(self) -> Any:
        import psycopg

        assert self._postgres is not None
        return await psycopg.AsyncConnection.connect(self._postgres.dsn(self._schema))

    async def _asyncpg(self) -> Any:
        import asyncpg

        assert self._postgres is not None
        return await asyncpg.connect(**self._postgres.asyncpg(self._schema))

    async def _sqlalchemy_asyncpg(self) -> Any:
        import sqlalchemy
        from sqlalchemy.ext.asyncio import create_async_engine

        assert self._postgres is not None
        settings = {"server_settings": {"search_path": self._schema}}
        url, pool = self._postgres.url("+asyncpg"), sqlalchemy.NullPool
        return await create_async_engine(url, connect_args=settings, poolclass=pool).connect()
