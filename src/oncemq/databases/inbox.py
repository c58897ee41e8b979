"""The table of the inbox: where each subscription stands, and which process may move it.

Laws: a cursor moves in the transaction of the effect, from exactly where it stood; taking a
subscription over raises its fence, in a transaction of its own, so that an older process fails
its commit, whenever it wakes. A row belongs to one subscription for good: its id is never used
again, neither when a client subscribes again nor when a topic is deleted and made again. A row
notes the last message whose effect is there, so that a copy of the server's data with another one
at its offset is told. Tables of older versions have no column for that until they are given one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oncemq.databases import newest
from oncemq.databases.connections import Connection
from oncemq.databases.statements import Ask, Bound, Kind, Tell, Work, roll_back
from oncemq.errors import ConfigError, DatabaseRefused, Fenced, InboxGap
from oncemq.protocol.generations import FIRST
from oncemq.protocol.names import Generation, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.session.inbox_rule import InboxNote, Mark, Move

TABLE = "oncemq_inbox"

_SCHEMA = """\
CREATE TABLE IF NOT EXISTS oncemq_inbox (
    client TEXT NOT NULL,
    topic TEXT NOT NULL,
    subscription_id BIGINT NOT NULL, -- never used twice, by no server
    cursor BIGINT NOT NULL,          -- the next offset whose effect is not here yet
    fence BIGINT NOT NULL,           -- grows when a process takes the subscription over
    updated {time} NOT NULL DEFAULT CURRENT_TIMESTAMP,
    newest TEXT,                     -- the offset before the cursor, @, when it was stored
    PRIMARY KEY (client, topic, subscription_id)
)"""
_TIMES = {"sqlite": "TEXT", "postgresql": "TIMESTAMPTZ"}
_THERE = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'oncemq_inbox'",
    "postgresql": "SELECT count(*) FROM pg_class WHERE oid = to_regclass('oncemq_inbox')",
}
_ROW = "client = :client AND topic = :topic AND subscription_id = :subscription_id"
READ = f"SELECT cursor, fence FROM oncemq_inbox WHERE {_ROW}"
READ_NOTED = f"SELECT cursor, fence, newest FROM oncemq_inbox WHERE {_ROW}"
ADD = (
    "INSERT INTO oncemq_inbox (client, topic, subscription_id, cursor, fence) "
    "VALUES (:client, :topic, :subscription_id, :cursor, :taken) ON CONFLICT DO NOTHING"
)
TAKE = (
    "UPDATE oncemq_inbox SET fence = :taken, updated = CURRENT_TIMESTAMP "
    f"WHERE {_ROW} AND fence = :fence AND cursor = :cursor"
)
MOVE = (
    "UPDATE oncemq_inbox SET cursor = :after, updated = CURRENT_TIMESTAMP "
    f"WHERE {_ROW} AND fence = :fence AND cursor = :before"
)
_AND_NOTE = " = :after, newest = :newest"
# A subscription's number is its log's identity in the upper half, a count in the lower.
PRUNE = (
    "DELETE FROM oncemq_inbox WHERE client = :client AND topic = :topic "
    "AND subscription_id < :subscription_id AND subscription_id >= :log"
)
_CONTENDED = {"40001", "40P01"}  # a serialization failure, a deadlock


class SubscriptionPlace(NamedTuple):
    """A subscription as the client knows it, and how far it has come."""

    topic: str
    subscription_id: SubscriptionId
    reached: Offset
    has_settled: bool = False  # messages of it, wherever they took effect
    served: Offset = Offset(0)  # where the server has it: all from there on is kept
    began: Offset = NO_OFFSET  # where it began; unless the server is of an older version


class InboxRow(NamedTuple):
    """A row as it was read."""

    cursor: Offset
    fence: int
    newest: str | None = None

    @property
    def note(self) -> InboxNote | None:
        """Of the message before the cursor; none where an older version moved it, or a person."""
        note = InboxNote.parse(self.newest)
        return note if note and note.offset == self.cursor - 1 else None


# The generation of the server's log that a cursor is of is in its row's fence, though the table is
# from before generations: who takes a row over under another one sees that. Below a bit that
# makes it higher than all fences of before, there is a count that grows, and under it the
# generation. In the first generation a fence is a count, as it always was; for a while the
# generation was above the count (no log was ever continued so often that the two are mixed up).
_NAMED = 1 << 62
_GENERATION_BITS = 36
_GENERATION_MASK = (1 << _GENERATION_BITS) - 1
_OLD_COUNT_BITS = 40


def generation_of(row: InboxRow) -> Generation:
    """Under which generation of the server's log a row was last taken over."""
    if row.fence & _NAMED:
        return Generation(row.fence & _GENERATION_MASK)
    return Generation((row.fence >> _OLD_COUNT_BITS) + 1)


def _next_fence(fence: int, generation: Generation) -> int:
    if generation == FIRST and fence < 1 << _OLD_COUNT_BITS:
        return fence + 1
    count = ((fence & ~_NAMED) >> _GENERATION_BITS) + 1 if fence & _NAMED else 1
    return _NAMED | count << _GENERATION_BITS | generation & _GENERATION_MASK


class RowOvertaken(Exception):
    """A row is not as it was read."""


def inbox_schema(kind: Kind) -> str:
    """The SQL that makes the inbox's table, for those whose programs may not make tables."""
    if kind not in _TIMES:
        raise ConfigError(f"no schema for {kind!r}; there is one for {' and '.join(_TIMES)}")
    return _SCHEMA.format(time=_TIMES[kind])


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code for what went wrong, however deep a library wrapped it; or nothing."""
    seen: BaseException | None = error
    while seen is not None:
        code: Any = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(code, str):
            return code
        seen = getattr(seen, "orig", None) or seen.__cause__
    return ""


def see_to_table(connection: Connection) -> Work[bool]:
    """Make the table unless it is there, in a transaction of its own; whether it has notes."""
    kind = connection.kind
    if not (yield from _looked(_is_there(kind))):
        yield from _make_table(connection)
    if (yield from _looked(newest.can_be_added(kind, TABLE))):
        yield from newest.add(kind, TABLE, "TEXT")
    return (yield from _looked(newest.is_there(kind, TABLE)))


def _make_table(connection: Connection) -> Work[None]:
    try:
        yield Bound.BEGIN
        yield Tell(inbox_schema(connection.kind), {})
        yield Bound.COMMIT
    except Exception as error:
        yield from roll_back()
        if (yield from _looked(_is_there(connection.kind))):
            return  # two made it at once
        raise DatabaseRefused(
            f"the table {TABLE} is not there and cannot be made ({error}). Have someone who may "
            f"do so run:\n{inbox_schema(connection.kind)};"
        ) from error


def read(
    client: str, places: Sequence[SubscriptionPlace], *, notes: bool = False
) -> Work[list[InboxRow | None]]:
    """What the database says of each, in their order."""
    yield Bound.BEGIN
    rows: list[InboxRow | None] = []
    for place in places:
        row = yield from _row(client, place.topic, place.subscription_id, notes=notes)
        rows.append(row)
    yield Bound.ROLLBACK
    return rows


def take(
    client: str,
    places: Sequence[SubscriptionPlace],
    rows: Sequence[InboxRow | None],
    generation: Generation,
    *,
    notes: bool = False,
) -> Work[list[tuple[str, Mark]]]:
    """Become the one who may move these cursors, if all is still as it was read."""
    marks: list[tuple[str, Mark]] = []
    try:
        yield Bound.BEGIN
        for place, row in zip(places, rows, strict=True):
            mark = yield from _take(client, place, row, generation)
            mark.notes = notes
            marks.append((place.topic, mark))
        yield Bound.COMMIT
    except Exception as error:
        yield from roll_back()
        if sqlstate(error) in _CONTENDED:
            raise RowOvertaken from error
        raise
    return marks


def look(client: str, marks: dict[str, Mark]) -> Work[dict[str, Offset]]:
    """Where subscriptions that were taken over stand now; Fenced when one is no longer ours."""
    cursors: dict[str, Offset] = {}
    yield Bound.BEGIN
    try:
        for topic, mark in marks.items():
            row = yield from _row(client, topic, mark.subscription_id)
            fault = _fault(client, topic, mark.fence, row)
            if fault is not None:
                raise fault
            assert row is not None
            cursors[topic] = row.cursor
    except Exception:
        yield from roll_back()
        raise
    yield Bound.ROLLBACK
    return cursors


def commit(client: str, moves: Sequence[Move]) -> Work[None]:
    """Move the cursors in the transaction that is open, and end it: all of it, or nothing."""
    try:
        yield Bound.CHECK
        for move in moves:
            sql = MOVE.replace(" = :after", _AND_NOTE) if move.newest else MOVE
            if (yield Tell(sql, _move(client, move))) != 1:
                raise RowOvertaken
        yield Bound.COMMIT
    except Exception as error:
        yield from roll_back()
        # A serializable transaction fails by itself when a row it writes was changed: ask why.
        fault = yield from _blame(client, moves, surely=isinstance(error, RowOvertaken))
        if fault is not None:
            raise fault from (None if isinstance(error, RowOvertaken) else error)
        raise


def _take(
    client: str, place: SubscriptionPlace, row: InboxRow | None, generation: Generation
) -> Work[Mark]:
    keys = _keys(client, place.topic, place.subscription_id)
    taken = _next_fence(row.fence if row else 0, generation)
    if row is None and place.has_settled:
        raise InboxGap(_nothing_here(client, place))
    if row is None:
        if (yield Tell(ADD, {**keys, "cursor": place.reached, "taken": taken})) != 1:
            raise RowOvertaken  # another process has added it since
        yield Tell(PRUNE, {**keys, "log": place.subscription_id >> 32 << 32})
        return Mark(place.subscription_id, taken, place.reached, place.reached)
    cursor, fence = row.cursor, row.fence
    if (yield Tell(TAKE, {**keys, "fence": fence, "cursor": cursor, "taken": taken})) != 1:
        raise RowOvertaken
    return Mark(place.subscription_id, taken, cursor, max(place.reached, cursor))


def _nothing_here(client: str, place: SubscriptionPlace) -> str:
    kept = f"; with {place.began} as its cursor instead of {place.reached} they come again as far "
    again = f"{kept}as the topic keeps them" if NO_OFFSET < place.began < place.reached else ""
    return (
        f"this database has no cursor of {place.topic}/{client} yet, but messages up to "
        f"@{place.reached} are settled: they were consumed without it, or into another database, "
        "or it was emptied, or is a copy of before. To go on from there in this one (without "
        f"them{again}):\nINSERT INTO {TABLE} "
        f"(client, topic, subscription_id, cursor, fence) VALUES ('{quoted(client)}', "
        f"'{quoted(place.topic)}', {place.subscription_id}, {place.reached}, 0);"
    )


def quoted(text: str) -> str:
    """As SQL has it between quotes."""
    return text.replace("'", "''")


def _row(
    client: str, topic: str, subscription_id: SubscriptionId, *, notes: bool = False
) -> Work[InboxRow | None]:
    sql = READ_NOTED if notes else READ
    rows = yield Ask(sql, _keys(client, topic, subscription_id))
    if not rows:
        return None
    cursor, fence, *note = rows[0]
    return InboxRow(Offset(cursor), int(fence), *note)


def _keys(client: str, topic: str, subscription_id: SubscriptionId) -> dict[str, str | int]:
    return {"client": client, "topic": topic, "subscription_id": subscription_id}


def _move(client: str, move: Move) -> dict[str, str | int]:
    keys = _keys(client, move.topic, move.subscription_id)
    note = {"newest": move.newest} if move.newest else {}
    return {**keys, **note, "fence": move.fence, "before": move.before, "after": move.after}


def _blame(client: str, moves: Sequence[Move], *, surely: bool) -> Work[Exception | None]:
    """Why a commit failed, if a row of ours was the cause."""
    fault: Exception | None = None
    try:
        yield Bound.BEGIN
        for move in moves:
            row = yield from _row(client, move.topic, move.subscription_id)
            fault = fault or _fault(client, move.topic, move.fence, row)
            if fault is None and row is not None and surely and row.cursor != move.before:
                fault = DatabaseRefused(
                    f"the cursor {move.topic}/{client}@{move.before} in {TABLE} was moved to "
                    f"@{row.cursor} by hand while messages were worked on; nothing was committed"
                )
    except Exception:
        fault = None  # nobody can say
    yield from roll_back()
    return fault


def _fault(client: str, topic: str, fence: int, row: InboxRow | None) -> Exception | None:
    if row is None:
        return DatabaseRefused(
            f"{TABLE} has no row for {topic}/{client} any more: the table was emptied, the "
            "subscription was made anew by another process, or this connection goes to another "
            "database than before. Nothing was committed; use the database that it was consumed "
            "into, or start this client again to go on"
        )
    if row.fence == fence:
        return None
    return Fenced(
        f"another process of client {client!r} has taken over {topic!r} in this database (fence "
        f"{row.fence}, ours is {fence}): nothing was committed, and this one must stop"
    )


def _is_there(kind: Kind) -> Work[bool]:
    return bool((yield Ask(_THERE[kind], {}))[0][0])


def _looked(work: Work[bool]) -> Work[bool]:
    """The answer, in a transaction of its own that changes nothing."""
    yield Bound.BEGIN
    answer = yield from work
    yield Bound.ROLLBACK
    return answer
