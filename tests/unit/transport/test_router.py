"""The server's end: who is connected, and who no longer is."""

import errno
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from oncemq.transport.dealer import DealerSocket
from oncemq.transport.router import RouterSocket
from oncemq.transport.serving.acceptor import Acceptor
from oncemq.transport.wakeup import Wakeup
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


def test_what_else_was_watched_may_part_after_the_last_address_is_closed() -> None:
    """A server of a cluster ends so: its loop is over, and then its links to the others close."""
    door = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20)
    with closing(Wakeup()) as bell:
        door.connections.watch_bell(bell)
        door.close()
        door.connections.forget_bell(bell)


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


def test_who_asks_again_hears_of_what_came_meanwhile(door: RouterSocket) -> None:
    assert door.receive() is None
    peer = RawPeer(door.address, handshake(), message(b"hello"))
    assert until(door.receive)[1] == [b"hello"]  # nobody waits between two looks
    assert door.receive() is None
    peer.say(message(b"again"))
    assert until(door.receive)[1] == [b"again"]
    peer.close()


@pytest.mark.parametrize("envelope", [(b"",), (b"\0\0\0\7", b"")], ids=["plain", "correlated"])
def test_a_req_is_answered_in_the_envelope_that_it_asked_in(
    door: RouterSocket, envelope: tuple[bytes, ...]
) -> None:
    peer = RawPeer(door.address, handshake(b"REQ"), message(*envelope, b"head", b"body"))
    route, request = until_served(door, door.receive)
    assert list(request) == [b"head", b"body"]
    assert door.send(route, [b"answer"])
    expected = message(*envelope, b"answer")
    said = b""
    while len(said) < len(expected) or not said.endswith(expected):
        said += until(peer.heard)
    peer.close()


@pytest.mark.parametrize("said", [(b"7", b""), (b"7", b"8"), (b"7", b"8", b"9")])
def test_what_is_no_envelope_of_a_req_is_heard_as_it_is(
    door: RouterSocket, said: tuple[bytes, ...]
) -> None:
    peer = RawPeer(door.address, handshake(b"REQ"), message(*said))
    _, request = until_served(door, door.receive)
    assert tuple(map(bytes, request)) == said
    peer.close()


def test_who_is_owed_something_is_found_to_be_gone_as_well(door: RouterSocket) -> None:
    peer = RawPeer(door.address, handshake(), message(b"hello"))
    route, _ = until_served(door, door.receive)
    while not door.connections.owed_bytes:
        assert door.send(route, [bytes(100_000)])
    peer.close()
    until(lambda: not door.reaches(route, PROBE) or None)  # and nobody waits


def test_what_is_owed_to_a_peer_that_reads_leaves_before_the_end() -> None:
    door = RouterSocket("tcp://127.0.0.1:*", frame_bytes_max=1 << 20)
    peer = RawPeer(door.address, handshake(), message(b"hello"))
    route, _ = until_served(door, door.receive)
    sent: list[bytes] = []
    while door.connections.owed_bytes < 12 << 20:
        body = len(sent).to_bytes(4, "big") * 25_000
        assert door.send(route, [body])
        sent.append(message(body))
    peer.link.setblocking(True)
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(peer.link.makefile("rb").read)
        door.close()
        assert heard.result().endswith(b"".join(sent))
    peer.close()


def test_only_want_of_descriptors_is_waited_out(
    door: RouterSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any other fault of the socket it listens on, a server would be there for nobody."""

    def accept(_: Acceptor) -> None:
        raise OSError(errno.EINVAL, "it is broken")

    monkeypatch.setattr(Acceptor, "accept", accept)
    place = "127.0.0.1", int(door.address.rpartition(":")[2])
    with socket.create_connection(place), pytest.raises(OSError, match="it is broken"):
        until_served(door, door.receive)


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
            if hasattr(socket, "TCP_KEEPIDLE"):
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                idle, between, probes = (link.getsockopt(socket.IPPROTO_TCP, n) for n in names)
                assert idle + between * probes == 15  # seconds until a silent one is given up
    acceptor.close()
