"""An address that is listened on: whose it is, and what is left behind."""

import contextlib
import errno
import os
import resource
import socket
from pathlib import Path

import pytest

from oncemq.errors import ConfigError, TooManyFiles
from oncemq.transport.serving.acceptor import Acceptor
from tests.harness.waiting import until


def is_reached(acceptor: Acceptor, place: str | bytes) -> bool:
    """Whether who connects to this path comes here."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(place)
        until(acceptor.accept).close()
    return acceptor.accept() is None


def killed(place: Path) -> None:
    """What a server that was killed leaves behind: a path that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))


def test_a_path_is_there_while_it_is_listened_on(tmp_path: Path) -> None:
    place = tmp_path / "once"
    acceptor = Acceptor(f"ipc://{place}")
    assert acceptor.address == f"ipc://{place}"
    assert is_reached(acceptor, str(place))
    acceptor.close()
    assert list(tmp_path.iterdir()) == []


def test_the_path_of_a_server_that_is_dead_is_taken_over(tmp_path: Path) -> None:
    place = tmp_path / "once"
    killed(place)
    acceptor = Acceptor(f"ipc://{place}")
    assert is_reached(acceptor, str(place))
    acceptor.close()


@pytest.mark.parametrize("waiting", [0, 3], ids=["idle", "its queue is full"])
def test_the_path_of_a_server_that_lives_is_left_alone(tmp_path: Path, waiting: int) -> None:
    place = tmp_path / "once"
    with contextlib.ExitStack() as open_sockets:
        living = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
        living.bind(str(place))
        living.listen(0)
        for _ in range(waiting):
            peer = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(str(place))
        inode = place.stat().st_ino
        with pytest.raises(OSError, match="in use") as refused:
            Acceptor(f"ipc://{place}")
        assert refused.value.errno == errno.EADDRINUSE
        assert place.stat().st_ino == inode


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "precious"
    place.write_text("data")
    with pytest.raises(OSError, match="in use") as refused:
        Acceptor(f"ipc://{place}")
    assert refused.value.errno == errno.EADDRINUSE
    assert place.read_text() == "data"


def test_a_path_that_cannot_be_is_refused_as_the_system_says_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Acceptor(f"ipc://{tmp_path}/nowhere/once")
    assert list(tmp_path.iterdir()) == []


def test_who_stops_removes_no_path_that_is_another_servers_by_now(tmp_path: Path) -> None:
    place = tmp_path / "once"
    former = Acceptor(f"ipc://{place}")
    place.rename(tmp_path / "aside")  # else its number may be given again
    latter = Acceptor(f"ipc://{place}")
    former.close()
    assert is_reached(latter, str(place))
    latter.close()
    assert not place.exists()


def test_a_name_that_is_no_file_is_listened_on() -> None:
    name = f"oncemq-test-{os.getpid()}"
    acceptor = Acceptor(f"ipc://@{name}")
    assert is_reached(acceptor, f"\0{name}".encode())
    acceptor.close()


def test_an_address_of_tcp_that_is_taken_is_refused() -> None:
    acceptor = Acceptor("tcp://127.0.0.1:*")
    with pytest.raises(OSError, match="in use") as refused:
        Acceptor(acceptor.address)
    assert refused.value.errno == errno.EADDRINUSE
    acceptor.close()


def test_every_address_of_ipv6_is_every_one_of_ipv4_too() -> None:
    acceptor = Acceptor("tcp://[::]:*")
    port = int(acceptor.address.rpartition(":")[2])
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, port)):
            until(acceptor.accept).close()
    acceptor.close()


def test_what_is_no_address_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match=r"'udp://127.0.0.1:1'; write tcp://"):
        Acceptor("udp://127.0.0.1:1")


@pytest.mark.parametrize("port", [65_536, 70_000, 131_072])
def test_a_port_that_cannot_be_is_refused_and_not_taken_modulo(port: int) -> None:
    with pytest.raises(ConfigError, match=f"port {port}: the last one is 65535"):
        Acceptor(f"tcp://127.0.0.1:{port}")


def test_descriptors_that_cannot_be_had_are_said_so() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(TooManyFiles, match="ulimit -n"):
            Acceptor("ipc:///tmp/never")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Leaving(socket.socket):
    """Those who came left before they were accepted."""

    left = 2

    def accept(self) -> tuple[socket.socket, object]:
        if self.left:
            self.left -= 1
            raise ConnectionAbortedError(errno.ECONNABORTED, "it left")
        return super().accept()


def test_who_left_before_it_was_accepted_keeps_nobody_out() -> None:
    acceptor = Acceptor("tcp://127.0.0.1:*")
    acceptor._socket = Leaving(fileno=acceptor._socket.detach())
    port = int(acceptor.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)):
        until(acceptor.accept).close()
    acceptor.close()
