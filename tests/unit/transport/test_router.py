"""The server's end: who is connected, and who no longer is."""

import socket
from collections.abc import Iterator

import pytest

from oncemq.transport.dealer import DealerSocket
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.acceptor import Acceptor
from tests.harness.served import until_served
from tests.harness.waiting import until

PROBE = [b"are you there?"]


@pytest.fixture
def door() -> Iterator[RouterSocket]:
    door = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20)
    yield door
    door.close()


def test_a_peer_is_reached_as_long_as_it_is_connected_also_when_it_reads_nothing(
    door: RouterSocket,
) -> None:
    link = DealerSocket()
    link.connect(door.address)
    until_served(door, lambda: link.send([b"hello"]) or None)
    route, _ = until_served(door, door.receive)
    assert all(door.reaches(route, PROBE) for _ in range(3_000))  # its queue is full long before
    link.close()
    until_served(door, lambda: not door.reaches(route, PROBE) or None)


def test_who_was_never_there_is_not_reached(door: RouterSocket) -> None:
    assert not door.reaches(b"", PROBE)
    assert not door.reaches(b"nobody", PROBE)


def test_who_is_accepted_is_looked_after_by_the_system() -> None:
    acceptor = Acceptor("tcp://127.0.0.1:*")
    host, _, port = acceptor.address.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port))):
        link = until(acceptor.accept)
        with link:
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
    acceptor.close()
