"""A thousand kills at every step, on each database: as many rows as messages, in order.

Each is drawn from a seed, printed with the outcome; TEST_SEED draws another.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncemq import Client
from simulator import proof
from tests.databases.lives import FENCED
from tests.databases.postgres import Postgres
from tests.e2e.processes import Nursery, Serving, running_nursery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SEED = int(os.environ.get("TEST_SEED", "20211125"))
LIVES = Path(__file__).with_name("lives.py")
KILLS = int(os.environ.get("ONCEMQ_KILLS", "1000"))
ROUNDS = 20  # the server is killed after each
MESSAGES = 15  # for each life
STEPS = (
    "taken",
    "received",
    "effect half written",
    "effect written",
    "before check",
    "before update",
    "after update",
    "before commit",
    "after commit",
    "before settle",
    "after settle",
)


class Lives:
    """The parent of the subscriber's lives, and what they share."""

    def __init__(self, serving: Serving, directory: Path, database: str) -> None:
        self.serving = serving
        self.options: dict[str, Any] = {
            "server": serving.address,
            "state": str(directory / "state"),
            "database": database,
        }
        self._parent = subprocess.Popen(
            [sys.executable, str(LIVES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with Client(serving.address, id="billing", state=directory / "state") as mq:
            mq.subscribe("orders")

    def put(self, first: int, end: int) -> None:
        with Client(self.serving.address) as mq:
            mq.put_many("orders", [b"%d" % number for number in range(first, end)])

    def ask(self, do: str, **command: Any) -> Any:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        options = {**self.options, **command.pop("options", {})}
        self._parent.stdin.write(json.dumps({"do": do, "options": options, **command}) + "\n")
        self._parent.stdin.flush()
        line = self._parent.stdout.readline()
        assert line, f"the parent ended: {self._parent.wait()}"
        answer, seconds = json.loads(line)
        print(f"{do}: {seconds:.1f} s")
        return answer

    def close(self) -> None:
        self._parent.communicate(timeout=30)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with running_nursery() as nursery:
        yield nursery


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: a kill takes nothing that the kernel has."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="oncemq-", dir=memory) as directory:
        yield Path(directory)


@contextmanager
def living(nursery: Nursery, directory: Path, database: str) -> Iterator[Lives]:
    serving = Serving(nursery, directory)
    serving.start()
    lives = Lives(serving, directory, database)
    try:
        yield lives
    finally:
        lives.close()
        serving.kill()


def storm(lives: Lives, kills: int, seed: int, tally: proof.RunTally) -> None:
    """Kill the subscriber again and again, the server now and then; then let it finish."""
    where: dict[str, int] = {}
    each = kills // ROUNDS
    for turn in range(ROUNDS):
        lives.put(turn * each * MESSAGES, (turn + 1) * each * MESSAGES)
        found = lives.ask("kills", count=each, seed=seed * 1000 + turn, steps=STEPS)
        for name, count in found.items():
            where[name] = where.get(name, 0) + count
        lives.serving.kill()
        lives.serving.start()
    print(f"seed {seed}: {where}")
    tally.add("kills", sum(where.values()) + ROUNDS)
    tally.add("messages", each * ROUNDS * MESSAGES)
    tally.fault("kill -9", sum(where.values()) + ROUNDS)
    assert lives.ask("finish", seed=seed, options={"all": True}) == 0
    assert sum(where.values()) == each * ROUNDS
    missed = [step for step in STEPS if not where.get(step)]
    assert not missed, f"never killed at {missed}"


def check_rows(rows: list[tuple[int]], kills: int) -> None:
    """As many as messages, in order."""
    messages = kills // ROUNDS * ROUNDS * MESSAGES
    assert len(rows) == messages
    assert [number for (number,) in rows] == list(range(messages))


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_killed_with_sqlite(mode: str, nursery: Nursery, place: Path) -> None:
    path = place / "user.db"
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY AUTOINCREMENT, number BIGINT)")
    with proof.campaign(f"kills-inbox-sqlite-{mode}") as tally:
        with living(nursery, place, str(path)) as lives:
            storm(lives, KILLS // 2, SEED, tally)
            rows = database.execute("SELECT number FROM effects ORDER BY id").fetchall()
        database.close()
        check_rows(rows, KILLS // 2)


@pytest.mark.long
def test_killed_with_postgresql(nursery: Nursery, postgres: Postgres, place: Path) -> None:
    import psycopg

    dsn = postgres.dsn(postgres.new_schema())
    with (
        proof.campaign("kills-inbox-postgresql") as tally,
        psycopg.connect(dsn, autocommit=True) as database,
    ):
        database.execute("CREATE TABLE effects (id BIGSERIAL, number BIGINT)")
        with living(nursery, place, dsn) as lives:
            storm(lives, KILLS, SEED, tally)
        rows = database.execute("SELECT number FROM effects ORDER BY id").fetchall()
        check_rows(rows, KILLS)


# A zombie: stopped, taken over, woken


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_woken_zombie_is_fenced_by_sqlite(mode: str, nursery: Nursery, place: Path) -> None:
    path = place / "user.db"
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY AUTOINCREMENT, number BIGINT)")
    with living(nursery, place, str(path)) as lives:
        lives.put(0, 50)
        # Within its transaction it would hold the lock of the whole file until it wakes.
        check_zombie(lives, "taken")
        rows = database.execute("SELECT number FROM effects ORDER BY id").fetchall()
    database.close()
    assert [number for (number,) in rows] == list(range(50))


@pytest.mark.parametrize("point", ["taken", "received", "effect written", "before update"])
@pytest.mark.parametrize("isolation", ["READ_COMMITTED", "SERIALIZABLE"])
def test_a_woken_zombie_is_fenced_by_postgresql(
    point: str, isolation: str, nursery: Nursery, postgres: Postgres, place: Path
) -> None:
    import psycopg

    dsn = postgres.dsn(postgres.new_schema())
    with psycopg.connect(dsn, autocommit=True) as database:
        database.execute("CREATE TABLE effects (id BIGSERIAL, number BIGINT)")
        with living(nursery, place, dsn) as lives:
            lives.put(0, 50)
            lives.options["isolation"] = isolation
            check_zombie(lives, point)
        rows = database.execute("SELECT number FROM effects ORDER BY id").fetchall()
    assert [number for (number,) in rows] == list(range(50))


def check_zombie(lives: Lives, point: str) -> None:
    twin, said, code = lives.ask("zombie", point=point, seed=SEED)
    assert (twin, code) == (0, FENCED)
    assert "another process of client 'billing' has taken over 'orders'" in said
    assert "nothing was committed, and this one must stop" in said
