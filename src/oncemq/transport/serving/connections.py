"""All connections of one server: who is there, what each is owed, and what they take together.

How it works. A server has one of these, with one poller, for its requests and its feed. `wait` puts
who has something to say into the line of its address (`Peer.ready`), where `BoundSocket` hears them
in turn, and sends on to who can take more of what it is owed. A message of ours is sent at once, as
far as the system takes it; the rest is owed. Half a second apart, `wait` looks for who is over a
limit of time. Nothing is done for these limits where a lone request passes by.

Laws: what peers take is counted before it is more than `ConnectionLimits` says; who is dropped is
told in the log with the reason, and owes and holds nothing from then on. While the server hears
nobody, nobody's time passes (`peers_time`).
"""

import logging
import select
import time
from collections.abc import Callable, Sequence
from itertools import islice

from oncemq.transport.serving.limits import ConnectionLimits
from oncemq.transport.serving.peer import Peer
from oncemq.transport.serving.peers_time import PeersTime
from oncemq.transport.serving.poller import READABLE, WRITABLE, new_poller
from oncemq.transport.serving.unfinished import UnfinishedMessages
from oncemq.transport.wakeup import Bell, Bells
from oncemq.zmtp.connection import Opened
from oncemq.zmtp.limits import WireError
from oncemq.zmtp.messages import Frame, rest_of

LOOK_SECONDS = 0.5
BUFFERS_MAX = 512  # in one call of the system, which takes 1,024
TURN_BYTES = 4 << 20  # sent on to one peer at a time
BROKEN = select.POLLERR | select.POLLHUP

REFUSED, DROPPED = "connection_refused", "connection_dropped"

logger = logging.getLogger("oncemq.server")


class Connections:
    """The peers of one server's sockets, together."""

    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self.tell: Callable[..., None] = _to_nobody  # whoever notes it
        self.owed_bytes = 0
        self.waits = 0  # how often somebody waited
        self.poller = new_poller()
        self._clock = clock
        self._peers: dict[int, Peer] = {}
        self._others: dict[int, Callable[[], None]] = {}  # bells, and sockets that are listened on
        self._silent: list[int] = []  # of these, who is not listened to until the next look
        self._lines: list[Sequence[Peer]] = []
        self._newcomers: dict[int, Peer] = {}  # the oldest first, as in the next two
        self._unfinished = UnfinishedMessages()
        self._owing: dict[Peer, None] = {}
        self._next_look = 0.0
        self._now = PeersTime(clock)
        self._is_at_limit = False
        self.bells = Bells()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._peers) + len(self._newcomers)

    @property
    def status(self) -> dict[str, int]:
        """What there is of what the limits are about, and the limits of it."""
        limits = self.limits
        return {
            "connections": self.count,
            "connections_max": limits.connections_max,
            "handshakes": len(self._newcomers),
            "unfinished_bytes": self.held_bytes,
            "unfinished_bytes_max": limits.unfinished_bytes_max,
            "owed_bytes": self.owed_bytes,
            "owed_total_max": limits.owed_total_max,
        }

    # Waiting

    def watch(self, descriptor: int, happened: Callable[[], None]) -> None:
        """Call this when something is to be read there."""
        self._others[descriptor] = happened
        self.poller.register(descriptor, READABLE)

    def forget(self, descriptor: int) -> None:
        """No longer."""
        del self._others[descriptor]
        if descriptor in self._silent:
            self._silent.remove(descriptor)
        elif self._lines:  # with the last one the poller was put away
            self.poller.unregister(descriptor)

    def watch_bell(self, bell: Bell) -> None:
        """Wake up when it rings, also from a rest."""
        self.bells.add(bell)
        self.watch(bell.descriptor, bell.silence)

    def forget_bell(self, bell: Bell) -> None:
        """It rings no more."""
        self.bells.remove(bell)
        self.forget(bell.descriptor)

    def hear(self, line: Sequence[Peer]) -> None:
        """Whoever stands in this line is heard before anybody waits."""
        self._lines.append(line)

    def leave(self, line: Sequence[Peer]) -> None:
        """That address is not served any more; with the last one everything is put away."""
        self._lines = [each for each in self._lines if each is not line]
        if not self._lines:
            self.poller.close()

    def wait(self, timeout_ms: int) -> None:
        """Until something happens or the time is over; not at all while somebody is to be heard."""
        self.waits += 1
        for line in self._lines:
            if line:
                timeout_ms = 0
        peers = self._peers
        for descriptor, what in self.poller.wait(timeout_ms):
            peer = peers.get(descriptor)
            if peer is None:
                if (newcomer := self._newcomers.get(descriptor)) is not None:
                    self._shake_hands(newcomer, what)
                elif (happened := self._others.get(descriptor)) is not None:
                    happened()
            elif what == READABLE:
                if not peer.is_ready:
                    peer.is_ready = True
                    peer.ready.append(peer)
            else:
                self._happened(peer, what)
        if self._clock() >= self._next_look:
            self._look()

    def rest(self, timeout_ms: int) -> None:
        """Until a bell rings or the time is over, whatever comes in."""
        begun = self._clock()
        self.bells.wait(timeout_ms)
        self._now.leave_out(self._clock() - begun)

    def _happened(self, peer: Peer, what: int) -> None:
        if what & WRITABLE:
            self.send_on(peer)
        if not peer.is_open:
            return
        if peer.is_paused:
            if what & BROKEN:  # nobody would read why: it is told again and again
                self.drop(peer, "the connection broke")
        elif what & ~WRITABLE:
            peer.line_up()

    def _shake_hands(self, peer: Peer, what: int) -> None:
        try:
            if what & WRITABLE:
                self.send_on(peer)
            if peer.is_open and what & ~WRITABLE and peer.read():
                opened = peer.connection.next_event()
                if isinstance(opened, Opened):
                    peer.is_req = opened.peer.socket_type == b"REQ"
                    self.opened(peer)
                elif peer.connection.has_output:
                    self.send(peer, peer.connection.take_output())
        except WireError as fault:
            self.refuse(peer, str(fault))
        except OSError as error:
            self.drop(peer, error.strerror or str(error))

    # Coming and going

    def admit(self, peer: Peer) -> None:
        """A newcomer; the one that has shaken hands for the longest makes room for it, if need be.

        When all are open there is no room, and it is closed at once.
        """
        limits = self.limits
        newcomers = self._newcomers
        is_full = self.count >= limits.connections_max
        if newcomers and (is_full or len(newcomers) >= limits.handshakes_max):
            oldest = next(iter(newcomers.values()))
            self.drop(oldest, "handshakes_max: it made room for others", REFUSED)
        elif is_full:
            self._tell_limit()
            self.tell(REFUSED, reason="connections_max: there is no room", peer=peer.name)
            peer.is_open = False
            peer.link.close()
            peer.gone(peer)
            return
        peer.since = self._now()
        newcomers[peer.descriptor] = peer
        self.poller.register(peer.descriptor, READABLE)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("connection accepted peer=%s route=%s", peer.name, peer.route.hex())
        self.send(peer, peer.connection.take_output())

    def opened(self, peer: Peer) -> None:
        """Its handshake is over: from now on it is heard."""
        peer.is_opened = True
        self._peers[peer.descriptor] = self._newcomers.pop(peer.descriptor)
        self.send(peer, peer.connection.take_output())
        if peer.is_open:
            peer.line_up()  # there may be something behind its handshake

    def refuse(self, peer: Peer, reason: str) -> None:
        """It does what nobody may; it is told, as far as that leaves."""
        if peer.connection.has_output:
            self.send(peer, peer.connection.take_output())
        self.drop(peer, reason, DROPPED if peer.is_opened else REFUSED)

    def drop(self, peer: Peer, reason: str, kind: str = "") -> None:
        """Go; with a kind it was our doing, and is told."""
        if not peer.is_open:
            return
        if kind:
            self.tell(kind, reason=reason, peer=peer.name)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("connection ended route=%s reason=%s", peer.route.hex(), ascii(reason))
        peer.is_open = False
        del (self._peers if peer.is_opened else self._newcomers)[peer.descriptor]
        self.poller.unregister(peer.descriptor)
        peer.link.close()
        peer.connection.end()
        self.finished(peer)
        self._owe_no_more(peer)
        peer.gone(peer)
        if self._silent:  # there is a descriptor again
            self._listen_again()

    def no_room(self, descriptor: int) -> None:
        """No file is left for who comes there: they wait until somebody leaves, or the next look.

        Else the poller would tell of them without end.
        """
        self._tell_limit()
        self._silent.append(descriptor)
        self.poller.unregister(descriptor)

    def _listen_again(self) -> None:
        silent, self._silent = self._silent, []
        for descriptor in silent:
            self.poller.register(descriptor, READABLE)

    def _tell_limit(self) -> None:
        if not self._is_at_limit:
            self._is_at_limit = True
            logger.warning(
                "connections at the limit connections=%d; newcomers are turned away until others "
                "leave: raise the limit of open files (ulimit -n), or connections_max",
                self.count,
            )

    # What is owed

    def send(self, peer: Peer, buffers: Sequence[Frame]) -> None:
        """Send what leaves at once; the rest is owed."""
        if not peer.owed:
            try:
                if len(buffers) == 1:
                    sent = peer.link.send(buffers[0])
                    if sent == len(buffers[0]):
                        return
                else:
                    sent = peer.link.sendmsg(buffers[:BUFFERS_MAX])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.drop(peer, error.strerror or "the connection broke")
                return
            if not (buffers := rest_of(buffers, sent)):
                return
            peer.took = self._now()
            self._owing[peer] = None
            self._set_interest(peer, peer.interest | WRITABLE)
        self._owe(peer, buffers)

    def _owe(self, peer: Peer, buffers: Sequence[Frame]) -> None:
        size = sum(map(len, buffers))
        peer.owed.extend(buffers)
        peer.owed_bytes += size
        self.owed_bytes += size
        limits = self.limits
        if peer.owed_bytes > limits.owed_pause_bytes:
            if peer.owed_bytes > limits.owed_bytes_max:
                self.drop(peer, "owed_bytes_max: it does not read its replies", DROPPED)
            elif not peer.is_paused:
                peer.is_paused = True
                self._set_interest(peer, WRITABLE)
        while self.owed_bytes > limits.owed_total_max:
            self.drop(next(iter(self._owing)), "owed_total_max: it does not read", DROPPED)

    def send_on(self, peer: Peer) -> None:
        """Send more of what is owed."""
        owed = peer.owed
        before = peer.owed_bytes
        try:
            while owed and before - peer.owed_bytes < TURN_BYTES:
                sent = peer.link.sendmsg(list(islice(owed, BUFFERS_MAX)))
                peer.owed_bytes -= sent
                self.owed_bytes -= sent
                while sent and sent >= len(owed[0]):
                    sent -= len(owed.popleft())
                if sent:
                    owed[0] = memoryview(owed[0])[sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self.drop(peer, error.strerror or "the connection broke")
            return
        if peer.owed_bytes < before:
            peer.took = self._now()
        if not owed:
            self._owing.pop(peer, None)
            self._set_interest(peer, READABLE)
        if peer.is_paused and peer.owed_bytes <= self.limits.owed_pause_bytes // 2:
            self._hear_again(peer)

    def _hear_again(self, peer: Peer) -> None:
        peer.is_paused = False
        peer.since = self._now()
        peer.came_before = peer.came_bytes
        self._set_interest(peer, peer.interest | READABLE)
        peer.line_up()  # what it said before is there, and the poller does not know of it

    def _owe_no_more(self, peer: Peer) -> None:
        self._owing.pop(peer, None)
        self.owed_bytes -= peer.owed_bytes
        peer.owed_bytes = 0
        peer.owed.clear()

    def _set_interest(self, peer: Peer, interest: int) -> None:
        if interest != peer.interest:
            peer.interest = interest
            self.poller.modify(peer.descriptor, interest)

    def linger(self, peers: Sequence[Peer], seconds: float) -> None:
        """Send what is owed to these, for a moment; nobody is heard."""
        poll = select.poll()
        left = {peer.descriptor: peer for peer in peers if peer.owed}
        for descriptor in left:
            poll.register(descriptor, WRITABLE)
        end = self._clock() + seconds
        while left and (rest := end - self._clock()) > 0:
            for descriptor, _ in poll.poll(rest * 1000):
                self.send_on(left[descriptor])
                if not left[descriptor].owed:
                    poll.unregister(descriptor)
                    del left[descriptor]

    # What did not come whole

    def unfinished(self, peer: Peer) -> None:
        """There is a part of a message, and it is the peer's turn no longer."""
        found = self._unfinished
        found.note(peer, self._now())
        while found.held_bytes > self.limits.unfinished_bytes_max:
            self.drop(found.oldest(), "unfinished_bytes_max: its message is late", DROPPED)

    def finished(self, peer: Peer) -> None:
        """Its message is whole."""
        self._unfinished.forget(peer)

    @property
    def held_bytes(self) -> int:
        """Of messages that did not come whole."""
        return self._unfinished.held_bytes

    # Limits of time

    def _look(self) -> None:
        self._next_look = self._clock() + LOOK_SECONDS
        limits = self.limits
        now = self._now.look()
        if self._silent:
            self._listen_again()
        if self._is_at_limit and self.count <= limits.connections_max * 9 // 10:
            self._is_at_limit = False
            logger.info("connections below the limit connections=%d", self.count)
        for peer in list(self._newcomers.values()):
            if now - peer.since >= limits.handshake_ms / 1000:
                self.drop(peer, "handshake_ms: its handshake takes too long", REFUSED)
        for peer in self._unfinished.late(now, limits):
            self.drop(peer, "unfinished_ms: its message comes too slowly", DROPPED)
        for peer in list(self._owing):
            if now - peer.took > limits.owed_ms / 1000:
                self.drop(peer, "owed_ms: it does not read", DROPPED)


def _to_nobody(_kind: str, **_facts: str | int) -> None:
    """Before there is somebody who notes it."""
