"""A user's database in a simulated world: rows, transactions, and effects that are judged.

It knows the statements of the inbox and no others. Laws: a transaction is there whole or not at
all, and ends with its process; a row that another transaction has written cannot be written. What
the user wrote, the effects, is committed with it, and each commit is judged: an effect that comes
twice, or not in order, or past a gap, or from a process whose row another one has taken over, is
trouble whatever else happened (G5).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from oncemq.databases import inbox as table
from oncemq.databases.statements import (
    Ask,
    Bound,
    Kind,
    Parameters,
    Row,
    Statement,
    Step,
    Tell,
    TellMany,
)
from oncemq.errors import OnceMQError

Key = tuple[Any, ...]
Effect = tuple[str, int, int]  # topic, subscription, offset
WAY_OUT = re.compile(
    r"UPDATE oncemq_inbox SET cursor = (?P<cursor>\d+) WHERE client = '(?P<client>.*)' "
    r"AND topic = '(?P<topic>.*)' AND subscription_id = (?P<number>\d+) "
    r"AND cursor = (?P<known>\d+)( AND fence = (?P<fence>\d+))?;"
)

BEGINS_ANEW = re.compile(
    r"INSERT INTO oncemq_inbox \(client, topic, subscription_id, cursor, fence\) VALUES "
    r"\('(?P<client>.*)', '(?P<topic>.*)', (?P<number>\d+), (?P<cursor>\d+), 0\);"
)


class RowBusy(OnceMQError):
    """Another transaction has the row; as PostgreSQL says it."""

    code = "busy"
    sqlstate = "40001"


class FakeDatabase:
    """What is committed."""

    def __init__(
        self,
        trouble: Callable[[str], None],
        is_hole: Callable[[str, int, int], bool] = lambda topic, low, high: False,
    ) -> None:
        self.rows: dict[Key, tuple[int, int]] = {}  # cursor and fence
        self.notes: dict[Key, Any] = {}  # of the last message, beside the rows
        self.writers: dict[Key, FakeConnection] = {}
        self._takers: dict[Key, FakeConnection] = {}  # who raised the fence of a row last
        self._trouble = trouble
        self._is_hole = is_hole
        self._next: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], int] = {}  # that ever took effect
        # Below it all took effect, in a database that is lost: the server may free it meanwhile.
        self._lost: dict[tuple[str, int], int] = {}

    def comes_back_empty(self) -> None:
        """Its machine is gone: all that ever took effect is to come again, or to be told of."""
        assert not self.writers, "who wrote has ended with it"
        self.rows, self.notes, self._takers = {}, {}, {}
        self._lost.update(self._next)
        self._next = dict(self._first)

    def by_hand(self, told: str) -> bool:
        """A person runs the command that an error names; False while the row is being written.

        An error that names none says to start the client again: the next call does as well.
        """
        if (found := BEGINS_ANEW.search(told)) is not None:
            number, cursor = int(found["number"]), int(found["cursor"])
            key = (found["client"], found["topic"], number)
            if key not in self.rows:
                self.rows[key] = cursor, 0
                self._next[found["topic"], number] = cursor
            return True
        if (found := WAY_OUT.search(told)) is None:
            return True
        client, topic = found["client"], found["topic"]
        cursor, known, number = (int(found[name]) for name in ("cursor", "known", "number"))
        key = (client, topic, number)
        if key in self.writers:
            return False
        fence = self.rows[key][1]
        if self.rows[key] == (known, int(found["fence"] or fence)):
            lost = self._lost.get((topic, number), 0)
            if cursor > max(known, lost) and not self._is_hole(topic, known, cursor):
                self._trouble(f"effect: {topic}@{known} up to @{cursor} would never come: {told}")
            self.rows[key] = cursor, fence
            self._next[topic, number] = cursor
        return True

    def write(self, key: Key, row: tuple[int, int] | None, writer: "FakeConnection") -> bool:
        """A row of a commit; whether the writer takes it over with that."""
        before = self.rows.pop(key, None)
        if row is None:
            return False
        self.rows[key] = row
        if before is None or before[1] != row[1]:
            self._takers[key] = writer
            return True
        if self._takers.get(key, writer) is not writer:
            self._trouble(f"not_fenced: {key[1]}@{row[0]}: moved by who was taken over from")
        return False

    def judge(self, effects: list[Effect]) -> None:
        """These took effect, in this order."""
        for topic, subscription, offset in effects:
            self._first.setdefault((topic, subscription), offset)
            expected = self._next.get((topic, subscription), offset)
            if offset != expected and not self._is_hole(topic, expected, offset):
                what = "twice" if offset < expected else "past a gap"
                self._trouble(f"effect: {topic}@{offset} came {what}, after @{expected - 1}")
            self._next[topic, subscription] = max(expected, offset + 1)


class FakeConnection:
    """One process's connection."""

    kind: Kind = "postgresql"
    awaitable = False
    closed = False
    has_written = False

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database
        self._rows: dict[Key, tuple[int, int] | None] = {}  # written, not committed
        self._notes: dict[Key, Any] = {}
        self._effects: list[Effect] = []
        self._then: list[Callable[[], None]] = []
        self.in_transaction = False
        self.asked = 0  # when the block that it is used for now was asked for
        self.taken: dict[str, int] = {}  # and that in which the row of a topic was taken over

    def write(self, effects: Sequence[Effect], then: Callable[[], None]) -> None:
        """What the user does with messages; `then` is called when it is committed."""
        assert self.in_transaction, "the block is a transaction"
        self._effects += effects
        self._then.append(then)

    def perform(self, step: Step) -> Any:
        """Carry out one step."""
        match step:
            case Bound.BEGIN:
                assert not self.in_transaction
                self.in_transaction = True
            case Bound.CHECK:
                assert self.in_transaction
            case Bound.COMMIT:
                self._commit()
            case Bound.ROLLBACK | Bound.FINISH:
                self._end()
            case Ask() | Tell() | TellMany():
                return self._statement(step)
            case _:
                assert_never(step)
        return None

    def _commit(self) -> None:
        for key, row in self._rows.items():
            if self.database.write(key, row, self):
                self.taken[key[1]] = self.asked
        self.database.notes |= self._notes
        self.database.judge(self._effects)
        then = self._then
        self._end()
        for call in then:
            call()

    def _end(self) -> None:
        for key in self._rows:
            self.database.writers.pop(key, None)
        self._rows, self._notes, self._effects, self._then = {}, {}, [], []
        self.in_transaction = False

    def _statement(self, step: Statement) -> Any:
        assert isinstance(step.parameters, dict)
        parameters: Parameters = step.parameters
        sql = step.sql
        if "count(*)" in sql:
            return [(1,)]  # the table is there
        if sql == table.PRUNE:
            return self._prune(parameters)
        key = (parameters["client"], parameters["topic"], parameters["subscription_id"])
        row = self._rows.get(key, self.database.rows.get(key))
        if sql == table.READ:
            return [] if row is None else [row]
        if sql == table.READ_NOTED:
            return [] if row is None else [(*row, self.database.notes.get(key))]
        if sql == table.ADD:
            if row is not None:
                return 0  # ON CONFLICT DO NOTHING
            self._write(key, (_number(parameters["cursor"]), _number(parameters["taken"])))
            return 1
        if row is None or not _matches(sql, parameters, row):
            return 0
        self._write(key, _changed(sql, parameters, row))
        if "newest" in parameters:
            self._notes[key] = parameters["newest"]
        return 1

    def _prune(self, parameters: Parameters) -> int:
        own = (parameters["client"], parameters["topic"])
        log, most = _number(parameters["log"]), _number(parameters["subscription_id"])
        old = [key for key in self.database.rows if key[:2] == own and log <= key[2] < most]
        for key in old:
            self._write(key, None)
        return len(old)

    def _write(self, key: Key, row: tuple[int, int] | None) -> None:
        if self.database.writers.setdefault(key, self) is not self:
            raise RowBusy(f"another transaction has {key}")
        self._rows[key] = row


def _number(value: Any) -> int:
    return int(value)


def _matches(sql: str, parameters: Parameters, row: Row) -> bool:
    """Whether the row is as the statement's conditions say."""
    conditions = sql.partition(" WHERE ")[2]
    named = {"fence = :fence": row[1], "cursor = :cursor": row[0], "cursor = :before": row[0]}
    return all(
        parameters[condition.rpartition(":")[2]] == value
        for condition, value in named.items()
        if condition in conditions
    )


def _changed(sql: str, parameters: Parameters, row: tuple[int, int]) -> tuple[int, int]:
    cursor, fence = row
    if "cursor = :after" in sql:
        cursor = _number(parameters["after"])
    if "fence = :taken" in sql:
        fence = _number(parameters["taken"])
    return cursor, fence
