"""What people meet at a command line: no output, no server, a terminal, a look without taking."""

import json
import os
import pty
import socket
import subprocess
from pathlib import Path

import pytest

from .conftest import (
    DEADLINE_SECONDS,
    ONCE,
    Once,
    Serving,
    clean_environment,
    first_line,
    start_server,
)

pytestmark = pytest.mark.slow  # each step is a process of its own


def shell(words: str, serving: Serving, home: Path) -> "subprocess.CompletedProcess[str]":
    """A line as a person types it."""
    return subprocess.run(
        ["sh", "-c", words.replace("once ", f"{' '.join(ONCE)} ", 1)],
        capture_output=True,
        text=True,
        env=clean_environment(home, ONCEMQ_SERVER=serving.address),
        cwd=home,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (">&-", "the answer cannot be written: standard output is closed"),
        (">/dev/full", "standard output: No space left on device"),
    ],
)
def test_8_the_answer_cannot_be_written(
    where: str, why: str, once_server: Serving, tmp_path: Path
) -> None:
    ran = shell(f"once status {where}", once_server, tmp_path)
    assert ran.returncode == 8
    assert why in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_message_that_could_not_be_written_is_given_again(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    once("subscribe", topic)
    once("put", topic, "precious")
    assert shell(f"once get {topic} >/dev/full", once_server, tmp_path).returncode == 8
    assert once("get", topic).text == "precious\n"


def test_no_diagnostics_are_no_failure(once_server: Serving, tmp_path: Path) -> None:
    assert shell("once topic show nobody 2>&-", once_server, tmp_path).returncode == 1


def test_3_says_soon_and_why(once: Once) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        away = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ran = once("status", "--server", away, "--timeout", "3")
    assert ran.code == 3
    soon, told, why = ran.err.splitlines()
    refused = f"nothing listens at {away}: the connection is refused"
    assert soon == f"once: {refused}; trying on for 3 s in all"
    assert told.startswith(f"once: no answer from {away} within 3 s")
    assert refused in why
    assert "`once serve` starts one" in why


def test_3_somebody_else_listens_there(once: Once) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        ran = once("status", "--server", address, "--timeout", "1")
    assert ran.code == 3
    assert f"what listens at {address} does not speak ZeroMQ" in ran.err


def test_a_dash_is_standard_input(once: Once, topic: str) -> None:
    once("subscribe", topic)
    once("put", topic, "-", stdin=b"from the pipe")
    assert once("get", topic).out == b"from the pipe\n"


def test_peek_takes_nothing(once: Once, topic: str) -> None:
    once("subscribe", topic)
    once("put", topic, "--lines", stdin=b"0\n1\n2\n3\n")
    for _ in range(2):
        assert once("peek", topic).text == "0\n1\n2\n3\n"
    assert once("peek", topic, "-n", "2").text == "2\n3\n"
    assert once("peek", topic, "--from", "1", "-n", "2").text == "1\n2\n"
    found = [json.loads(line) for line in once("peek", topic, "-n", "1", "--json").out.splitlines()]
    assert [(each["topic"], each["offset"], each["payload"]) for each in found] == [(topic, 3, "3")]
    beyond = once("peek", topic, "--from", "9")
    assert (beyond.code, beyond.err) == (4, f"once: nothing is stored in '{topic}' from 9 on\n")
    assert once("get", topic, "-n", "9").text == "0\n1\n2\n3\n"


def test_a_terminal_does_not_obey_a_message(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    once("subscribe", topic)
    payload = b"\x1b[2Jcleared\xff \xe2\x80\xaegpj"
    once("put", topic, payload)
    shown, hidden = pty.openpty()
    environ = clean_environment(tmp_path, ONCEMQ_SERVER=once_server.address)
    words = [*ONCE, "peek", topic]
    subprocess.run(words, stdout=hidden, env=environ, timeout=DEADLINE_SECONDS, check=True)
    os.close(hidden)
    said = os.read(shown, 1000)
    os.close(shown)
    assert said == b"\\x1b[2Jcleared\\xff \\u202egpj\r\n"
    assert once("get", topic).out == payload + b"\n", "to a pipe, bytes pass untouched"


def test_serve_says_it_in_json(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*ONCE, "serve", "--data", "data", "--bind", "tcp://127.0.0.1:*", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(tmp_path),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    process.terminate()
    out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert ready["ready"] is True
    assert ready["address"].startswith("tcp://127.0.0.1:")
    assert (ready["data"], ready["recovered"]) == ("data", 0)
    assert json.loads(out) == {"stopped": True}


def test_settings_that_anyone_may_write_are_not_obeyed(once: Once, tmp_path: Path) -> None:
    place = tmp_path / "oncemq.toml"
    place.write_text('timeout = "5"\n')
    place.chmod(0o666)
    ran = once("config")
    assert ran.code == 2
    assert "oncemq.toml belongs to somebody else, or anyone may write to it" in ran.err
    assert once("config", "--config", "oncemq.toml").code == 0, "named, it is meant"
    place.chmod(0o644)
    assert f"file {place.name}" in once("config").text


def started(home: Path, serving: Serving) -> "subprocess.Popen[bytes]":
    """The app of `home`, ready."""
    process = subprocess.Popen(
        [*ONCE, "run", "shop:app"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(home, ONCEMQ_SERVER=serving.address),
        cwd=home,
    )
    assert first_line(process) == "once run: shop is ready; handlers: shop.orders"
    return process


def test_a_fenced_app_is_told_what_it_can_do(tmp_path: Path) -> None:
    serving = start_server(tmp_path)
    try:
        (tmp_path / "shop.py").write_text(
            "from oncemq import App\napp = App(id='shop')\n\n"
            "@app.handler('orders')\ndef handle(order: str) -> None: ...\n"
        )
        first, second = started(tmp_path, serving), started(tmp_path, serving)
        second.terminate()
        second.communicate(timeout=DEADLINE_SECONDS)
        _, told = first.communicate(timeout=DEADLINE_SECONDS)
    finally:
        serving.process.terminate()
        serving.process.communicate(timeout=DEADLINE_SECONDS)
    assert first.returncode == 5
    assert b"give this one an id of its own in its code" in told
    assert b"--id" not in told
