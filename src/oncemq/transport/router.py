"""The server's end: requests in, replies out, as ROUTER of ZeroMQ's specification.

Laws: a route is a number of ours, never what a peer says of itself, and is used once. A send waits
for nobody: what does not leave at once is owed, within limits. Requests are taken fairly.
"""

from collections.abc import Sequence

from oncemq.errors import PortInUse
from oncemq.transport.serving.bound_socket import BoundSocket
from oncemq.transport.serving.connections import Connections
from oncemq.transport.serving.peer import Peer
from oncemq.transport.wakeup import Bell
from oncemq.zmtp.connection import Message
from oncemq.zmtp.limits import WireLimits
from oncemq.zmtp.messages import Frame, encode, joined

Frames = Sequence[bytes | bytearray | memoryview]

REQUEST_FRAMES_MAX = 1_026  # a request has two: what is more is refused in words up to here
OTHERS_MAX = 64  # commands and probes, in one call
NUMBER_BYTES_MAX = 8  # that a REQ gives a request; libzmq's have 4
LINGER_SECONDS = 1.0  # at close, replies already owed may still leave


class NumberedRoute(bytes):
    """The way back to a REQ that numbers its requests: equal to the route without the number.

    So a connection stays one to who compares routes, and each answer gets its request's number.
    """

    number: bytes


class RouterSocket(BoundSocket):
    """A bound ROUTER. Used by one thread, and by no other."""

    def __init__(
        self, address: str, *, frame_bytes_max: int, connections: Connections | None = None
    ) -> None:
        limits = WireLimits(
            frame_bytes_max=frame_bytes_max,
            message_bytes_max=frame_bytes_max + (8 << 20),
            message_frames_max=REQUEST_FRAMES_MAX,
        )
        try:
            super().__init__(b"ROUTER", address, limits, connections or Connections())
        except OSError as error:
            raise PortInUse(
                f"cannot listen on {address}: {error.strerror or error}; is another server "
                "running, or the live feed of one (beside its port, unless its --feed says "
                "otherwise)? Choose another address with --bind"
            ) from None

    def watch(self, bell: Bell) -> None:
        """Also wake up when this bell rings."""
        self.connections.watch_bell(bell)

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a request comes, the bell rings or the time is over."""
        self.connections.wait(timeout_ms)

    def rest(self, timeout_ms: int) -> None:
        """Sleep until the bell rings or the time is over, whatever comes in."""
        self.connections.rest(timeout_ms)

    def receive(self) -> tuple[bytes, Sequence[Frame]] | None:
        """The next request, or None: the route back and its frames.

        None too after so many things that are no requests, so that others are answered meanwhile.
        """
        for _ in range(OTHERS_MAX):
            if (said := self.next_event()) is None:
                return None
            peer, message = said
            if not isinstance(message, list) or (len(message) == 1 and not message[0]):
                continue  # a command; or a probe, which asks nothing (ZMQ_PROBE_ROUTER)
            if peer.is_req:
                return _opened_envelope(peer, message)
            return peer.route, message
        return None

    def send(self, route: bytes, frames: Frames) -> bool:
        """Send a reply, now or as soon as the peer takes it; False when it is gone."""
        peer = self.peers.get(route)
        if peer is None:
            return False
        self.connections.send(peer, _in_envelope(peer, route, frames))
        return True

    def send_all(self, replies: Sequence[tuple[bytes, Frames]]) -> None:
        """Send these, what goes to one peer together."""
        together: dict[bytes, list[Frame]] = {}
        for route, frames in replies:
            peer = self.peers.get(route)
            if peer is not None:
                together.setdefault(route, []).extend(_in_envelope(peer, route, frames))
        for route, buffers in together.items():
            if (peer := self.peers.get(route)) is not None:
                self.connections.send(peer, joined(buffers))

    def takes(self, route: bytes) -> bool:
        """Whether a peer is there, and reads what it is owed: more may be made for it."""
        peer = self.peers.get(route)
        return peer is not None and not peer.is_paused

    def reaches(self, route: bytes, frames: Frames) -> bool:
        """Whether a peer is connected: who is owed something is sent no more to find out."""
        peer = self.peers.get(route)
        if peer is None:
            return False
        if peer.owed:
            self.connections.send_on(peer)
        else:
            self.send(route, frames)
        return peer.is_open

    def close(self) -> None:
        """Give owed replies a moment to leave, then go."""
        self.connections.linger(list(self.peers.values()), LINGER_SECONDS)
        super().close()


def _opened_envelope(peer: Peer, message: Message) -> tuple[bytes, Sequence[Frame]]:
    """The route back and the request in a REQ's envelope, which its answer is put into.

    An empty frame; before it a number, where the REQ correlates. It may have given up a request
    and asked anew: by the number it tells the late answer from the one that it waits for.
    """
    if len(message) > 1 and not message[0]:
        return peer.route, message[1:]
    if len(message) > 2 and len(message[0]) <= NUMBER_BYTES_MAX and not message[1]:
        route = NumberedRoute(peer.route)
        route.number = bytes(message[0])
        return route, message[2:]
    return peer.route, message


def _in_envelope(peer: Peer, route: bytes, frames: Frames) -> list[Frame]:
    """A reply as bytes, for a REQ in the envelope that its request came in."""
    if not peer.is_req:
        return encode(frames)
    if isinstance(route, NumberedRoute):
        return encode([route.number, b"", *frames])
    return encode([b"", *frames])
