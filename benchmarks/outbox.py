"""The outbox in a database: rows a second through the relay, and how soon after a commit.

SQLite in WAL with synchronous=FULL, the honest case; with `--database` a PostgreSQL too, in a
schema of its own. Latency is open loop, from the moment the transaction was due to begin.
"""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

import msgspec

from benchmarks.lab import LISTENER, Lab, quantile
from benchmarks.listener import stamped
from benchmarks.report import Figure
from oncemq.cli.demo.process import Child
from oncemq.client.blocking.client import Client
from oncemq.databases.connections import recognize
from oncemq.databases.outbox import Outbox
from oncemq.protocol.records import Retention
from oncemq.relay.opening import connector
from oncemq.relay.relay import Relay
from oncemq.relay.tables import ROWS_MAX

MICRO = 1_000_000
SIZE = 100
ROWS_A_COMMIT = 100
LOOK_SECONDS = 0.005
RATE = 50  # commits a second: each is two syncs of one disk, and more would measure a backlog


def relayed(lab: Lab) -> Iterator[Figure]:
    """Each database in turn: a backlog, then single commits at a rate."""
    for name, homes in [("SQLite", _sqlite), *(("PostgreSQL", _postgresql),) * bool(lab.database)]:
        lab.steps.show(f"the relay on {name}, a backlog")
        with homes(lab) as place:
            yield _backlog(lab, name, place)
        lab.steps.show(f"the relay on {name}, single commits at {RATE}/s")
        with homes(lab) as place:
            yield _latency(lab, name, place)


def _backlog(lab: Lab, name: str, place: str) -> Figure:
    rows = max(ROWS_A_COMMIT, lab.effort.backlog_bytes // SIZE // 20)
    payloads = [bytes(SIZE)] * ROWS_A_COMMIT
    with lab.server() as server, Client(server.address) as client:
        client.create_topic("rows", Retention(forever=True))
        with closing(connector(place)()) as connection:
            for _ in range(rows // ROWS_A_COMMIT):
                _box(connection).put_many("rows", payloads)
                connection.commit()
            started = time.perf_counter()
            with Relay(connector(place), server=server.address):
                while _left(connection):
                    time.sleep(LOOK_SECONDS)
                seconds = time.perf_counter() - started
        limit = _plain_puts(client, rows)
    return Figure(
        part="outbox in a database, backlog",
        what=name,
        unit="messages a second",
        values={"relayed": rows / seconds},
        size=SIZE,
        batch=ROWS_MAX,
        limits={"put_many alone": limit},
        ratios={"put_many alone": rows / seconds / limit},
    )


def _box(connection: Any) -> Outbox:
    return Outbox(recognize(connection, awaitable=False, joins=True))


def _left(connection: Any) -> bool:
    found = connection.execute("SELECT 1 FROM oncemq_outbox LIMIT 1").fetchall()
    connection.rollback()
    return bool(found)


def _plain_puts(client: Client, rows: int) -> float:
    client.create_topic("plain", Retention(forever=True))
    payloads = [bytes(SIZE)] * min(ROWS_MAX, rows)
    started = time.perf_counter()
    for _ in range(rows // len(payloads)):
        client.put_many("plain", payloads)
    return rows // len(payloads) * len(payloads) / (time.perf_counter() - started)


def _latency(lab: Lab, name: str, place: str) -> Figure:
    total = lab.effort.latencies // 3
    warm = total // 10
    with lab.server() as server:
        directory = server.data.parent
        far = [str(LISTENER), server.address, "live", str(total + warm)]
        listener = Child("listener", far, directory)
        relay = Child(
            "relay", ["-m", "oncemq", "relay", place, "--server", server.address], directory
        )
        try:
            listener.start()
            listener.line()
            relay.start()
            relay.line()
            commits = _commit_at_a_rate(place, total + warm)[warm:]
            times = msgspec.json.decode(listener.line().encode(), type=list[float])[warm:]
        finally:
            relay.kill()
            listener.kill()
    return Figure(
        part=f"commit to waiting get, {RATE}/s, open loop",
        what=name,
        unit="microseconds",
        values={key: quantile(times, at) * MICRO for key, at in (("p50", 0.5), ("p99", 0.99))},
        size=SIZE,
        limits={"the commit alone": quantile(commits, 0.5) * MICRO},
        ratios={"p50 / commit": quantile(times, 0.5) / quantile(commits, 0.5)},
    )


def _commit_at_a_rate(place: str, total: int) -> list[float]:
    """Single commits, each when it is due; the seconds each took."""
    step = 1_000_000_000 // RATE
    due = time.monotonic_ns() + step
    times: list[float] = []
    with closing(connector(place)()) as connection:
        for _ in range(total):
            pause = due - time.monotonic_ns()
            if pause > 0:
                time.sleep(pause / 1e9)
            started = time.perf_counter()
            _box(connection).put("live", stamped(due, SIZE))
            connection.commit()
            times.append(time.perf_counter() - started)
            due += step
    return times


@contextmanager
def _sqlite(lab: Lab) -> Generator[str]:
    with lab.scratch() as directory:
        path = directory / "user.db"
        path.touch()
        with closing(connector(str(path))()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _box(connection).create()
        yield str(path)


@contextmanager
def _postgresql(lab: Lab) -> Generator[str]:
    schema = f"oncemq_bench_{os.getpid()}_{next(_numbers)}"
    with closing(connector(lab.database)()) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.commit()
        mark = "&" if "?" in lab.database else "?"
        place = f"{lab.database}{mark}options=-csearch_path%3D{schema}"
        try:
            with closing(connector(place)()) as own:
                _box(own).create()
            yield place
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
            connection.commit()


_numbers = count(1)
