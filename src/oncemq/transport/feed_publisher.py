"""The live feed: what is sent once here, libzmq gives to everyone who listens to its subject.

Law: a send waits for nobody. A listener that does not keep up misses messages, and pulls them.
"""

from collections.abc import Sequence

import zmq

from oncemq.errors import PortInUse
from oncemq.transport.contexts import new_context
from oncemq.transport.peers import Connections, PeerCount
from oncemq.transport.sockets import NOBLOCK, allow_ipv6, publisher, readable

Frames = Sequence[bytes | bytearray | memoryview]

JOINED = b"\1"  # the first byte of what a SUB says: it wants a subject, or no longer


class FeedPublisher:
    """A bound XPUB. Used by one thread, and by no other."""

    def __init__(self, address: str, connections: Connections | None = None) -> None:
        self._context = new_context()
        self._socket = publisher(self._context)
        self._peers = PeerCount(self._context, self._socket, connections or Connections())
        allow_ipv6(self._socket, address)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._peers.close()
            self._context.destroy(linger=0)
            raise PortInUse(
                f"cannot feed listeners on {address}: {error.strerror}; is another server running? "
                "Choose another address with --feed, or --feed none"
            ) from None
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self.descriptor = int(self._socket.FD)  # tells only of changes: `change` until None first

    def change(self) -> tuple[bool, bytes] | None:
        """Someone wants a subject (True), or the last one who did is gone; None: nothing new."""
        if not readable(self._socket):
            return None
        said = self._socket.recv_multipart(NOBLOCK)[0]
        return said[:1] == JOINED, said[1:]  # what means nothing has a subject that is none

    def count_peers(self) -> None:
        """Take note of who came and went."""
        self._peers.look()

    def send(self, frames: Frames) -> None:
        """To everyone who listens to the subject in the first frame, and keeps up."""
        self._socket.send_multipart(frames, NOBLOCK, copy=False)

    def close(self) -> None:
        """Go; who listens pulls what it missed."""
        self._peers.close()
        self._socket.close(linger=0)
        self._context.term()
