"""A relay killed a hundred times, at every step: each committed row is published once, in order.

Beside it writers whose transactions overlap or are rolled back, a server that is killed too, and
a second relay, with and without the lock that keeps the peace between them.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oncemq import Client, Relay
from oncemq.protocol.records import Retention
from simulator.proof import record
from tests.e2e.processes import Serving, running_nursery, until
from tests.relay.books import Books
from tests.relay.homes import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEED = int(os.environ.get("TEST_SEED", "20211125"))
KILLS = 100


class Mortals:
    """The process that forks relays."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("mortal.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, *lives: dict[str, Any]) -> None:
        """Relays that live at the same time, until the last of them is dead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(lives) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        assert codes == [-signal.SIGKILL] * len(lives), "one ended by itself"

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture
def mortals() -> Iterator[Mortals]:
    mortals = Mortals()
    yield mortals
    mortals.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with running_nursery() as nursery:
        serving = Serving(nursery, tmp_path)
        with Client(serving.start()) as client:
            for topic in ("orders", "apart"):
                client.create_topic(topic, Retention(forever=True))
        yield serving


@pytest.mark.parametrize("home", ["psycopg", "sqlite3"], indirect=True)
def test_a_hundred_kills_at_every_step(home: Home, mortals: Mortals, serving: Serving) -> None:
    chance = Random(f"{SEED} {home.kind}")
    books = Books(home)
    life = {"place": home.url, "server": serving.address, "locked": True, "own_id": False}
    for step in range(1, KILLS + 1):
        books.write_many(4, chance)
        server_dies = step % 20 == 10
        if server_dies:
            serving.kill()
            serving.begin()
        lives = [life | {"steps": step}]
        if step % 3 == 0:  # a second one, which waits for the first; or does not, and sends too
            kind = {"locked": step % 2 == 0, "own_id": step % 4 == 1}
            lives.append(life | kind | {"steps": 1 + chance.randrange(KILLS)})
        mortals.live(*lives)
        if server_dies:
            serving.process.noted("ready")
        if step % 25 == 0 and home.kind == "psycopg":
            books.write_at_once(writers=3, count=4, seed=step)
    with Relay(home.connect, server=serving.address), Client(serving.address) as client:
        until(lambda: home.left == 0, what="the last relay publishes the rest")
        rows = books.check(client)
    kills = KILLS + KILLS // 3
    record(
        f"kills-relay-{home.kind}",
        "make test",
        {"kills": kills, "messages": rows, "fault: kill of a relay": kills},
    )
    print(f"seed {SEED}: {rows} rows of one topic, {KILLS} kills on {home.kind}")
