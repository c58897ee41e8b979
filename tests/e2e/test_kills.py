"""A thousand kills: SIGKILL to servers, publishers and subscribers, and nothing is lost or doubled.

Each storm is drawn from a seed, printed with the outcome; TEST_SEED draws another.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq import Client
from tests.e2e.processes import Nursery, environment, free_port, running_nursery
from tests.e2e.storm import Storm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEED = int(os.environ.get("TEST_SEED", "20211125"))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with running_nursery() as nursery:
        yield nursery


@pytest.fixture
def storm(request: pytest.FixtureRequest, nursery: Nursery, tmp_path: Path) -> Storm:
    seed = random.Random(f"{SEED}{request.node.name}").randrange(1 << 32)
    print(f"seed {SEED}: {request.node.name} draws {seed}")
    storm = Storm(nursery, tmp_path, seed)
    storm.begin()
    return storm


def check(storm: Storm, name: str, **killed: int) -> None:
    storm.prove(f"kills-{name}", f"kill -9 of {' and '.join(killed)}")
    assert {role: storm.killed[role] for role in killed} == killed


def test_a_server_killed_again_and_again_keeps_every_promise(storm: Storm) -> None:
    for kill in range(220):
        if kill % 4 == 0:
            storm.make_progress()
        storm.let_pass(120)
        storm.kill(server=True)
    check(storm, "server", server=220)


def test_publishers_killed_again_and_again_have_each_put_stored_once(storm: Storm) -> None:
    for _ in range(80):
        storm.make_progress()
        storm.let_pass(60)
        storm.kill(clients=storm.random.sample(storm.publishers, 3))
    check(storm, "publishers", publishers=240)


def test_subscribers_killed_again_and_again_get_each_message_once(storm: Storm) -> None:
    for _ in range(60):
        storm.make_progress()
        storm.let_pass(60)
        storm.kill(clients=storm.random.sample(storm.subscribers, 2))
    check(storm, "subscribers", subscribers=120)


@pytest.mark.parametrize("part", range(2))
def test_everyone_killed_at_once_again_and_again(storm: Storm, part: int) -> None:
    for _ in range(90):
        if storm.random.random() < 0.5:
            storm.make_progress()
        storm.let_pass(100)
        victims = storm.random.sample(storm.publishers, 1) + storm.random.sample(
            storm.subscribers, 1
        )
        storm.kill(server=True, clients=victims)
    check(storm, f"everyone-{part}", server=90, publishers=90, subscribers=90)


def test_the_command_killed_and_started_again_has_kept_every_put(tmp_path: Path) -> None:
    """The same with `once serve` itself, as a user runs it."""
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "oncemq", "serve", "--bind", address]
    command += ["--data", str(tmp_path / "data")]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(tmp_path))

    with Client(address, id="press", state=tmp_path / "press", timeout=60) as publisher:
        for life in range(5):
            with start() as server:
                assert server.stdout is not None
                assert b"ready" in server.stdout.readline()
                assert publisher.subscribe("orders") is (life == 0)
                publisher.put("orders", b"%d" % life)
                server.kill()
        with start() as server:
            got = publisher.get("orders", limit=10)
            server.terminate()
    assert [message.payload for message in got] == [b"%d" % life for life in range(5)]
    assert server.returncode == 0
