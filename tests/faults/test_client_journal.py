"""Syncs of a client's state.db that fail, and a kill: what was said of a write is so afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncemq.client.state.journal import Journal
from tests.faults.inject import injection, why_no_strace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

SETTLING = """
import os, signal, sys
from pathlib import Path
from oncemq.client.state.journal import Journal
journal = Journal(Path(sys.argv[1]), "billing")
journal.claim(7)
journal.granted(1, 7)
journal.settle(1, [("orders", 5, 3)])
print("ready", flush=True)
sys.stdin.readline()
try:
    journal.settle(1, [("orders", 5, cursor) for cursor in map(int, sys.argv[2:])])
    print("moved", flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def strace() -> None:
    if reason := why_no_strace():
        pytest.skip(f"no faults can be injected here: {reason}")


@pytest.mark.parametrize("cursors", [["4"], ["4", "6"]], ids=["one", "several"])
@pytest.mark.parametrize(
    ("when", "expected"), [("1", "moved"), ("1+", "StorageUnsure")], ids=["once", "always"]
)
def test_a_sync_that_fails_and_a_kill(
    tmp_path: Path, cursors: list[str], when: str, expected: str
) -> None:
    """SQLite says no, and has the commit in its file: after the kill it counts."""
    with subprocess.Popen(
        [sys.executable, "-c", SETTLING, str(tmp_path), *cursors],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with injection(child.pid, f"fdatasync:error=EIO:when={when}") as injected:
            child.stdin.write("\n")
            child.stdin.flush()
            said = child.stdout.readline().strip()
            child.wait()
    assert injected.injected == (1 if when == "1" else 2)
    assert said == expected
    journal = Journal(tmp_path, "billing")
    ((_, cursor),) = journal.cursors().values()
    journal.close()
    assert cursor == int(cursors[-1]) if said == "moved" else cursor in (3, int(cursors[-1]))
