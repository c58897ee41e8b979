"""One connection of a server: its socket, its ZMTP, and what is owed to it.

What a peer says of itself decides nothing: its route is a number of ours. `Connections` does what
is done with it; here is what there is to know of it.
"""

import socket
from collections import deque
from collections.abc import Callable

from oncemq.transport.serving.poller import READABLE
from oncemq.zmtp.connection import ZmtpConnection
from oncemq.zmtp.messages import Frame

FIRST_BYTES = 16 << 10  # received at a time: what comes in one piece costs one turn of a peer
MORE_BYTES = 64 << 10  # when that was filled


class Peer:
    """Whoever is at the other end."""

    __slots__ = (
        "_asked",
        "came_before",
        "came_bytes",
        "connection",
        "descriptor",
        "gone",
        "held_bytes",
        "interest",
        "is_drained",
        "is_open",
        "is_opened",
        "is_paused",
        "is_ready",
        "is_req",
        "is_unfinished",
        "link",
        "owed",
        "owed_bytes",
        "ready",
        "route",
        "since",
        "took",
    )

    def __init__(
        self,
        link: socket.socket,
        connection: ZmtpConnection,
        route: bytes,
        ready: "deque[Peer]",
        gone: "Callable[[Peer], None]",
    ) -> None:
        self.link = link
        self.descriptor = link.fileno()
        self.connection = connection
        self.route = route
        self.ready = ready  # where it stands when it has something to say
        self.gone = gone  # who has to know when it is dropped
        self.interest: int = READABLE
        self.is_open: bool = True  # the socket
        self.is_opened: bool = False  # the handshake is over
        self.is_ready: bool = False  # it is in `ready`
        self.is_drained: bool = True  # the last receive took all there was
        self.is_paused: bool = False  # it is not heard, until it has read what it is owed
        self.is_req: bool = False  # its messages have an envelope
        self.owed: deque[Frame] = deque()
        self.owed_bytes: int = 0
        self.took: float = 0.0  # when it last took something of what it is owed
        self.is_unfinished: bool = False  # a message of it is under way
        self.since: float = 0.0  # when that began, or the handshake
        self.came_bytes: int = 0
        self.came_before: int = 0  # that message
        self.held_bytes: int = 0  # of it, as counted
        self._asked: int = FIRST_BYTES

    def read(self) -> bool:
        """Receive once; whether something came. Raises OSError when the peer is gone."""
        try:
            view = self.connection.landing()
            if view is None:
                data = self.link.recv(self._asked)
                count = len(data)
                self.is_drained = count < self._asked
                self._asked = FIRST_BYTES if self.is_drained else MORE_BYTES
                self.connection.receive(data)
            else:
                with view:
                    count = self.link.recv_into(view)
                    self.is_drained = count < len(view)
                self.connection.landed(count)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionResetError("it closed the connection")
        self.came_bytes += count
        return True

    def line_up(self) -> None:
        """It has something to say, and is heard in its turn."""
        if not self.is_ready:
            self.is_ready = True
            self.ready.append(self)

    @property
    def name(self) -> str:
        """Where it is, for a line in the log."""
        try:
            place = self.link.getpeername()
        except OSError:
            return "gone"
        return f"{place[0]}:{place[1]}" if isinstance(place, tuple) else "ipc"
