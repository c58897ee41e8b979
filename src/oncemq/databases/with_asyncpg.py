"""A connection of asyncpg: its own, or one taken from its pool.

Law: a transaction of ours is a `connection.transaction()`, so that the user's own inside it
are savepoints.
"""

from typing import Any, assert_never

from oncemq.databases.statements import (
    Ask,
    Bound,
    Kind,
    Parameters,
    Step,
    Tell,
    TellMany,
    numbered,
)
from oncemq.databases.with_sqlite3 import ENDED_INSIDE
from oncemq.errors import DatabaseRefused


class Asyncpg:
    """`asyncpg.Connection`."""

    kind: Kind = "postgresql"
    awaitable = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    @property
    def has_written(self) -> None:
        return None

    async def perform(self, step: Step) -> Any:
        """Carry out one step."""
        match step:
            case Ask(sql, parameters):
                sql, names = numbered(sql)
                rows = await self._connection.fetch(sql, *(parameters[name] for name in names))
                return [tuple(row) for row in rows]
            case Tell(sql, parameters):
                return await self._tell(sql, parameters)
            case TellMany(sql, many):
                sql, names = numbered(sql)
                rows = [tuple(each[name] for name in names) for each in many]
                await self._connection.executemany(sql, rows)
            case Bound.BEGIN:
                transaction = self._connection.transaction()
                await transaction.start()
                self._transaction = transaction
            case Bound.CHECK:
                if not self.in_transaction:
                    raise DatabaseRefused(ENDED_INSIDE)
            case Bound.COMMIT:
                await self._transaction.commit()
            case Bound.ROLLBACK:
                await self._transaction.rollback()
            case Bound.FINISH:
                raise DatabaseRefused(
                    "the connection has a transaction of your own open; leave it first: the "
                    "block is a transaction itself"
                )
            case _:
                assert_never(step)
        return None

    async def _tell(self, sql: str, parameters: Parameters) -> int:
        sql, names = numbered(sql)
        status = await self._connection.execute(sql, *(parameters[name] for name in names))
        count = str(status).rpartition(" ")[2]  # "UPDATE 1"
        return int(count) if count.isdigit() else -1
