"""The peers of one address, heard in turn: what ROUTER and XPUB have in common.

Laws: a peer gives up its turn after so many messages, or so many bytes; a call looks at so many
peers, and comes back with nothing though more have something to say: the caller has other things
to do in between.
"""

import itertools
import secrets
from collections import deque

from oncemq.transport.serving.acceptor import NO_DESCRIPTORS, Acceptor
from oncemq.transport.serving.connections import Connections
from oncemq.transport.serving.peer import Peer
from oncemq.zmtp.connection import Heard, Message, Opened, SubjectChange, ZmtpConnection
from oncemq.zmtp.limits import WireError, WireLimits

ACCEPTED_MAX = 64  # at a time
LOOKED_AT_MAX = 8  # peers that may have nothing to say after all, in one call
TURN_EVENTS = 16
TURN_BYTES = 1 << 20


class BoundSocket:
    """A server's socket of one type, at one address. Raises OSError when that cannot be had."""

    def __init__(
        self, socket_type: bytes, address: str, limits: WireLimits, connections: Connections
    ) -> None:
        self.connections = connections
        self.peers: dict[bytes, Peer] = {}  # by route
        self._acceptor = Acceptor(address)
        self.address = self._acceptor.address
        self._socket_type = socket_type
        self._limits = limits
        self._routes = itertools.count(secrets.randbits(62))  # no other server's
        self.line: deque[Peer] = deque()  # who has something to say
        self._events = 0  # of whose turn it is
        self._has_read = False
        self._came = 0  # from whose turn it is, when that began
        self._waits = 0  # the last one after which everybody was heard
        connections.watch(self._acceptor.descriptor, self._accept)
        connections.hear(self.line)

    def next_event(self) -> tuple[Peer, Message | SubjectChange | Heard] | None:
        """What the next peer said, or None: nothing, or nothing before others had their turn."""
        line = self.line
        if not line:
            if self._waits != self.connections.waits:  # there is nobody else
                self._waits = self.connections.waits
                return None
            self.connections.wait(0)
            self._waits = self.connections.waits
        for _ in range(min(len(line), LOOKED_AT_MAX)):
            if self._events >= TURN_EVENTS:
                self._end_turn(line[0])
                line.rotate(-1)
            peer = line[0]
            if not self._has_read:
                self._came = peer.came_bytes
            event = self._next_of(peer)
            if event is not None:
                return peer, event
        return None

    def gone(self, peer: Peer) -> None:
        """It is not there any more."""
        del self.peers[peer.route]

    def close(self) -> None:
        """Go, at once."""
        connections = self.connections
        connections.forget(self._acceptor.descriptor)
        self._acceptor.close()
        for peer in list(self.peers.values()):
            connections.drop(peer, "the server stopped")
        connections.leave(self.line)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                link = self._acceptor.accept()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    raise
                self.connections.no_room(self._acceptor.descriptor)
                return
            if link is None:
                return
            route = next(self._routes).to_bytes(8, "big")
            zmtp = ZmtpConnection(self._socket_type, self._limits)
            self.peers[route] = peer = Peer(link, zmtp, route, self.line, self.gone)
            self.connections.admit(peer)

    def _next_of(self, peer: Peer) -> Message | SubjectChange | Heard | None:
        """What it says next, or None; whoever has nothing more to say leaves the line."""
        connection = peer.connection
        event: Message | SubjectChange | Heard | None = None  # the last that it says for now
        try:
            while peer.is_open and not peer.is_paused:
                said = connection.next_event()
                assert not isinstance(said, Opened)  # it was before it came here
                if said is None:
                    # The poller tells of what is left there.
                    came = peer.came_bytes - self._came
                    if self._has_read and (peer.is_drained or came >= TURN_BYTES):
                        break
                    if not peer.read():
                        break
                    self._has_read = True
                else:
                    self._events += 1
                    if peer.is_unfinished and not connection.is_in_message:
                        self.connections.finished(peer)
                    if not (self._has_read and peer.is_drained and connection.is_quiet):
                        return said
                    event = said
                    break  # as nearly always: it has nothing more to say, and is not asked
        except WireError as fault:
            self.connections.refuse(peer, str(fault))
        except OSError as error:
            self.connections.drop(peer, error.strerror or str(error))
        if event is None:
            self._end_turn(peer)
        self._events = 0
        self._has_read = False
        self.line.popleft()
        peer.is_ready = False
        return event

    def _end_turn(self, peer: Peer) -> None:
        self._events = 0
        self._has_read = False
        if not peer.is_open:
            return
        connection = peer.connection
        if connection.has_output:
            self.connections.send(peer, connection.take_output())
        if peer.is_open and connection.is_partial:
            self.connections.unfinished(peer)
