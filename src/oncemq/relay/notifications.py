"""Waiting for a commit in the user's database: told by PostgreSQL, looked for on SQLite.

Law: whoever waits comes back after LOOK_SECONDS at the latest, for a notice may be lost; a relay
that has nothing to do costs less than a hundredth of a processor.
"""

import asyncio
import threading
import time
from typing import Any, Protocol

from oncemq.databases.outbox_schema import WAKE
from oncemq.relay.database import RelayDatabase

LOOK_SECONDS = 1.0
SLICE_SECONDS = 0.2  # how long a stop may take
FIRST_PAUSE = 0.001  # between two looks at SQLite, right after something came
LONGEST_PAUSE = 0.020  # reached after half a second without a commit


class CommitNotifications(Protocol):
    """A wait for news; it may come back without any."""

    def wait(self, seconds: float, stopping: threading.Event) -> None: ...


def watch(desk: RelayDatabase) -> CommitNotifications:
    """The watch for a desk's kind of connection."""
    if desk.kind == "sqlite":
        return SqliteWatch(desk)
    if hasattr(desk.driver, "add_listener"):
        return AsyncpgWatch(desk)
    return PsycopgWatch(desk)


class SqliteWatch:
    """SQLite counts the commits of others (`data_version`); looking costs microseconds."""

    def __init__(self, desk: RelayDatabase) -> None:
        self._cursor = desk.driver.cursor()  # past the port: this is what an idle relay does
        self._cursor.row_factory = None
        self._version = self._look()
        self._pause = FIRST_PAUSE

    def wait(self, seconds: float, stopping: threading.Event) -> None:
        """Until another connection has committed."""
        deadline = time.monotonic() + min(seconds, LOOK_SECONDS)
        while time.monotonic() < deadline and not stopping.is_set():
            version = self._look()
            if version != self._version:
                self._version, self._pause = version, FIRST_PAUSE
                return
            stopping.wait(self._pause)
            self._pause = min(self._pause * 1.05, LONGEST_PAUSE)

    def _look(self) -> int:
        return self._cursor.execute("PRAGMA data_version").fetchone()[0]


class PsycopgWatch:
    """LISTEN, with psycopg: blocking or for asyncio."""

    def __init__(self, desk: RelayDatabase) -> None:
        self._desk = desk

    def wait(self, seconds: float, stopping: threading.Event) -> None:
        """Until PostgreSQL tells of a commit."""
        deadline = time.monotonic() + min(seconds, LOOK_SECONDS)
        while (left := deadline - time.monotonic()) > 0 and not stopping.is_set():
            if self._notified(min(left, SLICE_SECONDS)):
                self._notified(0.0)  # the rest of them: one look answers all
                return

    def _notified(self, seconds: float) -> bool:
        stop_after = 1 if seconds else None
        notices = self._desk.driver.notifies(timeout=seconds, stop_after=stop_after)
        if hasattr(notices, "__aiter__"):
            return self._desk.result_of(_any(notices))
        return len(list(notices)) > 0


class AsyncpgWatch:
    """LISTEN, with asyncpg."""

    def __init__(self, desk: RelayDatabase) -> None:
        self._desk = desk
        self._news = asyncio.Event()
        desk.result_of(desk.driver.add_listener(WAKE, self._notified))

    def wait(self, seconds: float, stopping: threading.Event) -> None:
        """Until PostgreSQL tells of a commit."""
        deadline = time.monotonic() + min(seconds, LOOK_SECONDS)
        while (left := deadline - time.monotonic()) > 0 and not stopping.is_set():
            self._desk.result_of(self._until(min(left, SLICE_SECONDS)))
            if self._news.is_set():
                self._news.clear()
                return

    def _notified(self, *_: object) -> None:
        self._news.set()

    async def _until(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass


async def _any(notices: Any) -> bool:
    return len([each async for each in notices]) > 0
