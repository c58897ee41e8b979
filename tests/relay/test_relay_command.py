"""`once relay` as a person runs it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncemq import Client
from tests.databases.postgres import Postgres
from tests.e2e.processes import environment, until
from tests.relay.conftest import Homes
from tests.relay.homes import Home
from tests.relay.test_relay import got

pytestmark = pytest.mark.slow  # each command is a process

ONCE = [sys.executable, "-m", "oncemq"]


def once(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ONCE, *arguments], capture_output=True, text=True, timeout=60, env=environment(home)
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_relays_until_it_is_told_to_stop(
    home: Home, oncemq_server: str, reader: Client, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ["relay", home.url, "--server", oncemq_server, "--json"]
    with subprocess.Popen(
        [*ONCE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(tmp_path), text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"]
            home.write("orders", [b"1"])
            assert got(reader, 1) == [b"1"]
            until(lambda: home.left == 0, what="it is freed")
        finally:
            process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "relay at work" in process.stderr.read()


def test_status_retry_and_schema(make_home: Homes, tmp_path: Path) -> None:
    home = make_home("sqlite3")
    home.write("orders", [b"1", b"2"])
    home.look(
        "INSERT INTO oncemq_outbox_topics (topic, producer, stopped, acknowledged) "
        "VALUES ('orders', x'00', 'because', 7)"
    )
    shown = once("relay", "status", home.url, home=tmp_path)
    assert shown.returncode == 0
    assert "stopped" in shown.stdout
    assert "orders: because" in shown.stdout
    (state,) = json.loads(once("relay", "status", home.url, "--json", home=tmp_path).stdout)
    assert state | {"oldest": ""} == {
        "topic": "orders", "waiting": 2, "set_aside": 0, "published": 7, "stopped": True,
        "reason": "because", "oldest": "", "unwanted": False,
    }  # fmt: skip
    careless = once("relay", "retry", home.url, "--anew", home=tmp_path)
    assert careless.returncode == 2
    assert "name the topics" in careless.stderr
    assert once("relay", "retry", home.url, home=tmp_path).stdout == "going on with orders\n"
    assert once("relay", "retry", home.url, home=tmp_path).returncode == 1
    assert "CREATE TABLE" in once("relay", "schema", "postgresql", home=tmp_path).stdout


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("none.db", "there is no database"),
        ("mysql://host/name", "no database is known as 'mysql'"),
        ("postgresql://me:secret@127.0.0.1:1/name", "cannot use the database postgresql://me@"),
        ("text.db", "cannot use the database text.db"),
        ("empty.db", "no outbox yet"),
    ],
)
def test_a_place_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("this is no database, but long enough to be read as one" * 10)
    Path("empty.db").touch()
    ran = once("relay", "status", place, home=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "secret" not in ran.stderr


def test_a_database_that_is_away_is_waited_for(
    make_home: Homes, postgres: Postgres, oncemq_server: str, reader: Client, tmp_path: Path
) -> None:
    home = make_home("psycopg")
    home.write("orders", [b"1"])
    postgres.kill()
    with subprocess.Popen(
        [*ONCE, "relay", home.url, "--server", oncemq_server, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path), text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            assert "database away, trying again" in process.stderr.readline()
            postgres.start()
            assert json.loads(process.stdout.readline())["ready"]
            assert got(reader, 1) == [b"1"]
        finally:
            process.send_signal(signal.SIGTERM)
            if not postgres.runs:
                postgres.start()
        assert process.wait(30) == 0


def test_a_wait_for_a_database_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*ONCE, "relay", "postgresql://me:secret@127.0.0.1:1/name"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path), text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stdout is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout.read() == ""
        assert "secret" not in line


def test_a_database_that_waiting_does_not_mend_is_named_at_once(tmp_path: Path) -> None:
    place = tmp_path / "text.db"
    place.write_text("this is no database, but long enough to be read as one" * 10)
    ran = once("relay", str(place), home=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "cannot use the database" in ran.stderr
