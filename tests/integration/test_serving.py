"""Where a server listens, who may reach it, and what it says about that."""

import logging
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.assembly import Server, server_from
from oncemq.config import Config
from oncemq.protocol.limits import ServerLimits
from oncemq.server.driver import Driver
from oncemq.server.loop import TurnLimits
from oncemq.storage.log.log import LogOptions
from tests.e2e.conftest import ONCE, clean_environment


@contextmanager
def running(data: Path, bind: str) -> Iterator[Server]:
    options = LogOptions(segment_bytes=1 << 20, allocate_bytes=1 << 16, reserve_bytes=1 << 16)
    server = Server(data, bind, rules=ServerLimits(), options=options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def two_free_ports() -> int:
    """A port that is free, as the next one is."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def test_the_feed_takes_the_next_port(tmp_path: Path) -> None:
    port = two_free_ports()
    with running(tmp_path / "data", f"tcp://127.0.0.1:{port}") as server:
        assert server.feed == f"tcp://127.0.0.1:{port + 1}"


def why_no_ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return str(error)
    return ""


def test_a_server_on_ipv6_is_reached(tmp_path: Path) -> None:
    if reason := why_no_ipv6():
        pytest.skip(f"this machine has no IPv6: {reason}")
    with running(tmp_path / "data", "tcp://[::1]:*") as server, Client(server.address) as client:
        client.subscribe("orders")
        client.put("orders", b"one")
        assert [m.payload for m in client.get("orders")] == [b"one"]


def test_an_ipc_socket_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with running(tmp_path / "data", f"ipc://{tmp_path}/socket"):
            for name in ("socket", "socket.feed"):
                mode = stat.S_IMODE((tmp_path / name).stat().st_mode)
                assert mode & 0o077 == 0, oct(mode)
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_what_is_open_to_others_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    with caplog.at_level(logging.INFO, "oncemq.server"), running(data, "tcp://0.0.0.0:*"):
        pass
    assert "there is no authentication yet" in caplog.text
    assert "data directory is writable by others" in caplog.text
    assert "server started address=tcp://0.0.0.0:" in caplog.text
    assert "server stopped" in caplog.text
    caplog.clear()
    data.chmod(0o700)
    with running(data, "tcp://127.0.0.1:*"):
        pass
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_what_the_settings_say_of_turns_and_waiting_is_obeyed(tmp_path: Path) -> None:
    config = Config(
        data=tmp_path,
        bind="tcp://127.0.0.1:*",
        turn_requests=2,
        turn_bytes=3,
        turn_micros=4,
        gathered_max=5,
        held_answers_max=6,
        request_entries_max=7,
        files_kept=soft_limit_of_files() - 8,
    )
    server = server_from(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with Client(server.address) as mq:
            status = mq.status()
        limits = [status[f"{name}_max"] for name in ("gathered_bytes", "held_answers")]
        assert (limits, status["connections_max"]) == ([5, 6], 8)
        loop = server._loop
        assert loop._turn_limits == TurnLimits(requests=2, bytes=3, micros=4)
        assert isinstance(loop._driver, Driver)
        assert loop._driver.broker.rules.request_entries_max == 7
    finally:
        server.stop()
        thread.join()


def soft_limit_of_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_its_threads_do_not_wait_long_for_each_other(tmp_path: Path) -> None:
    """With Python's 5 ms a commit took 100 ms while requests came without a pause."""
    program = (
        "import gc, sys\n"
        "from oncemq.assembly import serve\n"
        "from oncemq.config import Config\n"
        "def ready(server):\n"
        "    print(sys.getswitchinterval(), gc.get_freeze_count())\n"
        "    server.stop()\n"
        f"serve(Config(data={str(tmp_path / 'data')!r}, bind='tcp://127.0.0.1:*'), ready=ready)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, frozen = run.stdout.split()
    assert float(seconds) < 0.001
    assert int(frozen) > 1_000  # nor for a collection that looks at all that was there


def test_a_hangup_stops_it_cleanly(tmp_path: Path) -> None:
    command = [*ONCE, "serve", "--data", str(tmp_path / "data"), "--bind", "tcp://127.0.0.1:*"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(tmp_path)
    ) as server:
        assert server.stdout is not None
        assert b"ready" in server.stdout.readline()
        server.send_signal(signal.SIGHUP)
        _, errors = server.communicate(timeout=30)
    assert server.returncode == 0, errors
    assert b"server stopped" in errors
