"""The demo proves what it says, and says so when it is not so."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.cli.demo import spark_ending
from oncemq.cli.demo.command import spark_is_there
from oncemq.cli.demo.demo import Demo, DemoOutcome, DemoPlan
from oncemq.cli.demo.ledger import DemoLedger, Order, encode_order
from oncemq.cli.demo.process import ServerChild
from oncemq.cli.terminal.session import CommandSession

ONCE = [sys.executable, "-m", "oncemq"]


def orders(*numbers: int) -> list[Any]:
    """Messages as the ledger sees them: an offset, an id, a payload."""
    return [
        SimpleNamespace(
            offset=number, id=f"orders@{number}", payload=encode_order(Order("p", number, 5))
        )
        for number in numbers
    ]


def processes_about(directory: str) -> list[int]:
    """Processes whose command line names the directory, where there is a /proc to ask."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            named = directory.encode() in path.read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        found += [int(path.parent.name)] * named
    return found


# ------------------------------------------------------------------ the plan


def test_everyone_is_killed_once_before_anyone_is_killed_twice() -> None:
    plan = DemoPlan(messages=1_000, publishers=3, kills=10, seed=5)
    victims = [victim for _, victim in plan.schedule()]
    everyone = {"server", "subscriber", "publisher-1", "publisher-2", "publisher-3"}
    assert set(victims[:5]) == everyone == set(victims[5:])


def test_a_seed_gives_the_same_schedule_again() -> None:
    plan = DemoPlan(messages=1_000, publishers=3, kills=10, seed=5)
    assert plan.schedule() == plan.schedule()
    assert plan.schedule() != DemoPlan(messages=1_000, publishers=3, kills=10, seed=6).schedule()


def test_the_kills_happen_while_there_is_work_left() -> None:
    moments = [at for at, _ in DemoPlan(messages=1_000, publishers=3, kills=50, seed=1).schedule()]
    assert moments == sorted(moments)
    assert all(20 <= at <= 900 for at in moments)


def test_the_publishers_share_the_messages() -> None:
    plan = DemoPlan(messages=10, publishers=3, kills=0, seed=0)
    assert plan.counts() == {"publisher-1": 4, "publisher-2": 3, "publisher-3": 3}


# ------------------------------------------------------------------ the ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[DemoLedger]:
    made = DemoLedger(tmp_path / "ledger.db")
    yield made
    made.close()


def test_a_message_that_comes_again_is_dropped_by_the_cursor_in_the_ledger(
    ledger: DemoLedger,
) -> None:
    ledger.apply(orders(0, 1, 2))
    ledger.apply(orders(1, 2, 3))
    assert (ledger.cursor, ledger.rows, ledger.dropped) == (4, 4, 2)
    assert set(ledger.numbers().values()) == {1}


def test_rows_and_cursor_commit_together_or_not_at_all(ledger: DemoLedger) -> None:
    broken = [*orders(0), SimpleNamespace(offset=1, id="orders@1", payload=b"not an order")]
    with pytest.raises(ValueError, match="JSON"):
        ledger.apply(broken)
    assert (ledger.cursor, ledger.rows) == (0, 0)


# ------------------------------------------------------------------ the run


@pytest.mark.parametrize(
    "wrong",
    [{"gaps": 1}, {"duplicates": 1}, {"out_of_order": 1}, {"rows": 9}, {"findings": ["one"]}],
)
def test_anything_wrong_is_not_exactly_once(wrong: dict[str, Any]) -> None:
    assert DemoOutcome(messages=10, rows=10).exactly_once
    assert not DemoOutcome(**{"messages": 10, "rows": 10, **wrong}).exactly_once


@pytest.mark.slow
def test_the_demo_survives_its_crashes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [*ONCE, "demo", "--no-spark", "--messages", "600", "--kills", "7", "--seed", "3"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("600 messages put · ")
    assert " · 7 crashes · 600 rows in SQLite · gaps 0 · duplicates 0 ✔" in last
    assert done.stderr.count("once: killed ") == 7
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_the_demo_keeps_can_be_audited_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *ONCE,
            "demo",
            "--no-spark",
            "--messages",
            "60",
            "--kills",
            "2",
            "--publishers",
            "1",
            "--keep",
            "--json",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=50,
        check=False,
    )
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["exactly_once"], facts["rows"]) == (0, True, 60)
    (kept,) = tmp_path.iterdir()
    server = ServerChild(kept / "server")
    server.begin()
    try:
        journal = f"{kept / 'ledger.db'}:effects:id"
        audited = subprocess.run(
            [*ONCE, "audit", "orders", "--journal", journal, "--server", server.address],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        server.kill()
    assert audited.returncode == 0, audited.stdout
    assert "60 messages, 60 effects: 0 gaps, 0 duplicates" in audited.stdout


@pytest.mark.slow
def test_a_subscriber_that_forgets_its_cursor_is_found_out(tmp_path: Path) -> None:
    plan = DemoPlan(messages=200, publishers=1, kills=3, seed=1, forgetful=True)
    outcome = Demo(plan, tmp_path).run(lambda progress: None)
    assert outcome.duplicates > 0
    assert outcome.rows > outcome.messages
    assert not outcome.exactly_once


@pytest.mark.slow
def test_a_failed_demo_ends_with_6(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from oncemq.cli.demo import demo
    from oncemq.cli.main import cli

    def planted(messages: int, publishers: int, kills: int, seed: int) -> DemoPlan:
        return DemoPlan(messages, publishers, kills, seed, forgetful=True)

    monkeypatch.setattr(demo, "DemoPlan", planted)
    arguments = "demo --no-spark --messages 200 --publishers 1 --kills 3 --seed 1".split()
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 6
    assert "NOT exactly once" in result.stdout


def test_without_spark_the_demo_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_ending, "there", lambda: False)
    assert not spark_is_there(CommandSession())
    assert "pip install 'oncemq[spark]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_demo_that_is_told_to_stop_takes_its_processes_along() -> None:
    with tempfile.TemporaryDirectory() as directory:
        running = subprocess.Popen(
            [*ONCE, "demo", "--messages", "100000", "--kills", "100", "--seed", "1"],
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": directory},
        )
        assert running.stderr is not None
        assert b"SIGKILLs to come" in running.stderr.readline()
        assert b"killed" in running.stderr.readline()  # everyone is at work by then
        assert processes_about(directory) != [] or not Path("/proc/self").exists()
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
        assert running.returncode == 130
        assert os.listdir(directory) == []
        assert processes_about(directory) == []
