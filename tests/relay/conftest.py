"""A home for each test: SQLite always, PostgreSQL where it can be had."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncemq import Client
from tests.relay.homes import Home

Homes = Callable[[str], Home]


@pytest.fixture
def make_home(request: pytest.FixtureRequest, tmp_path: Path) -> Homes:
    """A home of the kind named."""

    def make(kind: str) -> Home:
        postgres = None if "sqlite" in kind else request.getfixturevalue("postgres")
        return Home(kind, tmp_path, postgres)

    return make


@pytest.fixture(params=["sqlite3", "psycopg"])
def home(request: pytest.FixtureRequest, make_home: Homes) -> Home:
    """SQLite and PostgreSQL, with the usual libraries."""
    return make_home(request.param)


@pytest.fixture
def reader(oncemq_server: str, tmp_path: Path) -> Iterator[Client]:
    """A subscriber of `orders` at a real server."""
    with Client(oncemq_server, id="reader", state=tmp_path / "reader") as client:
        client.subscribe("orders")
        yield client
