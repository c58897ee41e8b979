"""Our ZMTP state machine beside libzmq's: every option of its sockets that changes the wire."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from oncemq.zmtp.connection import Heard, Opened, SubjectChange
from oncemq.zmtp.limits import WireError
from oncemq.zmtp.mechanism import PeerFacts
from oncemq.zmtp.messages import subscription
from tests.harness.zmtp_socket import PATIENCE, ZmtpListener, ZmtpSocket, dial

MIB = 1 << 20


class Sockets:
    """Both sides' sockets, closed together."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._theirs: list[zmq.Socket[bytes]] = []
        self._ours: list[ZmtpSocket] = []

    def theirs(self, kind: int, **options: int | bytes) -> "zmq.Socket[bytes]":
        """A socket of libzmq's."""
        made = self._context.socket(kind)
        self._theirs.append(made)
        made.set(zmq.RCVTIMEO, int(PATIENCE * 1000))
        made.set(zmq.SNDTIMEO, int(PATIENCE * 1000))
        for name, value in options.items():
            made.set(getattr(zmq, name), value)
        return made

    def bound(self, kind: int, **options: int | bytes) -> tuple["zmq.Socket[bytes]", str]:
        """One that listens, and where."""
        peer = self.theirs(kind, **options)
        peer.bind("tcp://127.0.0.1:*")
        return peer, peer.getsockopt_string(zmq.LAST_ENDPOINT)

    def dial(self, address: str, socket_type: bytes) -> ZmtpSocket:
        """One of ours, connected to it."""
        self._ours.append(dial(address, socket_type))
        return self._ours[-1]

    def close(self) -> None:
        for each in self._ours:
            each.close()
        for each in self._theirs:
            each.close(linger=0)
        self._context.term()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


@pytest.fixture
def listener() -> Iterator[ZmtpListener]:
    made = ZmtpListener()
    yield made
    made.close()


# ------------------------------------------------------------------ it connects to our ROUTER


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, PeerFacts(b"DEALER")),
        ({"ROUTING_ID": b"ada"}, PeerFacts(b"DEALER", b"ada")),
        ({"ROUTING_ID": b"i" * 255}, PeerFacts(b"DEALER", b"i" * 255)),
        ({"METADATA": b"X-colour:blue"}, PeerFacts(b"DEALER")),
        ({"CONFLATE": 1}, PeerFacts(b"DEALER")),
        ({"IMMEDIATE": 1, "TOS": 8, "TCP_KEEPALIVE": 1}, PeerFacts(b"DEALER")),
        ({"HEARTBEAT_IVL": 10_000, "HEARTBEAT_TTL": 20_000}, PeerFacts(b"DEALER")),
    ],
    ids="plain identity longest-identity metadata conflate tcp heartbeat".split(),
)
def test_a_dealer_asks_and_hears(
    sockets: Sockets, listener: ZmtpListener, options: dict[str, int | bytes], said: PeerFacts
) -> None:
    peer = sockets.theirs(zmq.DEALER, **options)
    peer.connect(listener.address)
    end = listener.accept(b"ROUTER")
    assert end.opened() == Opened(said, minor=1)
    frames = [b"request"] if "CONFLATE" in options else [b"request", b"", b"x" * 300, b"y" * 5_000]
    peer.send_multipart(frames)
    assert end.message() == frames
    answer = frames[:1] if "CONFLATE" in options else frames[::-1]
    end.send(*answer)
    assert peer.recv_multipart() == answer


def test_a_req_has_an_empty_frame_before_its_request(
    sockets: Sockets, listener: ZmtpListener
) -> None:
    peer = sockets.theirs(zmq.REQ)
    peer.connect(listener.address)
    end = listener.accept(b"ROUTER")
    assert end.opened() == Opened(PeerFacts(b"REQ"), minor=1)
    peer.send(b"request")
    assert end.message() == [b"", b"request"]
    end.send(b"", b"reply")
    assert peer.recv() == b"reply"


def test_a_req_that_correlates_has_a_number_before_that(
    sockets: Sockets, listener: ZmtpListener
) -> None:
    peer = sockets.theirs(zmq.REQ, REQ_CORRELATE=1, REQ_RELAXED=1)
    peer.connect(listener.address)
    end = listener.accept(b"ROUTER")
    end.opened()
    peer.send(b"first")
    peer.send(b"second")  # relaxed: it does not wait for the first answer, and takes it no more
    envelopes = []
    for request in (b"first", b"second"):
        number, empty, body = end.message()
        assert (len(number), empty, body) == (4, b"", request)
        envelopes.append(number)
    assert envelopes[0] != envelopes[1]
    end.send(envelopes[0], b"", b"late")
    end.send(envelopes[1], b"", b"reply")
    assert peer.recv() == b"reply"


@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.ROUTER, zmq.REQ])
def test_a_probe_is_an_empty_message(sockets: Sockets, listener: ZmtpListener, kind: int) -> None:
    peer = sockets.theirs(kind, PROBE_ROUTER=1)
    peer.connect(listener.address)
    end = listener.accept(b"ROUTER")
    end.opened()
    assert end.message() == [b""]


@pytest.mark.parametrize("size", [70_000, MIB, 20 * MIB])
def test_large_frames_go_both_ways(sockets: Sockets, listener: ZmtpListener, size: int) -> None:
    peer = sockets.theirs(zmq.DEALER)
    peer.connect(listener.address)
    end = listener.accept(b"ROUTER")
    end.opened()
    body = bytes(range(256)) * (size // 256)
    peer.send_multipart([b"head", body, b"tail"])
    assert end.message() == [b"head", body, b"tail"]
    end.send(b"head", body, b"tail")
    assert peer.recv_multipart() == [b"head", body, b"tail"]


def test_heartbeats_are_answered_for_as_long_as_they_come(
    sockets: Sockets, listener: ZmtpListener
) -> None:
    # libzmq drops a connection whose PINGs nobody answers within the timeout.
    peer = sockets.theirs(zmq.DEALER, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=5_000, HEARTBEAT_TTL=600)
    peer.connect(listener.address)
    end = listener.accept(b"ROUTER")
    end.opened()
    for _ in range(10):
        assert end.next() == Heard(b"PING")
    peer.send(b"still here")
    assert end.message() == [b"still here"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_who_wants_a_key_does_not_open(
    sockets: Sockets, listener: ZmtpListener, mechanism: str
) -> None:
    # Who reads the other's greeting first ends it: libzmq often does.
    options: dict[str, int | bytes] = {"PLAIN_USERNAME": b"ada", "PLAIN_PASSWORD": b"secret"}
    if mechanism == "CURVE":
        public, secret = zmq.curve_keypair()
        options = {"CURVE_PUBLICKEY": public, "CURVE_SECRETKEY": secret, "CURVE_SERVERKEY": public}
    peer = sockets.theirs(zmq.DEALER, **options)
    peer.connect(listener.address)
    with pytest.raises((WireError, ConnectionError)):
        listener.accept(b"ROUTER").next()


@pytest.mark.parametrize("kind", ["PUSH", "PAIR", "REP", "SUB", "PUB", "XSUB", "PULL"])
def test_another_kind_of_socket_is_refused_in_words(
    sockets: Sockets, listener: ZmtpListener, kind: str
) -> None:
    peer = sockets.theirs(getattr(zmq, kind))
    peer.connect(listener.address)
    with pytest.raises(WireError, match=f"a socket of type '{kind}' cannot talk to a ROUTER"):
        listener.accept(b"ROUTER").next()


def test_over_ipv6_and_a_path_it_is_the_same(sockets: Sockets, tmp_path: Path) -> None:
    places: list[ZmtpListener] = []
    if socket.has_ipv6:
        with suppress(OSError):  # a machine without IPv6
            places.append(ZmtpListener(socket.AF_INET6, ("::1", 0)))
    places.append(ZmtpListener(socket.AF_UNIX, str(tmp_path / "s")))
    for listener in places:
        peer = sockets.theirs(zmq.DEALER, IPV6=1)
        peer.connect(listener.address)
        end = listener.accept(b"ROUTER")
        end.opened()
        peer.send(b"request")
        assert end.message() == [b"request"]
        end.send(b"reply")
        assert peer.recv() == b"reply"
        listener.close()


# ------------------------------------------------------------------ it subscribes to our XPUB


@pytest.mark.parametrize(
    "options",
    [{}, {"INVERT_MATCHING": 1}, {"ROUTING_ID": b"ada"}],
    ids=["plain", "inverted", "identity"],
)
def test_a_sub_says_which_subjects_it_wants(
    sockets: Sockets, listener: ZmtpListener, options: dict[str, int | bytes]
) -> None:
    peer = sockets.theirs(zmq.SUB, **options)
    peer.connect(listener.address)
    end = listener.accept(b"XPUB")
    end.opened()
    subject = b"t" * 8
    peer.subscribe(subject)
    assert end.next() == SubjectChange(True, subject)
    if "INVERT_MATCHING" in options:
        end.send(b"other", b"body")
        assert peer.recv_multipart() == [b"other", b"body"]
    else:
        end.send(subject, b"body")
        assert peer.recv_multipart() == [subject, b"body"]
    peer.unsubscribe(subject)
    assert end.next() == SubjectChange(False, subject)


def test_an_xsub_may_say_more(sockets: Sockets, listener: ZmtpListener) -> None:
    peer = sockets.theirs(zmq.XSUB)
    peer.connect(listener.address)
    end = listener.accept(b"XPUB")
    end.opened()
    peer.send(b"\x01t")
    assert end.next() == SubjectChange(True, b"t")
    peer.send(b"\x02to the publisher")
    assert end.next() == [b"\x02to the publisher"]
    peer.send_multipart([b"\x02a", b"b"])
    assert end.next() == [b"\x02a", b"b"]


# ------------------------------------------------------------------ we connect to it


def test_our_dealer_asks_a_router(sockets: Sockets) -> None:
    peer, address = sockets.bound(zmq.ROUTER)
    end = sockets.dial(address, b"DEALER")
    assert end.opened() == Opened(PeerFacts(b"ROUTER"), minor=1)
    end.send(b"request", b"x" * 70_000)
    route, *request = peer.recv_multipart()
    assert request == [b"request", b"x" * 70_000]
    peer.send_multipart([route, b"reply", b"y" * 70_000])
    assert end.message() == [b"reply", b"y" * 70_000]


def test_our_dealer_asks_a_rep_and_another_dealer(sockets: Sockets) -> None:
    rep, address = sockets.bound(zmq.REP)
    end = sockets.dial(address, b"DEALER")
    end.opened()
    end.send(b"", b"request")
    assert rep.recv() == b"request"
    rep.send(b"reply")
    assert end.message() == [b"", b"reply"]
    dealer, address = sockets.bound(zmq.DEALER)
    end = sockets.dial(address, b"DEALER")
    end.opened()
    end.send(b"request")
    assert dealer.recv() == b"request"


def test_a_router_that_pings_is_answered(sockets: Sockets) -> None:
    peer, address = sockets.bound(
        zmq.ROUTER, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=5_000, HEARTBEAT_TTL=600
    )
    end = sockets.dial(address, b"DEALER")
    end.opened()
    for _ in range(10):
        assert end.next() == Heard(b"PING")
    end.send(b"still here")
    assert peer.recv_multipart()[1:] == [b"still here"]


@pytest.mark.parametrize("kind", [zmq.PUB, zmq.XPUB])
def test_our_sub_hears_what_it_asked_for(sockets: Sockets, kind: int) -> None:
    peer, address = sockets.bound(kind)
    end = sockets.dial(address, b"SUB")
    end.opened()
    for minor in (0, 1):  # libzmq understands both forms
        subject = b"subject %d" % minor
        end.say(subscription(subject, joined=True, minor=minor))
        if kind == zmq.XPUB:
            assert peer.recv() == b"\x01" + subject
            peer.send_multipart([b"else", b"body"])
            peer.send_multipart([subject, b"body"])
            assert end.message() == [subject, b"body"]


def test_a_peer_that_does_not_fit_us_is_told_why_by_itself(sockets: Sockets) -> None:
    _, address = sockets.bound(zmq.PULL)
    end = sockets.dial(address, b"DEALER")
    with pytest.raises((WireError, ConnectionError)):
        end.next()
