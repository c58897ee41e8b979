"""The inbox in SQLite: messages a second with effect and cursor in one commit.

WAL with synchronous=FULL, the honest case. The limit is SQLite itself: the same rows in commits
of the same size by a bare `executemany`, in the same run, in turns.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.lab import Lab, in_turns
from benchmarks.report import Aim, Figure
from oncemq.client.blocking.client import Client

SIZE = 100
BATCHES = (100, 1_000)
INSERT = "INSERT INTO effects (id, payload) VALUES (?, ?)"
ENOUGH = Aim(30_000, unit=" a second")


def consumed(lab: Lab) -> Iterator[Figure]:
    """Batches of hundreds, as a batch consumer commits them."""
    for batch in BATCHES:
        lab.steps.show(f"the inbox in SQLite, commits of {batch:,}")
        yield _consumed(lab, batch)


def _consumed(lab: Lab, batch: int) -> Figure:
    count = max(1, lab.effort.backlog_bytes // SIZE // 40 // batch) * batch
    with lab.server() as server, closing(_database(server.data.parent)) as database:
        state = server.data.parent / "client"
        with Client(server.address, id="bench", state=state) as client:
            client.subscribe("inbox")

            def inbox() -> float:
                _fill(client, count)
                return _inbox(client, database, count, batch)

            rate, limit = in_turns(lab.effort.runs, inbox, lambda: _bare(database, count, batch))
    return Figure(
        part="inbox in a database",
        what="SQLite",
        unit="messages a second",
        values={"consumed": rate},
        size=SIZE,
        batch=batch,
        limits={"executemany alone": limit},
        ratios={"executemany alone": rate / limit},
        aim=ENOUGH if batch == BATCHES[0] else None,
        judged=rate,
    )


def _database(directory: Path) -> sqlite3.Connection:
    database = sqlite3.connect(directory / "effects.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE effects (id TEXT, payload BLOB)")
    return database


def _fill(client: Client, count: int) -> None:
    payloads = [bytes(SIZE)] * min(count, 5_000)
    for start in range(0, count, len(payloads)):
        client.put_many("inbox", payloads[: count - start])


def _inbox(client: Client, database: sqlite3.Connection, count: int, batch: int) -> float:
    started, left = time.perf_counter(), count
    while left:
        with client.consume("inbox", limit=batch, into=database) as messages:
            rows = [(f"inbox@{message.offset}", message.payload) for message in messages]
            database.executemany(INSERT, rows)
        left -= len(messages)
    return count / (time.perf_counter() - started)


def _bare(database: sqlite3.Connection, count: int, batch: int) -> float:
    started = time.perf_counter()
    for start in range(0, count, batch):
        rows = [(f"inbox@{offset}", bytes(SIZE)) for offset in range(start, start + batch)]
        database.execute("BEGIN IMMEDIATE")
        database.executemany(INSERT, rows)
        database.execute("COMMIT")
    return count / (time.perf_counter() - started)
