"""What a pipeline says of itself, and that saying it changes nothing."""

import signal
import subprocess
import sys
from datetime import timedelta

import msgspec
import pytest
from click.testing import CliRunner

from oncemq import Client
from oncemq.cli.main import cli
from oncemq.spark.pipeline_status import SILENT_AFTER, PipelineStatus, StatusBoard, latest
from oncemq.spark.pipelines import run as runs
from oncemq.spark.pipelines.run import PipelineRun, stopped_by_signals

NOBODY = "tcp://127.0.0.1:9"


class Screen:
    def __init__(self) -> None:
        self.shown: list[tuple[int, float | None]] = []

    def note(self, text: str) -> None: ...

    def progress(self, count: int, part: float | None) -> None:
        self.shown.append((count, part))


def words(mq: Client) -> list[tuple[str, str, int]]:
    messages = mq.read("_pipelines", 0)
    said = [msgspec.json.decode(each.payload, type=PipelineStatus) for each in messages]
    return [(each.key, each.state, each.messages) for each in said]


def test_a_run_says_how_it_began_and_how_it_ended(
    mq: Client, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PERIOD_SECONDS", 3600)  # none in between
    screen = Screen()
    with PipelineRun("archive", "/a", server=address, screen=screen) as run:
        run.progress(3, 0.5)
        run.progress(6, 1.0)
    assert screen.shown == [(3, 0.5), (6, 1.0)]
    with pytest.raises(ZeroDivisionError), PipelineRun("archive", "/b", server=address):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), PipelineRun("replay", "/a", server=address):
        raise KeyboardInterrupt
    assert words(mq) == [
        ("archive /a", "running", 0),
        ("archive /a", "done", 6),
        ("archive /b", "running", 0),
        ("archive /b", "failed", 0),
        ("replay /a", "running", 0),
        ("replay /a", "stopped", 0),
    ]
    mq.put("_pipelines", b"not a status")
    heard = latest(mq)
    assert [each.status.key for each in heard] == ["replay /a", "archive /b", "archive /a"]
    assert heard[1].status.error == "ZeroDivisionError: division by zero"
    assert mq.topic("_pipelines").topic.retention.keeps


def test_a_run_that_only_looks_leaves_the_last_word_as_it_is(mq: Client, address: str) -> None:
    with pytest.raises(ZeroDivisionError), PipelineRun("transform", "a", server=address):
        _ = 1 / 0
    with PipelineRun("transform", "a", server=address, told=False) as run:
        run.progress(1)
    assert [each.status.state for each in latest(mq)] == ["failed"]


def test_the_list_needs_no_spark(mq: Client, address: str) -> None:
    with PipelineRun("archive", "/a", server=address):
        pass
    absent = (
        "import sys; sys.modules.update(pyspark=None, pyarrow=None, py4j=None); "
        "from oncemq.cli.main import cli; cli()"
    )
    list_them = [sys.executable, "-c", absent, "pipeline", "list", "--server", address]
    shown = subprocess.run(list_them, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "archive /a  done" in shown.stdout


def test_the_list_has_the_latest_word_of_each(mq: Client, address: str) -> None:
    shown = CliRunner().invoke(cli, ["pipeline", "list", "--server", address])
    assert (shown.exit_code, shown.stdout) == (0, "")
    with PipelineRun("archive", "/a", server=address) as run:
        run.facts["topics"] = 2
        run.progress(1000, 1.0)
    shown = CliRunner().invoke(cli, ["pipeline", "list", "--server", address])
    assert "archive /a  done" in shown.stdout
    assert "topics 2" in shown.stdout


def test_one_that_was_killed_is_silent_after_a_while(mq: Client, address: str) -> None:
    said = PipelineStatus(pipeline="archive", name="/a", run="1", state="running", started="")
    board = StatusBoard(address)
    board.tell(said)
    board.close()
    (heard,) = latest(mq)
    assert heard.state(heard.at) == "running"
    assert heard.state(heard.at + SILENT_AFTER + timedelta(seconds=1)) == "silent"


def test_a_status_that_cannot_be_told_fails_nothing_and_is_not_tried_at_once_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("oncemq.spark.pipeline_status.PATIENCE_SECONDS", 0.05)
    with PipelineRun("archive", "/a", server=NOBODY) as run:
        run.progress(1)
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == [
        "status not told pipeline=archive /a"
    ]


def test_a_signal_asks_or_ends(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = PipelineRun("archive", "/a", server=address)
    with stopped_by_signals(run, gently=True):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # the same one, passed on by a parent
        assert run.stopping.is_set()
        monkeypatch.setattr(runs, "DOUBLED_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    run = PipelineRun("archive", "/a", server=address)
    with pytest.raises(KeyboardInterrupt), stopped_by_signals(run, gently=False):
        signal.raise_signal(signal.SIGTERM)


def test_a_misspelt_pipeline_is_named() -> None:
    shown = CliRunner().invoke(cli, ["pipeline", "lits"])
    assert "no pipeline 'lits'; did you mean 'list'?" in shown.stderr
