"""The peers of one address, heard in turn: what ROUTER and XPUB have in common.

How turns are given. There are two lines: newcomers, who had nothing to say until now, and those
who had a turn and have more to say. After each wait one of the lines is heard: the newcomers, and
every second time the others, if there are any. So a client that asks now and then is answered
before the next piece of a flood, whoever floods; and newcomers, however many, stop no flood that is
honest.

Laws: a peer gives up its turn after so many messages, or so many bytes; a call looks at so many
peers, and comes back with nothing though more have something to say, also where one line is over
and the other one is not: the caller has other things to do in between.
"""

import itertools
import secrets
from collections import deque

from oncemq.transport.serving.acceptor import NO_ROOM, Acceptor
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
        self._newcomers: deque[Peer] = deque()
        self._others: deque[Peer] = deque()  # who had a turn, and have more to say
        self._line = self._newcomers  # the one that is heard
        self._was_heard = False  # somebody of it, since it was chosen
        self._speaker: Peer | None = None  # whose turn it is
        self._events = 0  # of it
        self._has_read = False
        self._came = 0  # from it, when its turn began
        self._waits = 0  # the last one after which somebody was heard
        connections.watch(self._acceptor.descriptor, self._accept)
        connections.hear(self._newcomers)
        connections.hear(self._others)

    @property
    def has_more(self) -> bool:
        """Whether somebody may have something to say that was not heard yet."""
        return self._speaker is not None or bool(self._newcomers or self._others)

    def next_event(self) -> tuple[Peer, Message | SubjectChange | Heard] | None:
        """What the next peer said, or None: nothing, or nothing before others had their turn."""
        connections = self.connections
        is_over = self._speaker is None and not self._line
        if is_over and self._waits == connections.waits:
            if not self.has_more:
                connections.wait(0)
            elif self._was_heard:  # those of this line are answered before the other one is heard
                self._was_heard = False
                return None
        if is_over or self._waits != connections.waits:
            self._waits = connections.waits
            self._was_heard = False
            if self._others or self._speaker is not None:
                self._choose_line()
            else:
                self._line = self._newcomers
        for _ in range(LOOKED_AT_MAX):
            if self._speaker is None:
                if not self._line:
                    return None
                self._speaker = self._line.popleft()
                self._came = self._speaker.came_bytes
                self._events = 0
                self._has_read = False
            peer = self._speaker
            if self._events < TURN_EVENTS:
                event = self._next_of(peer)
                if event is not None:
                    self._was_heard = True
                    return peer, event
            else:
                self._interrupt(peer)
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
        connections.leave(self._newcomers)
        connections.leave(self._others)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                link = self._acceptor.accept()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self.connections.no_room(self._acceptor.descriptor)
                return
            if link is None:
                return
            route = next(self._routes).to_bytes(8, "big")
            zmtp = ZmtpConnection(self._socket_type, self._limits)
            self.peers[route] = peer = Peer(link, zmtp, route, self._newcomers, self.gone)
            self.connections.admit(peer)

    def _choose_line(self) -> None:
        """The newcomers, unless it is the turn of the others."""
        if self._newcomers and not (self._others and self._line is self._newcomers):
            if self._speaker is not None:
                self._interrupt(self._speaker)
            self._line = self._newcomers
        elif self._others:
            self._line = self._others

    def _interrupt(self, peer: Peer) -> None:
        """It may have more to say, and goes on when it is the others' turn."""
        self._end_turn(peer)
        self._others.append(peer)

    def _next_of(self, peer: Peer) -> Message | SubjectChange | Heard | None:
        """What it says next, or None; whoever has nothing more to say leaves the line."""
        connection = peer.connection
        event: Message | SubjectChange | Heard | None = None  # the last that it says for now
        try:
            while peer.is_open and not peer.is_paused:
                said = connection.next_event()
                assert not isinstance(said, Opened)  # it was before it came here
                if said is None:
                    if self._has_read and peer.is_drained:
                        break  # the poller tells of what comes later
                    if peer.came_bytes - self._came >= TURN_BYTES:
                        self._interrupt(peer)
                        return None
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
        peer.is_ready = False
        if event is None:
            self._end_turn(peer)
        self._speaker = None
        return event

    def _end_turn(self, peer: Peer) -> None:
        self._speaker = None
        if not peer.is_open:
            return
        connection = peer.connection
        if connection.has_output:
            self.connections.send(peer, connection.take_output())
        if peer.is_open and connection.is_partial:
            self.connections.unfinished(peer)
