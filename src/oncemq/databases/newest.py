"""The column `newest`, which tables that an older version made do not have until it is added.

Laws: only who owns the table tries, so that others do not fail again and again in the database's
log; nobody waits for a lock longer than a second. Without the column all goes on as it used to.
"""

from oncemq.databases.statements import Ask, Bound, Kind, Tell, Work, roll_back

_IS_THERE = {
    "sqlite": "SELECT count(*) FROM pragma_table_info('{table}') WHERE name = 'newest'",
    "postgresql": (
        "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('{table}') "
        "AND attname = 'newest' AND NOT attisdropped"
    ),
}
_IS_OURS = {
    "sqlite": "SELECT 1",
    "postgresql": (
        "SELECT count(*) FROM pg_class WHERE oid = to_regclass('{table}') "
        "AND pg_has_role(relowner, 'USAGE')"
    ),
}
_ADD = {
    "sqlite": ("ALTER TABLE {table} ADD COLUMN newest {column}",),
    "postgresql": (
        "SET LOCAL lock_timeout = '1s'",
        "ALTER TABLE {table} ADD COLUMN newest {column}",
    ),
}


def is_there(kind: Kind, table: str) -> Work[bool]:
    """Whether the table has the column."""
    return bool((yield Ask(_IS_THERE[kind].format(table=table), {}))[0][0])


def can_be_added(kind: Kind, table: str) -> Work[bool]:
    """Whether the table is without it, and ours to change."""
    if (yield from is_there(kind, table)):
        return False
    return bool((yield Ask(_IS_OURS[kind].format(table=table), {}))[0][0])


def add(kind: Kind, table: str, column: str) -> Work[None]:
    """Add it, in a transaction of its own, if that is to be had now."""
    try:
        yield Bound.BEGIN
        for statement in _ADD[kind]:
            yield Tell(statement.format(table=table, column=column), {})
        yield Bound.COMMIT
    except Exception:
        yield from roll_back()  # another was first, or has the table locked
