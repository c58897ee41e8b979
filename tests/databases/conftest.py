"""A desk of each kind: the tests of this directory run with every connection we know."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases.desks import KINDS, Desk


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """One kind of connection, to a database of the test's own."""
    kind: str = request.param
    if kind.endswith("-asyncpg"):
        pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs sqlalchemy[asyncio]")
    postgres = None if "sqlite" in kind else request.getfixturevalue("postgres")
    desk = Desk(kind, tmp_path, postgres)
    yield desk
    desk.end()
