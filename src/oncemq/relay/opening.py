"""From the words a person names a database with to connections of a relay's own."""

from pathlib import Path

from oncemq.databases.opening import awaitable_opener, opener, sqlite_path
from oncemq.errors import DatabaseRefused
from oncemq.relay.database import Connect


def connector(place: str) -> Connect:
    """What connects to a place: `postgresql://…`, `sqlite:///PATH`, or the path of a SQLite file.

    The file must be there: a relay for one that was misspelt would wait for ever.
    """
    path = sqlite_path(place)
    if path is not None and not Path(path).is_file():
        raise DatabaseRefused(
            f"there is no database {path!r}; the program that writes into it makes it, and its "
            "outbox: `oncemq.outbox(connection).create()`"
        )
    return awaitable_opener(place) if "+asyncpg://" in place else opener(place)
