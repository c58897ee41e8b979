"""A user's connection, recognized by the names of its type: no library is imported for it.

Laws: nothing of the user's own is committed or rolled back by us; a connection that cannot
have a transaction, or has one of the user's own open, is refused with the way out.
"""

import inspect
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar, cast

from oncemq.databases.statements import Ask, Bound, Kind, Step, Work
from oncemq.errors import DatabaseRefused

T = TypeVar("T")

SUPPORTED = (
    "a sqlite3.Connection, a psycopg.Connection, or a SQLAlchemy Connection or Session "
    "(on SQLite or PostgreSQL)"
)
SUPPORTED_AWAITABLE = (
    "a psycopg.AsyncConnection, an asyncpg connection, a SQLAlchemy AsyncConnection or "
    "AsyncSession (on PostgreSQL), or a sqlite3.Connection"
)


class Connection(Protocol):
    """A connection of one library, as work on it needs it.

    `perform` carries out one step; where `awaitable` is true its answer must be awaited.
    """

    kind: Kind
    awaitable: bool

    @property
    def closed(self) -> bool: ...
    @property
    def in_transaction(self) -> bool: ...
    @property
    def has_written(self) -> bool | None: ...  # in the transaction that is open; None: ask it
    def perform(self, step: Step) -> Any: ...


def recognize(connection: Any, *, awaitable: bool | None, joins: bool = False) -> Connection:
    """The connection behind our port; `awaitable`: for a caller on an event loop (None: any).

    `joins`: we only write into the user's own transactions, and begin none.
    """
    names = _names(connection)
    found: Connection | None = None
    if "sqlite3.Connection" in names:
        from oncemq.databases.with_sqlite3 import Sqlite3

        return Sqlite3(connection, joins=joins)
    if names & {"psycopg.Connection", "psycopg.AsyncConnection"}:
        from oncemq.databases.with_psycopg import Psycopg

        found = Psycopg(connection, awaitable="psycopg.AsyncConnection" in names)
    elif names & {"asyncpg.Connection", "asyncpg.PoolConnectionProxy"}:
        from oncemq.databases.with_asyncpg import Asyncpg

        found = Asyncpg(connection)
    elif names & {f"sqlalchemy.{name}" for name in ("Connection", "Session", "scoped_session")}:
        from oncemq.databases.with_sqlalchemy import SqlAlchemy

        found = SqlAlchemy(connection, awaitable=False)
    elif names & {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
        from oncemq.databases.with_sqlalchemy import SqlAlchemy

        found = SqlAlchemy(connection, awaitable=True)
    if found is None:
        raise DatabaseRefused(_not_this(connection, names, awaitable=bool(awaitable)))
    if awaitable is not None and found.awaitable != awaitable:
        clients = ("Client", "AsyncClient")
        raise DatabaseRefused(
            f"{_name(connection)} {'must be awaited' if found.awaitable else 'blocks'}: use it "
            f"with {clients[found.awaitable]}; {clients[awaitable]} takes "
            f"{SUPPORTED_AWAITABLE if awaitable else SUPPORTED}"
        )
    return found


def is_connection(candidate: Any) -> bool:
    """Whether it is a connection at all, and not a function that opens one (some are callable)."""
    names = _names(candidate)
    return any(
        name.rpartition(".")[2].lower().endswith(("connection", "session")) for name in names
    )


async def awaited(answer: T | Awaitable[T]) -> T:
    """What a connection (or a client) answered, awaited where it must be."""
    return await cast("Awaitable[T]", answer) if inspect.isawaitable(answer) else cast("T", answer)


def never_close(connection: object) -> None:
    """In a child of a fork: let a database's connection be, as SQLite asks of its users.

    Not at the end of the process either, so one reference to it stays for good.
    """
    import ctypes  # loaded by those who fork

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def make_ready(connection: Connection) -> Work[None]:
    """See that a transaction can begin: end one that only read, refuse one that wrote."""
    if connection.closed:
        raise DatabaseRefused("the connection to the database is closed; give an open one")
    if not connection.in_transaction:
        return
    wrote = connection.has_written
    if wrote is None:
        wrote = yield from _asked()
    if wrote:
        raise DatabaseRefused(
            "the connection has a transaction open in which something was written already; "
            "commit it or roll it back first: what is committed here is committed whole"
        )
    yield Bound.FINISH


def _asked() -> Work[bool]:
    """PostgreSQL's word: a transaction has a number from its first write on."""
    try:
        rows = yield Ask("SELECT txid_current_if_assigned() IS NOT NULL", {})
    except Exception as error:
        raise DatabaseRefused(
            f"the connection has a transaction open that failed ({error}); roll it back first"
        ) from error
    return bool(rows[0][0])


def _names(connection: Any) -> set[str]:
    """Library and name of the type and all it derives from: `psycopg.Connection`."""
    return {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(connection).__mro__}


def _name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"


def _not_this(connection: Any, names: set[str], *, awaitable: bool) -> str:
    supported = SUPPORTED_AWAITABLE if awaitable else SUPPORTED
    if names & {"sqlalchemy.Engine", "sqlalchemy.AsyncEngine"}:
        return (
            "an engine has many connections, and a transaction is one connection's: give "
            "`engine.connect()`"
        )
    if any("Pool" in name for name in names):
        return (
            f"{_name(connection)} is a pool, and a transaction is one connection's: give a "
            "connection taken from it"
        )
    return f"{_name(connection)} is not a connection we know; give {supported}"
