"""The relay's own connection to the user's database, whether it blocks or is awaited.

Laws: the connection is used by the thread that opened it; what the relay commits is on disk when
the commit returns, and so is everything it saw, whatever the database is set to otherwise. A
SQLite file that is replaced lives on without its name for whoever has it open: the relay looks.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from oncemq.databases.aio import work as awaited_work
from oncemq.databases.blocking import work as blocking_work
from oncemq.databases.connections import awaited, recognize
from oncemq.databases.outbox_schema import WAKE
from oncemq.databases.statements import Ask, Kind, Tell, Work
from oncemq.errors import DatabaseRefused, Locked
from oncemq.storage.disk import LocalDisk, Lock, identity_of

T = TypeVar("T")

Connect = Callable[[], Any]  # a new connection, or what to await for one
BUSY_MS = 30_000  # how long a commit of the user's may hold up the relay on SQLite

_SETTINGS = {
    "sqlite": ("PRAGMA synchronous = FULL", f"PRAGMA busy_timeout = {BUSY_MS}"),
    "postgresql": ("SET synchronous_commit = on", f"LISTEN {WAKE}"),
}
# Two numbers: no lock that a user made of one can be the same.
_LOCK = (
    "SELECT pg_try_advisory_lock(hashtext('oncemq_outbox'), "
    "CAST(CAST('oncemq_outbox' AS regclass) AS oid)::int)"
)


class Replaced(Exception):
    """Another database has the name of this one."""


class RelayDatabase:
    """One connection, ready for work."""

    def __init__(self, connect: Connect) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock: Lock | None = None
        self._outer: Any = None
        try:
            self._outer = self.result_of(connect())
            self.driver = _driver_connection(self._outer)
            self._begin_nothing()
            self._connection = recognize(self.driver, awaitable=None)
            self.kind: Kind = self._connection.kind
            self._path = self._ask_path()
            self._identity = identity_of(self._path) if self._path else None
            self._set_up()
        except BaseException:
            self.close()
            raise

    def run(self, work: Work[T]) -> T:
        """Carry out work."""
        if self._connection.awaitable:
            return self.result_of(awaited_work.run(self._connection, work))
        return blocking_work.run(self._connection, work)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of one question."""
        return self.run(_one(sql))

    def result_of(self, value: Any) -> Any:
        """The value, awaited where it must be, on an event loop of our own."""
        if not inspect.isawaitable(value):
            return value
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(awaited(value))

    def lock(self) -> bool:
        """Be the one relay of this database, unless another is."""
        if self.kind == "postgresql":
            return bool(self.ask(_LOCK)[0][0])
        if not self._path:
            raise DatabaseRefused(
                "a SQLite database in memory has one connection, and the relay needs another; "
                "give it a file"
            )
        try:
            self._lock = LocalDisk().lock_file(f"{self._path}-oncemq-relay")
        except Locked:
            return False
        return True

    def must_have_its_name(self) -> None:
        """Raise Replaced when programs that connect now get another file than this one.

        While no file has the name this one is gone on with: to connect would make an empty one.
        """
        found = identity_of(self._path) if self._path else None
        if found is not None and found != self._identity:
            raise Replaced(self._path)

    def close(self) -> None:
        """Let go of the lock and the connection."""
        if self._lock is not None:
            self._lock.release()
        try:
            if hasattr(self._outer, "close"):  # else it is no connection, or there is none
                self.result_of(self._outer.close())
        finally:
            if self._loop is not None:
                self._loop.close()

    def _ask_path(self) -> str:
        """Of SQLite's file; none in memory, nor on PostgreSQL."""
        if self.kind == "postgresql":
            return ""
        return self.ask("SELECT file FROM pragma_database_list WHERE name = 'main'")[0][0] or ""

    def _begin_nothing(self) -> None:
        """A statement by itself is a transaction by itself, whatever the user's habit is."""
        if hasattr(self.driver, "set_autocommit"):  # psycopg
            self.result_of(self.driver.set_autocommit(True))
        elif hasattr(self.driver, "isolation_level"):  # sqlite3
            self.driver.isolation_level = None
            if getattr(self.driver, "autocommit", None) is False:
                self.driver.autocommit = True

    def _set_up(self) -> None:
        for statement in _SETTINGS[self.kind]:
            self.run(_tell(statement))


def _driver_connection(connection: Any) -> Any:
    """What a connection of SQLAlchemy stands for: the relay speaks to the database itself."""
    if not type(connection).__module__.startswith("sqlalchemy."):
        return connection
    inner = getattr(connection, "sync_connection", connection)
    driver = getattr(getattr(inner, "connection", None), "driver_connection", None)
    if driver is None:
        raise DatabaseRefused(
            "the relay needs a connection of its own: give it `engine.connect`, not a session"
        )
    return driver


def _one(sql: str) -> Work[list[tuple[Any, ...]]]:
    return (yield Ask(sql, {}))


def _tell(sql: str) -> Work[None]:
    yield Tell(sql, {})
