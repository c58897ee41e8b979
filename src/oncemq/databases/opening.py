"""A connection from a URL: `sqlite:///shop.db`, `postgresql://user@host/shop`, or a path.

Law: no library is imported before it is needed; one that is not installed is named, with what to
install. A driver in the URL, as SQLAlchemy writes it (`postgresql+asyncpg://`), is minded.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from oncemq.errors import DatabaseRefused

LOCKED_SECONDS = 30.0  # how long SQLite waits for another writer


def opener(url: str) -> Callable[[], Any]:
    """A function that opens a blocking connection; DatabaseRefused when the URL names none."""
    kind, driver = _kind(url)
    if kind == "sqlite":
        return lambda: _sqlite(url)
    if driver not in ("", "psycopg"):
        raise DatabaseRefused(
            f"'{driver}' does not block; leave it out of the URL, or make the handler async"
        )
    connect = _library("psycopg", url).connect
    return lambda: connect(_without_driver(url))


def awaitable_opener(url: str) -> Callable[[], Awaitable[Any]]:
    """The same for an event loop; SQLite, which has no awaitable one, answers at once."""
    kind, driver = _kind(url)
    if kind == "sqlite":

        async def sqlite() -> Any:
            return _sqlite(url)

        return sqlite
    if driver == "asyncpg":
        connect = _library("asyncpg", url).connect
    else:
        connect = _library("psycopg", url).AsyncConnection.connect
    return lambda: connect(_without_driver(url))


def _kind(url: str) -> tuple[str, str]:
    """SQLite or PostgreSQL, and the driver that is asked for."""
    scheme, there, _ = url.partition("://")
    kind, _, driver = scheme.partition("+") if there else ("sqlite", "", "")
    kind = {"postgres": "postgresql"}.get(kind, kind)
    if kind not in ("sqlite", "postgresql") or driver not in ("", "psycopg", "asyncpg"):
        raise DatabaseRefused(
            f"no database is known as {scheme!r}; write sqlite:///shop.db or "
            "postgresql://user@host/shop, or give a connection"
        )
    return kind, driver


def sqlite_path(url: str) -> str | None:
    """The file that a URL names, as SQLAlchemy reads it: three slashes, then the path.

    None when it names another kind of database.
    """
    if _kind(url)[0] != "sqlite":
        return None
    path = unquote(url.removeprefix("sqlite://").removeprefix("/")) if "://" in url else url
    return path or ":memory:"


def _sqlite(url: str) -> sqlite3.Connection:
    # Used by one thread at a time, but closed by whichever ends the app.
    path = sqlite_path(url) or ""
    return sqlite3.connect(path, timeout=LOCKED_SECONDS, check_same_thread=False)


def _without_driver(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}"


def _library(name: str, url: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise DatabaseRefused(
            f"{url.partition('://')[0]}:// needs {name}, which is not installed: "
            f"pip install {name}{'[binary]' if name == 'psycopg' else ''}"
        ) from error
