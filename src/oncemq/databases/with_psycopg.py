"""A connection of psycopg 3, blocking or awaitable, autocommit or not.

Law: a transaction of ours is a `connection.transaction()`: psycopg itself then refuses a
`commit()` or `rollback()` by the code inside it.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, assert_never

from oncemq.databases.statements import (
    Ask,
    Bound,
    Kind,
    Parameters,
    Step,
    Tell,
    TellMany,
    pyformat,
)
from oncemq.databases.with_sqlite3 import ENDED_INSIDE
from oncemq.errors import DatabaseRefused

_IDLE = 0  # psycopg.pq.TransactionStatus


class Psycopg:
    """`psycopg.Connection` and `psycopg.AsyncConnection`."""

    kind: Kind = "postgresql"

    def __init__(self, connection: Any, *, awaitable: bool) -> None:
        self._connection = connection
        self.awaitable = awaitable
        self._tuples = import_module("psycopg.rows").tuple_row  # whatever the user's own rows are
        self._give_up = import_module("psycopg").Rollback
        self._transaction: Any = None

    @property
    def closed(self) -> bool:
        return bool(self._connection.closed)

    @property
    def in_transaction(self) -> bool:
        return int(self._connection.info.transaction_status) != _IDLE

    @property
    def has_written(self) -> None:
        return None  # a mere SELECT begins one: the server knows more

    def perform(self, step: Step) -> Any:
        """Carry out one step, or give what to await for it."""
        match step:
            case Ask(sql, parameters):
                return self._ask(sql, parameters)
            case Tell(sql, parameters):
                return self._tell(sql, parameters)
            case TellMany(sql, parameters):
                return self._tell_many(sql, parameters)
            case Bound.BEGIN:
                self._transaction = self._connection.transaction()
                name = "__aenter__" if self.awaitable else "__enter__"
                return getattr(self._transaction, name)()
            case Bound.CHECK:
                return self._check()
            case Bound.COMMIT:
                return self._leave(None)
            case Bound.ROLLBACK:
                if self._transaction is None:  # its end was cut off
                    return self._connection.rollback()
                return self._leave(self._give_up())
            case Bound.FINISH:
                return self._connection.commit()
            case _:
                assert_never(step)

    def _check(self) -> Any:
        if not self.in_transaction:  # psycopg refuses commit(), not a COMMIT in so many words
            raise DatabaseRefused(ENDED_INSIDE)
        return _nothing() if self.awaitable else None

    def _leave(self, error: BaseException | None) -> Any:
        transaction, self._transaction = self._transaction, None
        name = "__aexit__" if self.awaitable else "__exit__"
        return getattr(transaction, name)(type(error) if error else None, error, None)

    def _cursor(self) -> Any:
        return self._connection.cursor(row_factory=self._tuples)

    def _ask(self, sql: str, parameters: Parameters) -> Any:
        if self.awaitable:
            return self._rows(self._cursor(), sql, parameters)
        with self._cursor() as cursor:
            return cursor.execute(pyformat(sql), parameters).fetchall()

    async def _rows(self, cursor: Any, sql: str, parameters: Parameters) -> Any:
        async with cursor:
            await cursor.execute(pyformat(sql), parameters)
            return await cursor.fetchall()

    def _tell(self, sql: str, parameters: Parameters) -> Any:
        if self.awaitable:
            return self._count(self._cursor(), sql, parameters)
        with self._cursor() as cursor:
            return cursor.execute(pyformat(sql), parameters).rowcount

    async def _count(self, cursor: Any, sql: str, parameters: Parameters) -> int:
        async with cursor:
            await cursor.execute(pyformat(sql), parameters)
            return cursor.rowcount

    def _tell_many(self, sql: str, parameters: Sequence[Parameters]) -> Any:
        return self._cursor().executemany(pyformat(sql), parameters)


async def _nothing() -> None:
    """There is nothing to await."""
