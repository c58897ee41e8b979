"""What every wait for news of an outbox does: on SQLite, with psycopg, with asyncpg."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.relay import notifications as module
from oncemq.relay.database import RelayDatabase
from oncemq.relay.notifications import (
    AsyncpgWatch,
    CommitNotifications,
    PsycopgWatch,
    SqliteWatch,
    watch,
)
from tests.relay.homes import Home

KINDS: dict[str, type] = {
    "sqlite3": SqliteWatch,
    "psycopg": PsycopgWatch,
    "psycopg-async": PsycopgWatch,
    "asyncpg": AsyncpgWatch,
}
FOR_EVER = 600.0  # longer than a test may take: a wait that sees no news fails by that


@pytest.fixture(params=list(KINDS))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    kind: str = request.param
    postgres = None if "sqlite" in kind else request.getfixturevalue("postgres")
    return Home(kind, tmp_path, postgres)


@pytest.fixture
def desk(home: Home) -> Iterator[RelayDatabase]:
    desk = RelayDatabase(home.connect)
    yield desk
    desk.close()


@pytest.fixture
def waits(home: Home, desk: RelayDatabase, monkeypatch: pytest.MonkeyPatch) -> CommitNotifications:
    """A watch that looks up for nothing but news."""
    monkeypatch.setattr(module, "LOOK_SECONDS", FOR_EVER)
    made = watch(desk)
    assert type(made) is KINDS[home.kind]
    return made


def test_a_commit_from_before_the_wait_is_news(home: Home, waits: CommitNotifications) -> None:
    for number in range(3):
        home.write("orders", [b"%d" % number])
        waits.wait(FOR_EVER, threading.Event())


def test_a_commit_during_the_wait_is_news(home: Home, waits: CommitNotifications) -> None:
    writer = threading.Timer(0.05, home.write, ("orders", [b"one"]))
    writer.start()
    waits.wait(FOR_EVER, threading.Event())
    writer.join()
    assert home.left == 1


def test_many_commits_are_seen_whatever_came_before(home: Home, waits: CommitNotifications) -> None:
    for _ in range(5):
        home.write("orders", [b"several", b"rows"])
    waits.wait(FOR_EVER, threading.Event())
    assert home.left == 10
    home.write("orders", [b"later"])
    waits.wait(FOR_EVER, threading.Event())


def test_who_is_to_stop_does_not_wait(waits: CommitNotifications) -> None:
    stopping = threading.Event()
    stopping.set()
    waits.wait(FOR_EVER, stopping)


def test_a_stop_ends_the_wait(waits: CommitNotifications) -> None:
    stopping = threading.Event()
    stopper = threading.Timer(0.05, stopping.set)
    stopper.start()
    waits.wait(FOR_EVER, stopping)
    assert stopping.is_set()
    stopper.join()


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_without_news_it_waits_as_long_as_it_is_told(
    home: Home, waits: CommitNotifications, seconds: float
) -> None:
    home.write("orders", [b"given up"], commit=False)
    begun = time.monotonic()
    waits.wait(seconds, threading.Event())
    assert time.monotonic() - begun >= seconds


def test_it_looks_up_now_and_then_without_being_told(
    desk: RelayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    watch(desk).wait(FOR_EVER, threading.Event())
