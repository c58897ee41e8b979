"""A peer that goes while nobody reads what it sent: libzmq must not end our process for it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_a_process_outlives_a_peer_that_went_while_it_did_not_read() -> None:
    """libzmq aborts when a heartbeat is due on a broken connection that it does not read from.

    A listener busy with a message, a server busy with its disk: their peers come and go meanwhile.
    """
    running = {
        role: subprocess.Popen(
            [sys.executable, "-m", "tests.unit.transport.stalled", role],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for role in ("ear", "link", "door")
    }
    said = {role: process.communicate(timeout=90)[0].strip() for role, process in running.items()}
    assert said == {"ear": "alive", "link": "alive", "door": "alive"}
