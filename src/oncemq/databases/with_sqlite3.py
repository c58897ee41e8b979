"""A connection of Python's own sqlite3, in each of its modes but one.

Law: a transaction of ours writes from its start (BEGIN IMMEDIATE), so that it fails before the
user's work and not after; a savepoint at its start tells whether it is still the same at its end.
"""

from typing import Any, assert_never

from oncemq.databases.statements import Ask, Bound, Kind, Step, Tell, TellMany
from oncemq.errors import DatabaseRefused

ENDED_INSIDE = (
    "the transaction was committed or rolled back by the code inside it; leave that to the end "
    "of the block: only then do effect and cursor go together"
)
_MARK = "oncemq"
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, of Python 3.12


class Sqlite3:
    """`sqlite3.Connection`, with `isolation_level` set or None, or `autocommit=True`."""

    kind: Kind = "sqlite"
    awaitable = False

    def __init__(self, connection: Any, *, joins: bool = False) -> None:
        self._connection = connection
        if getattr(connection, "autocommit", _LEGACY) is False and not joins:
            raise DatabaseRefused(
                "a sqlite3 connection with autocommit=False always has a transaction open, and "
                "nobody can tell what is in it; open it with autocommit=True, or without the "
                "argument: transactions are begun and committed for you"
            )

    @property
    def closed(self) -> bool:
        try:
            self._connection.in_transaction  # noqa: B018 - raises when it is closed
            self._connection.cursor().close()
        except Exception as error:
            if "closed" in str(error):
                return True
            raise
        return False

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def has_written(self) -> bool:
        return True  # sqlite3 begins one for writing only, or because the user said BEGIN

    def perform(self, step: Step) -> Any:
        """Carry out one step."""
        cursor = self._connection.cursor()
        cursor.row_factory = None  # tuples, whatever the user's own rows are
        match step:
            case Ask(sql, parameters):
                return cursor.execute(sql, parameters).fetchall()
            case Tell(sql, parameters):
                return cursor.execute(sql, parameters).rowcount
            case TellMany(sql, parameters):
                return cursor.executemany(sql, parameters)
            case Bound.BEGIN:
                cursor.execute("BEGIN IMMEDIATE")
                cursor.execute(f"SAVEPOINT {_MARK}")
            case Bound.CHECK:
                self._release(cursor)
            case Bound.COMMIT:
                cursor.execute("COMMIT")
            case Bound.ROLLBACK | Bound.FINISH:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
            case _:
                assert_never(step)
        return None

    def _release(self, cursor: Any) -> None:
        """The savepoint went with its transaction, if that was ended."""
        try:
            cursor.execute(f"RELEASE {_MARK}")
        except Exception as error:
            if "no such savepoint" in str(error):
                raise DatabaseRefused(ENDED_INSIDE) from None
            raise
