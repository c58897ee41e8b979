"""Every exit code has its test; and how processes end: signals, pipes, terminals."""

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq import Client

from .conftest import (
    DEADLINE_SECONDS,
    ONCE,
    Once,
    Serving,
    clean_environment,
    first_line,
    start_server,
    stop_server,
)

pytestmark = pytest.mark.slow  # each step is a process of its own


@pytest.fixture
def away() -> Iterator[str]:
    """An address that is taken, and where nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def error_of(err: str) -> dict[str, str]:
    return json.loads(err.splitlines()[-1])


# ------------------------------------------------------------------ 0 and 1


def test_0_is_done(once: Once) -> None:
    assert once("status").code == 0
    assert once("topics").code == 0


def test_1_already_subscribed_says_so(once: Once, topic: str) -> None:
    assert once("subscribe", topic, "--id", "c").code == 0
    again = once("subscribe", topic, "--id", "c", "--json")
    assert (again.code, again.out) == (1, b"")
    assert again.err.splitlines()[0] == f"once: c is already subscribed to '{topic}'"
    assert error_of(again.err)["error"] == "already_subscribed"


def test_1_not_subscribed_says_so(once: Once, topic: str) -> None:
    for words in (["unsubscribe", topic], ["get", topic], ["listen", topic]):
        refused = once(*words)
        assert (refused.code, refused.out) == (1, b"")
        assert "not subscribed" in refused.err
        assert topic in refused.err


def test_1_a_put_that_is_not_stored_says_why(once: Once, topic: str) -> None:
    refused = once("put", topic, "x")
    assert (refused.code, refused.out) == (1, b"")
    assert refused.err == (
        f"once: not stored: nobody subscribes to '{topic}' and nothing retains it\n"
    )


def test_1_no_such_topic(once: Once, topic: str) -> None:
    for words in (["show", topic], ["config", topic, "--retain", "7d"], ["delete", topic, "--yes"]):
        refused = once("topic", *words)
        assert refused.code == 1
        assert topic in refused.err


def test_1_a_name_outside_the_rules(once: Once) -> None:
    assert once("put", "a\nb", "x").code == 1
    assert once("subscribe", "n" * 256).code == 1


def test_1_the_port_is_taken(once_server: Serving, once: Once) -> None:
    refused = once("serve", "--bind", once_server.address, "--data", "other")
    assert refused.code == 1
    assert refused.err.startswith("once: ")
    assert once_server.address in refused.err


# ------------------------------------------------------------------ 2 to 7


def test_2_a_setting_nobody_knows(once: Once) -> None:
    refused = once("status", ONCEMQ_TIMEUOT="1")
    assert refused.code == 2
    assert refused.err == (
        "once: unknown variable ONCEMQ_TIMEUOT; did you mean 'ONCEMQ_TIMEOUT'?\n"
    )


def test_3_no_server_answers(once: Once, away: str) -> None:
    refused = once("put", "orders", "x", "--server", away, "--timeout", "0.2", "--json")
    assert (refused.code, refused.out) == (3, b"")
    assert away in refused.err
    assert "once serve" in refused.err
    assert error_of(refused.err)["error"] == "unreachable"


def test_3_a_recorded_put_goes_out_later_once(once: Once, away: str, topic: str) -> None:
    once("subscribe", topic)
    offline = ("--id", "shop", "--server", away, "--timeout", "0.2")
    for text in ("first", "second"):
        refused = once("put", topic, text, *offline)
        assert refused.code == 3
        assert "recorded" in refused.err
        assert "`once flush`" in refused.err
    assert once("flush", *offline).code == 3
    flushed = once("flush", "--id", "shop")
    assert (flushed.code, flushed.text) == (0, "2 messages sent\n")
    assert once("flush", "--id", "shop").text == "nothing to send\n"
    assert once("get", topic, "-n", "9").text == "first\nsecond\n"


def test_3_the_next_put_sends_what_was_recorded_before_it(
    once: Once, away: str, topic: str
) -> None:
    once("subscribe", topic)
    lines = b"".join(b"%d\n" % n for n in range(12_000))
    offline = ("--id", "shop", "--server", away, "--timeout", "0.2")
    refused = once("put", topic, "--lines", *offline, stdin=lines)
    assert refused.code == 3
    assert "12,000 messages are recorded" in refused.err
    assert once("put", topic, "last", "--id", "shop").code == 0
    assert once("get", topic, "-n", "20000").out == lines + b"last\n"


def test_3_the_second_address_is_tried(once: Once, once_server: Serving, away: str) -> None:
    assert once("status", "--server", f"{away},{once_server.address}").code == 0


def test_4_nothing_new(once: Once, topic: str) -> None:
    once("subscribe", topic, "--id", "c")
    nothing = once("get", topic, "--id", "c", "--json")
    assert (nothing.code, nothing.out) == (4, b"")
    assert nothing.err.splitlines()[0] == f"once: nothing new on '{topic}' for c"
    assert error_of(nothing.err)["error"] == "nothing_new"
    assert once("get", topic, "--id", "c", "--wait", "100ms").code == 4


def test_5_the_older_of_two_clients_with_one_id_is_fenced(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    once("subscribe", topic, "--id", "twin", "--state", "one")
    with listening(once_server, tmp_path, topic, "--id", "twin", "--state", "one") as older:
        once("put", topic, "x")
        assert first_line(older) == "x"
        assert once("get", topic, "--id", "twin", "--state", "one").code in (0, 4)
        once("put", topic, "y")
        _, err = older.communicate(timeout=DEADLINE_SECONDS)
    assert older.returncode == 5
    assert err.decode().startswith("once: ")


def test_7_a_data_directory_in_use(once_server: Serving, once: Once) -> None:
    refused = once("serve", "--data", str(once_server.data), "--bind", "tcp://127.0.0.1:*")
    assert refused.code == 7
    assert str(once_server.data) in refused.err


def test_7_a_damaged_log_is_refused_shown_and_mended_when_told_to(
    once: Once, tmp_path: Path
) -> None:
    serving = start_server(tmp_path)
    for number in range(3):
        once("subscribe", f"t{number}", "--server", serving.address)
    assert stop_server(serving) == 0
    log = next((serving.data / "log").glob("*.log"))
    raw = bytearray(log.read_bytes())
    raw[200] ^= 0xFF
    log.write_bytes(raw)
    data = ("--data", str(serving.data))
    refused = once("serve", *data, "--bind", "tcp://127.0.0.1:*")
    assert refused.code == 7
    assert f"`once repair --data {serving.data}`" in refused.err
    assert refused.err.count("once repair") == 1
    shown = once("repair", *data)
    assert shown.code == 7
    assert str(log) in shown.text
    assert "--accept-loss" in shown.text
    assert json.loads(once("repair", *data, "--json").text)["healthy"] is False
    assert once("repair", *data, "--accept-loss").code == 0
    assert once("repair", *data).text.startswith(f"{serving.data} is sound")
    assert stop_server(start_server(tmp_path)) == 0


def test_7_a_full_disk_refuses_and_nothing_is_lost(once: Once, tmp_path: Path) -> None:
    serving = start_server(tmp_path, "--disk-max", "20MiB", "--segment-bytes", "1MiB")
    at = ("--server", serving.address)
    once("subscribe", "t", *at)
    put = next(put for _ in range(10) if (put := once("put", "t", *at, stdin=bytes(4 << 20))).code)
    assert put.code == 7
    assert put.err.startswith("once: ")
    assert stop_server(serving) == 0


# ------------------------------------------------------------------ how processes end


class listening:  # noqa: N801 (reads as a verb)
    """`once listen` as a process, ended by force if the test does not end it."""

    def __init__(self, serving: Serving, home: Path, *arguments: str) -> None:
        environ = clean_environment(home, ONCEMQ_SERVER=serving.address)
        self.process = subprocess.Popen(
            [*ONCE, "listen", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            cwd=home,
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_130_ctrl_c_ends_a_listener_and_what_it_wrote_is_settled(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    once("subscribe", topic)
    once("put", topic, "one")
    with listening(once_server, tmp_path, topic) as listener:
        assert first_line(listener) == "one"
        once("put", topic, "two")
        assert first_line(listener) == "two"
        listener.send_signal(signal.SIGINT)
        out, err = listener.communicate(timeout=DEADLINE_SECONDS)
    assert (listener.returncode, out, err) == (130, b"", b"")
    once("put", topic, "three")
    assert once("get", topic, "-n", "9").text == "three\n"


def test_a_listener_leaves_the_topics_it_was_not_asked_for_alone(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    first, second, other = (f"{topic}-{letter}" for letter in "abc")
    for name in (first, second, other):
        once("subscribe", name)
    once("put", other, "keep")
    once("put", first, "shown")
    with listening(once_server, tmp_path, first, second) as listener:
        assert first_line(listener) == "shown"
        listener.send_signal(signal.SIGINT)
        listener.communicate(timeout=DEADLINE_SECONDS)
    assert once("get", other).text == "keep\n"


def test_a_listener_that_misbehaves_writes_nothing_twice_and_nothing_out_of_order(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    once("subscribe", topic)
    chaos = (topic, "--chaos", "--seed", "3", "--json")
    with (
        listening(once_server, tmp_path, *chaos) as listener,
        Client(once_server.address) as client,
    ):
        offsets: list[int] = []
        assert listener.stdout is not None
        assert listener.stderr is not None
        lines = iter(listener.stdout)
        reading = threading.Thread(
            target=lambda: offsets.extend(json.loads(line)["offset"] for line in lines),
            daemon=True,
        )
        reading.start()
        while len(offsets) < 150:
            client.put(topic, b"x")
            time.sleep(0.002)  # at its pace: this is not about the load
        listener.send_signal(signal.SIGINT)
        said = listener.stderr.read().decode()
        assert listener.wait(DEADLINE_SECONDS) == 130
        reading.join()
    assert offsets == sorted(set(offsets))
    for what in ("chaos with --seed 3", "stalls for", "crashes at", "--seed 4", "unsubscribes"):
        assert what in said, said


def test_141_a_closed_pipe_ends_quietly_and_what_was_not_written_comes_again(
    once: Once, once_server: Serving, topic: str, tmp_path: Path
) -> None:
    once("subscribe", topic)
    lines = b"".join(b"%0999d\n" % n for n in range(3000))
    once("put", topic, "--lines", stdin=lines)
    process = subprocess.Popen(
        [*ONCE, "get", topic, "-n", "3000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(tmp_path, ONCEMQ_SERVER=once_server.address),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        head = process.stdout.read(1000)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.wait(DEADLINE_SECONDS) == 141
    assert head == lines[:1000]
    again = once("get", topic, "-n", "3000").out
    assert lines.endswith(again)
    assert len(again) >= len(lines) - 1_001_000  # at most one stretch was settled


def test_a_server_prints_one_line_when_ready_and_drains_on_sigterm(tmp_path: Path) -> None:
    serving = start_server(tmp_path, "--sync", "interval:50", "--log-format", "json")
    assert serving.ready_line == (
        f"once serve: ready at {serving.address}, data in {serving.data}, sync interval:50, "
        + serving.ready_line[serving.ready_line.index("recovered ") :]
    )
    serving.process.send_signal(signal.SIGTERM)
    out, err = serving.process.communicate(timeout=DEADLINE_SECONDS)
    assert (serving.process.returncode, out) == (0, b"")
    for line in err.splitlines():
        assert {"time", "level", "logger", "message"} <= set(json.loads(line))


def test_a_receipt_says_when_a_power_cut_could_take_the_message(once: Once, tmp_path: Path) -> None:
    serving = start_server(tmp_path, "--sync", "interval:50")
    at = ("--server", serving.address)
    once("subscribe", "t", *at)
    put = once("put", "t", "x", *at)
    assert (put.code, put.text) == (0, "t@0\n")
    assert put.err == "once: synced within 50 ms; a power cut could take it\n"
    assert json.loads(once("put", "t", "x", "--json", *at).text)["at_risk_ms"] == 50
    assert stop_server(serving) == 0


# ------------------------------------------------------------------ terminals


def on_a_terminal(serving: Serving, home: Path, *words: str, typed: str = "", **env: str) -> str:
    """What `once` writes when all three streams are a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*ONCE, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean_environment(home, ONCEMQ_SERVER=serving.address, **({"TERM": "xterm"} | env)),
        cwd=home,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    try:
        while some := os.read(ours, 65536):
            shown += some
    except OSError:  # Linux says EIO when the other end is closed
        pass
    os.close(ours)
    process.wait(DEADLINE_SECONDS)
    return shown.decode()


def test_colour_is_for_terminals_and_never_under_no_color(
    once: Once, once_server: Serving, tmp_path: Path, topic: str
) -> None:
    once("topic", "create", topic)
    assert "\x1b[" in on_a_terminal(once_server, tmp_path, "topics")
    assert "\x1b[31monce:" in on_a_terminal(once_server, tmp_path, "get", "no-such")
    for quiet in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = on_a_terminal(once_server, tmp_path, "topics", **quiet)
        assert topic in shown
        assert "\x1b[" not in shown
    assert "\x1b[" not in once("topics").text


def test_deleting_asks_on_a_terminal(
    once: Once, once_server: Serving, tmp_path: Path, topic: str
) -> None:
    once("topic", "create", topic)
    words = ("topic", "delete", topic)
    assert "[y/N]" in on_a_terminal(once_server, tmp_path, *words, typed="n\n")
    assert once("topic", "show", topic).code == 0
    assert f"deleted '{topic}'" in on_a_terminal(once_server, tmp_path, *words, typed="y\n")
    assert once("topic", "show", topic).code == 1


def test_topics_are_completed_from_the_server(once: Once, topic: str) -> None:
    once("topic", "create", f"{topic}-zebra")
    words = f"once put {topic}-z"
    found = once(_ONCE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="2")
    assert found.text == f"plain,{topic}-zebra\n"
