"""Connections from a URL: which library opens them, and which URLs name no database."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncemq.databases.opening import awaitable_opener, opener
from oncemq.errors import DatabaseRefused
from tests.databases.postgres import Postgres

OPENERS: list[Callable[[str], Callable[[], Any]]] = [opener, awaitable_opener]


def test_a_file_is_opened_by_sqlite_whether_it_is_awaited_or_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(opener(url)()) as connection:
        connection.execute("CREATE TABLE orders (number)")
        connection.commit()
    with closing(asyncio.run(awaitable_opener(url)())) as connection:  # type: ignore[arg-type]
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_a_server_is_opened_by_psycopg_when_nobody_awaits(postgres: Postgres) -> None:
    with closing(opener(postgres.url())()) as connection:
        assert type(connection).__module__.startswith("psycopg")
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("make", OPENERS)
@pytest.mark.parametrize("url", ["mysql://localhost/shop", "sqlite+aiosqlite:///shop.db"])
def test_what_names_no_database_that_is_known_is_refused(
    make: Callable[[str], Callable[[], Any]], url: str
) -> None:
    with pytest.raises(DatabaseRefused, match="no database is known as"):
        make(url)


def test_a_library_that_does_not_block_is_refused_where_nobody_awaits() -> None:
    with pytest.raises(DatabaseRefused, match="'asyncpg' does not block"):
        opener("postgresql+asyncpg://localhost/shop")
