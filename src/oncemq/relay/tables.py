"""The outbox's tables as the relay reads and writes them.

Laws: what a relay decided and what it frees go in one transaction, and only if the standing is
what the relay took it for; no payload is read before it is chosen.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from oncemq.databases.outbox_schema import WAKE, has_notes
from oncemq.databases.statements import Ask, Bound, Kind, Parameters, Tell, Work
from oncemq.protocol.names import ProducerId
from oncemq.relay.topic_relay import NumberRows, Row, StandingChange, TopicRelay, TopicStanding
from oncemq.wire.batch import Headers, Item

ROWS_MAX = 2_000  # of one batch
BYTES_MAX = 1 << 20

_FIELDS = (
    "topic, producer, topic_id, acknowledged, planned, planned_place, last_place, stopped, version"
)
_TOPICS = """
    WITH RECURSIVE found (topic) AS (
        SELECT min(topic) FROM oncemq_outbox WHERE failed IS NULL
        UNION ALL
        SELECT (SELECT min(topic) FROM oncemq_outbox WHERE failed IS NULL AND topic > found.topic)
        FROM found WHERE found.topic IS NOT NULL
    )
    SELECT topic FROM found WHERE topic IS NOT NULL"""
_WRITE = """
    UPDATE oncemq_outbox_topics
    SET producer = :producer, topic_id = :topic_id, acknowledged = :acknowledged,
        planned = :planned, planned_place = :planned_place, last_place = :last_place,
        stopped = :stopped, version = :version{and_note}
    WHERE topic = :topic AND version = :version_before"""
# In SQLite a text stays a text in any column, if someone wrote one.
_COLUMNS = {
    "sqlite": "CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB)",
    "postgresql": "payload, key, headers",
}
_SIZES = {
    "sqlite": "length(CAST(payload AS BLOB)), coalesce(length(CAST(key AS BLOB)), 0), "
    "CAST(headers AS BLOB)",
    "postgresql": "octet_length(payload), coalesce(octet_length(key), 0), headers",
}
_FROM = "FROM oncemq_outbox WHERE topic = :topic AND failed IS NULL"
_WAITING = {
    "sqlite": [f"SELECT id, 0, {_SIZES['sqlite']} {_FROM} ORDER BY id LIMIT :rows"],
    "postgresql": [  # the rest of a transaction that was broken off goes first
        f"SELECT id, place, {_SIZES['postgresql']} {_FROM} AND place {which} :last_place "
        f"ORDER BY {order} LIMIT :rows"
        for which, order in (("=", "id"), ("<>", "place, id"))
    ],
}
_AMONG = {
    "sqlite": "id IN (SELECT value FROM json_each(:ids))",
    "postgresql": "id = ANY (ARRAY(SELECT json_array_elements_text(CAST(:ids AS json))::bigint))",
}

_headers = msgspec.json.Decoder(Headers).decode


class StandingOvertaken(Exception):
    """Another relay (or a person) has changed where the outbox stands: begin again."""


class RelayTables:
    """The statements for one kind of database."""

    def __init__(self, kind: Kind) -> None:
        self._kind: Kind = kind
        self._notes: bool | None = None  # not looked yet

    def has_notes(self) -> Work[bool]:
        """Whether the table has a column for `TopicStanding.newest`: an older version made none."""
        if self._notes is None:
            self._notes = yield from has_notes(self._kind)
        return self._notes

    def name(self) -> Work[str]:
        """What this outbox is called at the server, wherever its relay runs."""
        return (yield Ask("SELECT name FROM oncemq_outbox_relay", {}))[0][0]

    def topics(self) -> Work[list[str]]:
        """The topics that rows wait for: a step through the index for each, not for each row."""
        return [topic for (topic,) in (yield Ask(_TOPICS, {}))]

    def standing(self, topic: str, producer: ProducerId) -> Work[TopicStanding]:
        """Where the outbox stands on a topic; it begins with this producer if it is new."""
        found = yield from self.standings(topic)
        if not found:
            yield Tell(
                "INSERT INTO oncemq_outbox_topics (topic, producer) VALUES (:topic, :producer) "
                "ON CONFLICT DO NOTHING",
                {"topic": topic, "producer": producer},
            )
            found = yield from self.standings(topic)
        return found[0]

    def standings(self, topic: str | None = None) -> Work[list[TopicStanding]]:
        """Where the outbox stands, on one topic or on all."""
        where = "" if topic is None else " WHERE topic = :topic"
        fields = f"{_FIELDS}, newest" if (yield from self.has_notes()) else _FIELDS
        sql = f"SELECT {fields} FROM oncemq_outbox_topics{where} ORDER BY topic"
        rows = yield Ask(sql, {} if topic is None else {"topic": topic})
        return [_standing(*row) for row in rows]

    def turn(
        self, changed: Sequence[TopicRelay], due: Sequence[TopicRelay], *, message_bytes: int
    ) -> Work[None]:
        """Commit what was decided, then number what waits for those that are due; all, or none."""
        yield Bound.BEGIN
        try:
            for errand in changed:
                yield from self._commit(errand)
            for errand in due:
                if isinstance(errand.next(), NumberRows):
                    rows = yield from self.waiting(errand.standing, message_bytes)
                    errand.plan(rows, rows_max=ROWS_MAX, bytes_max=BYTES_MAX)
                    yield from self._commit(errand)
        except Exception:
            yield Bound.ROLLBACK
            raise
        yield Bound.COMMIT

    def _commit(self, errand: TopicRelay) -> Work[None]:
        if errand.change is not None:
            yield from self.write(errand.change)
            errand.committed()

    def waiting(self, standing: TopicStanding, message_bytes: int) -> Work[list[Row]]:
        """The next rows of a topic, in the order they are to be published."""
        found: list[Row] = []
        for sql in _WAITING[self._kind]:
            if len(found) < ROWS_MAX:
                about = {
                    "topic": standing.topic,
                    "last_place": standing.last_place,
                    "rows": ROWS_MAX - len(found),
                }
                for row, place, size, more, headers in (yield Ask(sql, _used(sql, about))):
                    fault = _fault(size, headers, message_bytes)
                    found.append(Row(row, place, size + more + len(headers or ""), fault))
        return found

    def contents(self, ids: Sequence[int]) -> Work[list[Item] | None]:
        """The messages of these rows, in their order; None when one is missing."""
        rows = yield Ask(
            f"SELECT id, {_COLUMNS[self._kind]} FROM oncemq_outbox WHERE {_AMONG[self._kind]}",
            {"ids": json.dumps(ids)},
        )
        by_id = {
            row: Item(
                bytes(payload),
                None if key is None else bytes(key),
                _headers(headers) if headers else None,
            )
            for row, payload, key, headers in rows
        }
        return [by_id[each] for each in ids] if len(by_id) == len(ids) else None

    def wake(self) -> Work[None]:
        """Let the relay look at once when this transaction commits (SQLite tells by itself)."""
        if self._kind == "postgresql":
            yield Ask(f"SELECT pg_notify('{WAKE}', '')", {})

    def write(self, change: StandingChange) -> Work[None]:
        """One change; Overtaken when someone else was here."""
        after = change.after
        fields: dict[str, Any] = {
            **msgspec.structs.asdict(after),
            "planned": format_ids(after.planned),
            "version_before": change.before.version,
        }
        if (yield from self.has_notes()):
            sql = _WRITE.format(and_note=", newest = :newest")
        else:
            sql = _WRITE.format(and_note="")
            del fields["newest"]
        if (yield Tell(sql, fields)) != 1:
            raise StandingOvertaken(after.topic)
        if change.freed:
            ids = json.dumps(change.freed)
            yield Tell(f"DELETE FROM oncemq_outbox WHERE {_AMONG[self._kind]}", {"ids": ids})
        if change.set_aside:
            yield Tell(
                f"UPDATE oncemq_outbox SET failed = :reason WHERE {_AMONG[self._kind]}",
                {"ids": json.dumps(change.set_aside), "reason": change.reason},
            )


def _standing(topic: str, producer: bytes, *fields: Any) -> TopicStanding:
    topic_id, acknowledged, planned, *rest = fields
    own = ProducerId(bytes(producer))
    return TopicStanding(topic, own, topic_id, acknowledged, parse_ids(planned), *rest)


def _fault(size: int, headers: str | bytes | None, message_bytes: int) -> str:
    if size > message_bytes:
        return f"a message of {size} bytes is over the server's limit of {message_bytes}"
    if headers:
        try:
            _headers(headers)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return f"its headers are no JSON object of texts: {error}"
    return ""


def _used(sql: str, parameters: dict[str, str | int]) -> Parameters:
    """Those that a statement names: asyncpg and sqlite3 differ about the others."""
    return {name: value for name, value in parameters.items() if f":{name}" in sql}


def format_ids(ids: Iterable[int]) -> str:
    """Ids in their order, runs of them in short: `5-90,7,92-93`."""
    spans: list[list[int]] = []
    for each in ids:
        if spans and spans[-1][1] + 1 == each:
            spans[-1][1] = each
        else:
            spans.append([each, each])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in spans)


def parse_ids(text: str) -> tuple[int, ...]:
    """What `format_ids` wrote."""
    return tuple(_ids(text))


def _ids(text: str) -> Iterator[int]:
    for span in text.split(",") if text else ():
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)
