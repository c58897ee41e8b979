"""Why no server answers, as a look at the address shows it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncemq.cli.terminal import probe
from oncemq.testing import server


@contextmanager
def listening(said: bytes) -> Iterator[str]:
    """Somebody who says this to whoever connects, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_nothing_listens() -> None:
    away = "tcp://127.0.0.1:1"
    assert probe.trouble_at(away) == f"nothing listens at {away}: the connection is refused"


def test_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "create_connection", unknown)  # a real look-up may take its time
    said = probe.trouble_at("tcp://no-such-host.invalid:5556")
    assert said == "the host name 'no-such-host.invalid' is not known"


@pytest.mark.parametrize("said", [b"220 mail.example.org ESMTP\r\n", b""])
def test_somebody_who_does_not_speak_zeromq(said: bytes) -> None:
    with listening(said) as address:
        assert "does not speak ZeroMQ" in (probe.trouble_at(address) or "")


def test_somebody_who_waits_to_be_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SECONDS", 0.05)  # an HTTP server, which says nothing first
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert "does not speak ZeroMQ" in (probe.trouble_at(address) or "")


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_a_server_is_no_trouble(scheme: str, tmp_path: Path) -> None:
    where = "tcp://127.0.0.1:*" if scheme == "tcp" else f"ipc://{tmp_path}/socket"
    with server(bind=where) as address:
        assert probe.trouble_at(address) is None


def test_a_path_where_nobody_is(tmp_path: Path) -> None:
    assert "no connection to ipc://" in (probe.trouble_at(f"ipc://{tmp_path}/nobody") or "")
