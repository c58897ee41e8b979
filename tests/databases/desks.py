"""Every kind of connection a user may have, opened and used as its own documentation says.

Tests are written once and run with each: a desk hides whether there is something to await.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncemq import AsyncClient, Client
from oncemq.databases.aio import work as awaited_work
from oncemq.databases.blocking import work as blocking_work
from oncemq.databases.connections import Connection, recognize
from oncemq.databases.statements import Work
from tests.databases.postgres import Postgres

BLOCKING = (
    "sqlite3 sqlite3-none sqlalchemy-sqlite session-sqlite "
    "psycopg psycopg-autocommit sqlalchemy-psycopg session-psycopg"
).split()
AWAITABLE = "asyncpg psycopg-async sqlalchemy-asyncpg asyncsession-asyncpg sqlite3-async".split()
KINDS = [*BLOCKING, *AWAITABLE]


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class OnALoop:
    """An AsyncClient on the loop of its connections, driven without `await`."""

    def __init__(self, loop: Loop, server: str, options: dict[str, Any]) -> None:
        self._loop = loop

        async def start() -> AsyncClient:
            return await AsyncClient(server, **options).__aenter__()

        self._client: AsyncClient = loop.run(start())

    def __getattr__(self, verb: str) -> Any:
        found: Any = getattr(self._client, verb)
        if verb == "id":
            return found
        return lambda *args, **options: self._loop.run(found(*args, **options))

    @contextmanager
    def consume(self, *args: Any, **options: Any) -> Iterator[Any]:
        block = self._client.consume(*args, **options)
        messages = self._loop.run(block.__aenter__())
        try:
            yield messages
        except BaseException as error:
            self._loop.run(block.__aexit__(type(error), error, None))
            raise
        self._loop.run(block.__aexit__(None, None, None))


class Desk:
    """One kind of connection to one database."""

    def __init__(self, kind: str, directory: Path, postgres: Postgres | None) -> None:
        self.kind = kind
        self.database = "sqlite" if "sqlite" in kind else "postgresql"
        self.awaitable = kind in AWAITABLE
        self._directory = directory
        self._postgres = postgres
        self._schema = postgres.new_schema() if postgres and self.database != "sqlite" else ""
        self._loop: Loop | None = None
        self._close: list[Callable[[], Any]] = []
        self.run: Callable[[Any], Any] = lambda value: value
        if self.awaitable:
            self._loop = Loop()
            self.run = self._run

    def _run(self, value: Any) -> Any:
        assert self._loop is not None
        return self._loop.run(value) if asyncio.iscoroutine(value) else value

    def connect(self) -> Any:
        """A new connection of this kind."""
        made = getattr(self, "_" + self.kind.replace("-", "_"))()
        connection = self.run(made)
        self._close.append(lambda: self.close(connection))
        return connection

    def close(self, connection: Any) -> None:
        """As the user would."""
        closed = connection.close()
        if asyncio.iscoroutine(closed):
            self.run(closed)

    def do(self, connection: Any, sql: str) -> list[tuple[Any, ...]]:
        """Carry out the user's own SQL, in the user's own transaction if there is one."""
        if self.awaitable and self.database != "sqlite":
            return self.run(self._do_awaitable(connection, sql))
        if "sqlalchemy" in self.kind or "session" in self.kind:
            result = connection.execute(_text(sql))
            return [tuple(row) for row in result] if result.returns_rows else []
        cursor = (
            self.run(_soon(lambda: connection.execute(sql)))
            if self.awaitable
            else (connection.execute(sql))
        )
        return cursor.fetchall() if cursor.description else []

    async def _do_awaitable(self, connection: Any, sql: str) -> list[tuple[Any, ...]]:
        if self.kind == "asyncpg":
            return [tuple(row) for row in await connection.fetch(sql)]
        if self.kind == "psycopg-async":
            cursor = await connection.execute(sql)
            return await cursor.fetchall() if cursor.description else []
        result = await connection.execute(_text(sql))
        return [tuple(row) for row in result] if result.returns_rows else []

    def commit(self, connection: Any) -> None:
        """End what the last statements began."""
        if self.kind != "asyncpg":
            self.run(connection.commit())

    def look(self, sql: str) -> list[tuple[Any, ...]]:
        """What a stranger sees: a connection of its own, of the plainest kind."""
        if self.database == "sqlite":
            stranger = sqlite3.connect(self.path)
            try:
                return stranger.execute(sql).fetchall()
            finally:
                stranger.close()
        import psycopg

        assert self._postgres is not None
        with psycopg.connect(self._postgres.dsn(self._schema)) as stranger:
            cursor = stranger.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def change(self, sql: str) -> None:
        """What a stranger does."""
        if self.database == "sqlite":
            stranger = sqlite3.connect(self.path, isolation_level=None)
            stranger.execute(sql)
            stranger.close()
        else:
            self.look(sql)

    def client(self, server: str, **options: Any) -> Any:
        """A client of the manner that fits; its verbs need no await here."""
        if not self.awaitable:
            client = Client(server, **options)
            self._close.append(client.close)
            return client
        assert self._loop is not None
        client = OnALoop(self._loop, server, options)
        self._close.append(client.close)
        return client

    def recognize(self, connection: Any) -> Connection:
        return recognize(connection, awaitable=self.awaitable)

    def work(self, connection: Connection, work: Work[Any]) -> Any:
        """Carry out work, blocking or awaited."""
        if self.awaitable:
            return self.run(awaited_work.run(connection, work))
        return blocking_work.run(connection, work)

    def end(self) -> None:
        for close in reversed(self._close):
            close()
        if self._loop is not None:
            self._loop.close()

    # One way in for each kind

    @property
    def path(self) -> Path:
        return self._directory / "user.db"

    def _sqlite3(self) -> Any:
        return sqlite3.connect(self.path)

    def _sqlite3_none(self) -> Any:
        return sqlite3.connect(self.path, isolation_level=None)

    async def _sqlite3_async(self) -> Any:
        return sqlite3.connect(self.path, check_same_thread=False)

    def _sqlalchemy_sqlite(self) -> Any:
        return self._engine(f"sqlite:///{self.path}").connect()

    def _session_sqlite(self) -> Any:
        from sqlalchemy.orm import Session

        return Session(self._engine(f"sqlite:///{self.path}"))

    def _psycopg(self) -> Any:
        import psycopg

        assert self._postgres is not None
        return psycopg.connect(self._postgres.dsn(self._schema))

    def _psycopg_autocommit(self) -> Any:
        import psycopg
        from psycopg.rows import dict_row

        assert self._postgres is not None
        dsn = self._postgres.dsn(self._schema)
        return psycopg.Connection[Any].connect(dsn, autocommit=True, row_factory=dict_row)

    def _sqlalchemy_psycopg(self) -> Any:
        assert self._postgres is not None
        return self._engine(self._postgres.url("+psycopg", self._schema)).connect()

    def _session_psycopg(self) -> Any:
        from sqlalchemy.orm import Session

        assert self._postgres is not None
        return Session(self._engine(self._postgres.url("+psycopg", self._schema)))

    async def _asyncpg(self) -> Any:
        import asyncpg

        assert self._postgres is not None
        return await asyncpg.connect(**self._postgres.asyncpg(self._schema))

    async def _psycopg_async(self) -> Any:
        import psycopg

        assert self._postgres is not None
        return await psycopg.AsyncConnection.connect(self._postgres.dsn(self._schema))

    async def _sqlalchemy_asyncpg(self) -> Any:
        return await self._async_engine().connect()

    async def _asyncsession_asyncpg(self) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(self._async_engine())

    def _engine(self, url: str) -> Any:
        import sqlalchemy

        engine = sqlalchemy.create_engine(url)
        self._close.append(engine.dispose)
        return engine

    def _async_engine(self) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine

        assert self._postgres is not None
        settings = {"server_settings": {"search_path": self._schema}}
        engine = create_async_engine(self._postgres.url("+asyncpg"), connect_args=settings)
        self._close.append(lambda: self.run(engine.dispose()))
        return engine


async def _soon(call: Callable[[], Any]) -> Any:
    return call()


def _text(sql: str) -> Any:
    import sqlalchemy

    return sqlalchemy.text(sql)
