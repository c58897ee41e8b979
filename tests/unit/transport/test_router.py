"""The server's end: who is connected, and who no longer is."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

import pytest

from oncemq.transport.dealer import DealerSocket
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.acceptor import Acceptor
from oncemq.zmtp.messages import Frame
from tests.harness.raw_peer import RawPeer, handshake, message
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


def test_a_late_answer_to_a_req_has_the_number_of_its_own_request(door: RouterSocket) -> None:
    """With the number of the request after it, it would pass for the answer to that."""
    peer = RawPeer(door.address, handshake(b"REQ"))
    with closing(peer):
        routes: list[bytes] = []
        for number in (b"\0\0\0\1", b"\0\0\0\2"):
            peer.say(message(number, b"", b"request"))
            route, request = until_served(door, door.receive)
            assert list(request) == [b"request"]
            routes.append(route)
        assert routes[0] == routes[1]  # of one connection, to who compares them
        heard = b""
        door.send(routes[0], [b"late"])
        door.send_all([(routes[1], [b"answer"]), (routes[0], [b"again"])])
        wanted = [(1, b"late"), (2, b"answer"), (1, b"again")]
        said = b"".join(message(bytes((0, 0, 0, at)), b"", reply) for at, reply in wanted)
        while not heard.endswith(said):
            heard += until_served(door, peer.heard)


@pytest.mark.parametrize("number", [b"x" * 9, b"x" * 500_000], ids=["9 bytes", "many"])
def test_of_a_req_s_envelope_only_a_number_is_kept(door: RouterSocket, number: bytes) -> None:
    """Else each connection would hold a frame of whatever size, counted nowhere, for good."""
    peer = RawPeer(door.address, handshake(b"REQ"))
    with closing(peer):
        sent = memoryview(message(number, b"", b"request"))

        def asked() -> tuple[bytes, Sequence[Frame]] | None:
            nonlocal sent
            with suppress(BlockingIOError):
                sent = sent[peer.link.send(sent) :] if sent else sent
            return door.receive()

        route, request = until_served(door, asked)
        assert list(map(bytes, request)) == [number, b"", b"request"]  # refused, as no request
        door.send(route, [b"no"])
        heard = b""
        while not heard.endswith(message(b"", b"no")):
            heard += until_served(door, peer.heard)


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
