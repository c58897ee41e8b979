"""The server's end: requests in, replies out."""

from collections.abc import Sequence

import zmq

from oncemq.errors import PortInUse
from oncemq.transport.sockets import router

Frames = Sequence[bytes | bytearray | memoryview]


class Door:
    """A bound ROUTER. Used by one thread, and by no other."""

    def __init__(self, address: str, *, frame_bytes_max: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = router(self._context, frame_bytes_max=frame_bytes_max)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise PortInUse(
                f"cannot listen on {address}: {error.strerror}; is another server running? "
                "Choose another address with --bind"
            ) from None
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def watch(self, descriptor: int) -> None:
        """Also wake up when this descriptor is readable."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a request comes, the bell rings or the time is over."""
        self._poller.poll(timeout_ms)

    def receive(self) -> tuple[bytes, list[memoryview]] | None:
        """The next request, or None: the route back and its frames, uncopied."""
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return frames[0].bytes, [frame.buffer for frame in frames[1:]]

    def send(self, route: bytes, frames: Frames) -> bool:
        """Send a reply if the peer is there and keeps up; it asks again otherwise."""
        try:
            self._socket.send_multipart([route, *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True

    def close(self) -> None:
        """Give owed replies a moment to leave, then go."""
        self._socket.close()
        self._context.term()
