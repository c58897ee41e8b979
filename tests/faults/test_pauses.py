"""Processes that stop for longer than their peers wait (SIGSTOP), and servers that are restarted
again and again: what was sent twice meanwhile is stored once, what was given is not given again.
"""

from pathlib import Path

import pytest

from tests.faults.cast import FaultNursery, FaultStorm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("full_gets"),
]


def test_a_stopped_server_is_asked_again_and_does_nothing_twice(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    storm = FaultStorm(nursery, tmp_path, seed)
    storm.begin()
    for seconds in (0.3, 1.6, 2.8, 0.1):  # a request counts as lost after a second
        storm.make_progress(3)
        storm.stop_for(seconds, server=True)
    storm.prove("faults-stopped-server", "stop of the server for 2.8 s")


def test_stopped_clients_go_on_where_they_stopped(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    storm = FaultStorm(nursery, tmp_path, seed)
    storm.begin()
    for seconds in (0.2, 1.2, 0.4, 1.8):
        storm.make_progress(3)
        clients = storm.random.sample([*storm.publishers, *storm.subscribers], 4)
        storm.stop_for(seconds, clients=clients)
        if seconds == 0.4:  # what it had asked for was answered by a server that is gone
            storm.kill(server=True)
    storm.prove("faults-stopped-clients", "stop of clients and kill -9 of server")


def test_a_server_restarted_again_and_again(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    storm = FaultStorm(nursery, tmp_path, seed)
    storm.begin()
    for restart in range(30):
        if restart % 6 == 0:
            storm.make_progress()
        storm.let_pass(60)
        storm.serving.process.noted("ready")
        storm.serving.stop()
        storm.serving.begin()
        storm.faults["restart"] += 1
    storm.prove("faults-restarts", "restart of the server")
