"""A connection or session of SQLAlchemy 2, blocking or awaitable, on SQLite or PostgreSQL.

Laws: a transaction that SQLAlchemy began by itself for a read is ended before ours begins; on
SQLite ours writes from its start, as with sqlite3; one that the code inside committed or rolled
back is noticed at its end.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, assert_never

from oncemq.databases.statements import Ask, Bound, Kind, Parameters, Step, Tell, TellMany
from oncemq.databases.with_sqlite3 import ENDED_INSIDE
from oncemq.errors import DatabaseRefused


class SqlAlchemy:
    """`Connection`, `Session`, `AsyncConnection` and `AsyncSession`: the same four verbs."""

    kind: Kind

    def __init__(self, connection: Any, *, awaitable: bool) -> None:
        self.awaitable = awaitable
        # A scoped_session stands for the session of this thread.
        self._connection: Any = connection() if hasattr(connection, "registry") else connection
        self._is_session = hasattr(self._connection, "get_bind")
        bind: Any = self._connection.get_bind() if self._is_session else self._connection
        bind = getattr(bind, "sync_connection", bind)
        if bind is None:
            raise DatabaseRefused("the connection is not open yet: `await engine.connect()`")
        self._dialect = bind.dialect
        if self._dialect.name not in ("sqlite", "postgresql"):
            raise DatabaseRefused(
                f"SQLAlchemy is connected to {self._dialect.name}; SQLite and PostgreSQL are "
                "supported"
            )
        if awaitable and self._dialect.name == "sqlite":
            raise DatabaseRefused(
                "SQLite is used through a sqlite3.Connection here, also with AsyncClient; "
                f"{self._dialect.driver} is not supported"
            )
        self.kind = self._dialect.name
        if _is_autocommit(bind):
            raise DatabaseRefused(
                "the connection is in AUTOCOMMIT and has no transactions; give one without that "
                "isolation level"
            )
        self._text: Any = import_module("sqlalchemy").text
        self._transaction: Any = None

    @property
    def closed(self) -> bool:
        return bool(getattr(self._connection, "closed", False))

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction())

    @property
    def has_written(self) -> bool | None:
        one = self._connection
        if self._is_session and (any(one.new) or any(one.dirty) or any(one.deleted)):
            return True  # or will, with the next commit
        return self._driver_in_transaction() if self.kind == "sqlite" else None

    def perform(self, step: Step) -> Any:
        """Carry out one step, or give what to await for it."""
        return self._perform_awaitable(step) if self.awaitable else self._perform(step)

    def _perform(self, step: Step) -> Any:
        match step:
            case Ask(sql, parameters):
                return _rows(self._execute(sql, parameters))
            case Tell(sql, parameters):
                return self._execute(sql, parameters).rowcount
            case TellMany(sql, many):
                return self._execute(sql, many)
            case Bound.BEGIN:
                self._transaction = self._begin()
                if self.kind == "sqlite" and not self._driver_in_transaction():
                    self._connection.execute(self._text("BEGIN IMMEDIATE"))
            case Bound.CHECK:
                self._check_active()
            case Bound.COMMIT:
                self._transaction.commit()
            case Bound.ROLLBACK:
                self._connection.rollback()
            case Bound.FINISH:
                self._connection.commit()
            case _:
                assert_never(step)
        return None

    async def _perform_awaitable(self, step: Step) -> Any:
        match step:
            case Ask(sql, parameters):
                return _rows(await self._execute(sql, parameters))
            case Tell(sql, parameters):
                return (await self._execute(sql, parameters)).rowcount
            case TellMany(sql, many):
                await self._execute(sql, many)
            case Bound.BEGIN:
                self._transaction = await self._begin()
            case Bound.CHECK:
                self._check_active()
            case Bound.COMMIT:
                await self._transaction.commit()
            case Bound.ROLLBACK:
                await self._connection.rollback()
            case Bound.FINISH:
                await self._connection.commit()
            case _:
                assert_never(step)
        return None

    def _execute(self, sql: str, parameters: Parameters | Sequence[Parameters]) -> Any:
        return self._connection.execute(self._text(sql), parameters)

    def _begin(self) -> Any:
        try:
            return self._connection.begin()
        except Exception as error:
            raise DatabaseRefused(
                f"no transaction can begin on this connection: {error}. Give one from "
                "`engine.connect()`: the block is the transaction"
            ) from error

    def _check_active(self) -> None:
        if not self._transaction.is_active:
            raise DatabaseRefused(ENDED_INSIDE)

    def _driver_in_transaction(self) -> bool:
        """What sqlite3 itself says: SQLAlchemy counts from its first statement on."""
        one = self._connection.connection() if self._is_session else self._connection
        return bool(one.connection.driver_connection.in_transaction)


def _is_autocommit(bind: Any) -> bool:
    """Set for this connection, for the engine's options, or for the engine as it was made."""
    level = bind.get_execution_options().get("isolation_level")
    if level is None:
        level = getattr(bind.dialect, "_on_connect_isolation_level", None)
    return level == "AUTOCOMMIT"


def _rows(result: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in result]
