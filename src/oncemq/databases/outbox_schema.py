"""The tables of the outbox in a user's database.

`oncemq_outbox` holds what is to be published; a put is an INSERT into it, from any language.
`oncemq_outbox_topics` is the relay's: where it stands on each topic, and which rows have numbers.
`oncemq_outbox_relay` is one row: the name this outbox has at the server.

The order in which rows are published is the order of (place, id). On SQLite writers follow one
another, so ids are in the order of commits. On PostgreSQL they are not, nor are transaction ids:
a transaction that began early may see, and answer, one that began late. So there a transaction
gets its place when it commits, from a deferred trigger: whoever saw another's rows, or waited for
its locks, has the higher place. A row that no trigger saw (restored, or written with triggers
off) has place 0 and goes first: nothing is skipped.

Tables of older versions have no column `newest` until they are given one: by the first relay that
starts and owns the table, within a second or not at all. Without it a relay goes on as it used to.
"""

from oncemq.databases import newest
from oncemq.databases.statements import Ask, Bound, Kind, Tell, Work
from oncemq.errors import DatabaseRefused

_STANDINGS = "oncemq_outbox_topics"
WAKE = "oncemq_outbox"  # what PostgreSQL notifies of a commit
NO_OUTBOX = (
    "this database has no outbox yet: `oncemq.outbox(connection).create()` makes it, outside a "
    "transaction; so does the relay when it starts"
)

_SQLITE = (
    """CREATE TABLE IF NOT EXISTS oncemq_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL CHECK (typeof(topic) = 'text'),
    payload BLOB NOT NULL,
    key BLOB,
    headers TEXT,
    failed TEXT,
    written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)""",
    """CREATE INDEX IF NOT EXISTS oncemq_outbox_order
    ON oncemq_outbox (topic, id) WHERE failed IS NULL""",
    """CREATE TABLE IF NOT EXISTS oncemq_outbox_topics (
    topic TEXT PRIMARY KEY,
    producer BLOB NOT NULL,
    topic_id INTEGER NOT NULL DEFAULT 0,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    planned TEXT NOT NULL DEFAULT '',
    planned_place INTEGER NOT NULL DEFAULT 0,
    last_place INTEGER NOT NULL DEFAULT 0,
    stopped TEXT NOT NULL DEFAULT '',
    version INTEGER NOT NULL DEFAULT 0,
    newest TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS oncemq_outbox_relay (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    name TEXT NOT NULL
)""",
    """INSERT INTO oncemq_outbox_relay (only_one, name)
    VALUES (1, 'outbox-' || lower(hex(randomblob(8)))) ON CONFLICT DO NOTHING""",
)

_POSTGRESQL = (
    """CREATE TABLE IF NOT EXISTS oncemq_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    place bigint NOT NULL DEFAULT 0,
    topic text NOT NULL,
    payload bytea NOT NULL,
    key bytea,
    headers text,
    failed text,
    written timestamptz NOT NULL DEFAULT now()
)""",
    """CREATE INDEX IF NOT EXISTS oncemq_outbox_order
    ON oncemq_outbox (topic, place, id) WHERE failed IS NULL""",
    """CREATE SEQUENCE IF NOT EXISTS oncemq_outbox_place""",
    # By the table's own schema: whoever writes may have another path.
    """CREATE OR REPLACE FUNCTION oncemq_outbox_committing() RETURNS trigger
    LANGUAGE plpgsql AS $$
DECLARE
    mine text := current_setting('oncemq.place', true);
    whose text := pg_current_xact_id()::text || ' ' || TG_RELID || ' ';
BEGIN
    IF mine IS NULL OR NOT starts_with(mine, whose) THEN
        mine := whose || nextval(format('%I.oncemq_outbox_place', TG_TABLE_SCHEMA)::regclass);
        PERFORM set_config('oncemq.place', mine, true);
        PERFORM pg_notify('oncemq_outbox', '');
    END IF;
    EXECUTE format('UPDATE %I.oncemq_outbox SET place = $1 WHERE id = $2', TG_TABLE_SCHEMA)
        USING split_part(mine, ' ', 3)::bigint, NEW.id;
    RETURN NULL;
END $$""",
    """DROP TRIGGER IF EXISTS oncemq_outbox_committing ON oncemq_outbox""",
    """CREATE CONSTRAINT TRIGGER oncemq_outbox_committing
    AFTER INSERT ON oncemq_outbox DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION oncemq_outbox_committing()""",
    """CREATE TABLE IF NOT EXISTS oncemq_outbox_topics (
    topic text PRIMARY KEY,
    producer bytea NOT NULL,
    topic_id bigint NOT NULL DEFAULT 0,
    acknowledged bigint NOT NULL DEFAULT 0,
    planned text NOT NULL DEFAULT '',
    planned_place bigint NOT NULL DEFAULT 0,
    last_place bigint NOT NULL DEFAULT 0,
    stopped text NOT NULL DEFAULT '',
    version bigint NOT NULL DEFAULT 0,
    newest text NOT NULL DEFAULT ''
)""",
    """CREATE TABLE IF NOT EXISTS oncemq_outbox_relay (
    only_one integer PRIMARY KEY CHECK (only_one = 1),
    name text NOT NULL
)""",
    """INSERT INTO oncemq_outbox_relay (only_one, name)
    VALUES (1, 'outbox-' || left(replace(gen_random_uuid()::text, '-', ''), 16))
    ON CONFLICT DO NOTHING""",
)

_STATEMENTS: dict[str, tuple[str, ...]] = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}

# The last thing that is made: where it is, all is.
_IS_MADE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE name = 'oncemq_outbox_relay'",
    "postgresql": "SELECT 1 WHERE to_regclass('oncemq_outbox_relay') IS NOT NULL",
}


def outbox_schema(kind: str) -> str:
    """The SQL that makes the outbox's tables, for `sqlite` or `postgresql`."""
    if kind not in _STATEMENTS:
        raise ValueError(f"no outbox for {kind!r}; there is one for: {', '.join(_STATEMENTS)}")
    return ";\n\n".join(_STATEMENTS[kind]) + ";\n"


def is_made(kind: Kind) -> Work[bool]:
    """Whether the database has an outbox."""
    return bool((yield Ask(_IS_MADE[kind], {})))


def has_notes(kind: Kind) -> Work[bool]:
    """Whether the relay's table has the column `newest`."""
    return (yield from newest.is_there(kind, _STANDINGS))


def make_tables(kind: Kind) -> Work[None]:
    """Make what is missing, in a transaction of its own; a column that is missing, if possible."""
    yield Bound.BEGIN
    try:
        if not (yield from is_made(kind)):
            if kind == "postgresql":  # two that make the same tables at once would collide
                yield Ask("SELECT pg_advisory_xact_lock(hashtext('oncemq_outbox'))", {})
            for statement in _STATEMENTS[kind]:
                yield Tell(statement, {})
        wanting = yield from newest.can_be_added(kind, _STANDINGS)
    except Exception as error:
        yield Bound.ROLLBACK
        raise DatabaseRefused(
            f"the tables of the outbox cannot be made here ({error}); let someone who may run "
            f"the SQL that `once relay schema {kind}` prints"
        ) from error
    yield Bound.COMMIT
    if wanting:
        yield from newest.add(kind, _STANDINGS, "text NOT NULL DEFAULT ''")
