"""The server's end: requests in, replies out."""

import select
from collections.abc import Sequence

import zmq

from oncemq.errors import PortInUse
from oncemq.transport.contexts import new_context
from oncemq.transport.peers import Connections, PeerCount
from oncemq.transport.sockets import NOBLOCK, allow_ipv6, readable, router
from oncemq.transport.wakeup import Wakeup

Frames = Sequence[bytes | bytearray | memoryview]


class RouterSocket:
    """A bound ROUTER. Used by one thread, and by no other."""

    def __init__(
        self, address: str, *, frame_bytes_max: int, connections: Connections | None = None
    ) -> None:
        self._context = new_context()
        self._socket = router(self._context, frame_bytes_max=frame_bytes_max)
        self._peers = PeerCount(self._context, self._socket, connections or Connections())
        allow_ipv6(self._socket, address)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._peers.close()
            self._context.destroy(linger=0)
            raise PortInUse(
                f"cannot listen on {address}: {error.strerror}; is another server running? "
                "Choose another address with --bind"
            ) from None
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._bell: Wakeup | None = None
        self._poll = select.poll()
        self._rest = select.poll()
        self._poll.register(int(self._socket.FD), select.POLLIN)

    def watch(self, bell: Wakeup) -> None:
        """Also wake up when this bell rings."""
        self._bell = bell
        self._poll.register(bell.descriptor, select.POLLIN)
        self._rest.register(bell.descriptor, select.POLLIN)

    def watch_too(self, descriptor: int) -> None:
        """Also wake up when this becomes readable; whoever it belongs to looks after it."""
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a request comes, the bell rings or the time is over.

        The socket's descriptor tells only of changes, so what is already there is asked first.
        """
        self._peers.look()
        if readable(self._socket):
            return
        bell = self._bell
        for descriptor, _ in self._poll.poll(timeout_ms):
            if bell is not None and descriptor == bell.descriptor:
                bell.silence()

    def rest(self, timeout_ms: int) -> None:
        """Sleep until the bell rings or the time is over, whatever comes in."""
        if self._rest.poll(timeout_ms) and self._bell is not None:
            self._bell.silence()

    def receive(self) -> tuple[bytes, list[memoryview]] | None:
        """The next request, or None: the route back and its frames, uncopied."""
        if not readable(self._socket):
            return None
        frames = self._socket.recv_multipart(NOBLOCK, copy=False)
        return frames[0].bytes, [frame.buffer for frame in frames[1:]]

    def send(self, route: bytes, frames: Frames) -> bool:
        """Send a reply if the peer is there and keeps up; it asks again otherwise."""
        try:
            self._socket.send_multipart([route, *frames], NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True

    def reaches(self, route: bytes, frames: Frames) -> bool:
        """Whether a peer is connected: what is sent to find out may be lost, if it is busy."""
        try:
            self._socket.send_multipart([route, *frames], NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == zmq.EAGAIN:
                return True
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def close(self) -> None:
        """Give owed replies a moment to leave, then go."""
        self._peers.close()
        self._socket.close()
        self._context.term()
