"""From the words a person names a database with to connections of a relay's own."""

import re
import sqlite3
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oncemq.errors import ConfigError
from oncemq.relay.desk import Connect

_POSTGRESQL = re.compile(r"postgres(?:ql)?(?:\+(?P<driver>\w+))?://")


def connector(place: str) -> Connect:
    """What connects to a place: `postgresql://…`, `sqlite:///PATH`, or the path of a SQLite file.

    As in SQLAlchemy `postgresql+asyncpg://` names the library; else psycopg is used, or asyncpg
    where that is what is installed.
    """
    found = _POSTGRESQL.match(place)
    if found:
        return _postgresql(f"postgresql://{place[found.end() :]}", found["driver"])
    path = place.removeprefix("sqlite:///") if place.startswith("sqlite:///") else place
    if "://" in path:
        raise ConfigError(
            f"{place!r} is no place we know; give postgresql://…, sqlite:///PATH or a path"
        )
    if not Path(path).is_file():
        raise ConfigError(
            f"there is no database {path!r}; the program that writes into it makes it, and its "
            "outbox: `oncemq.outbox(connection).create()`"
        )
    return lambda: sqlite3.connect(path)


def _postgresql(url: str, driver: str | None) -> Connect:
    libraries = [driver] if driver else ["psycopg", "asyncpg"]
    for library in libraries:
        if library in ("psycopg", "asyncpg") and find_spec(library) is not None:
            connect: Any = import_module(library).connect
            return lambda: connect(url)
    raise ConfigError(
        f"PostgreSQL is reached with {' or '.join(libraries)}, which is not here; "
        "`pip install 'psycopg[binary]'`"
    )
