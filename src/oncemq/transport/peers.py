"""How many peers the sockets of a server have.

libzmq has no limit of its own on connections, and no way to refuse one: unbinding a socket ends
the connections it has. What bounds them is the limit of open files; the log has descriptors held
back for itself (`storage/disk`), so that peers can have all the others.
"""

import logging
import struct
from dataclasses import dataclass

import zmq

from oncemq.transport.sockets import NOBLOCK, readable

_ACCEPTED = int(zmq.EVENT_ACCEPTED)
_EVENTS = _ACCEPTED | int(zmq.EVENT_DISCONNECTED)
_EVENT = struct.Struct("=HI")

logger = logging.getLogger("oncemq.server")


@dataclass(slots=True)
class Connections:
    """What the sockets of one server have together; at `limit` the next one may find no file."""

    limit: int = 1 << 30
    count: int = 0
    _told: bool = False

    def changed(self, by: int) -> None:
        """Somebody came, or went."""
        self.count += by
        if not self._told and self.count >= self.limit:
            self._told = True
            logger.warning(
                "connections at the limit of open files connections=%d; newcomers wait until "
                "others leave: raise the limit (ulimit -n)",
                self.count,
            )
        elif self._told and self.count < self.limit * 9 // 10:
            self._told = False
            logger.info("connections below the limit of open files connections=%d", self.count)


class PeerCount:
    """Counts the peers of one socket, from before it is bound."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        socket: "zmq.Socket[bytes]",
        connections: Connections,
    ) -> None:
        self._connections = connections
        self._socket = socket
        place = f"inproc://peers-{id(self)}"
        socket.monitor(place, _EVENTS)
        self._monitor = context.socket(zmq.PAIR)
        # Without a limit: libzmq's thread waits for room in here, and who closes waits for it.
        self._monitor.setsockopt(zmq.RCVHWM, 0)
        self._monitor.connect(place)

    def look(self) -> None:
        """Take note of who came and went."""
        while readable(self._monitor):
            event = _EVENT.unpack(self._monitor.recv_multipart(NOBLOCK)[0])[0]
            self._connections.changed(1 if event == _ACCEPTED else -1)

    def close(self) -> None:
        """Count no longer; before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
