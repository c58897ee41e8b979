"""Messages that did not come whole: how much of them there is, and which come too slowly."""

from oncemq.transport.serving.limits import ConnectionLimits
from oncemq.transport.serving.peer import Peer


class UnfinishedMessages:
    """Of all peers of a server, the one that began first before the others."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._peers: dict[Peer, None] = {}

    def note(self, peer: Peer, now: float) -> None:
        """There is a part of one, or more of it than before."""
        if not peer.is_unfinished:
            peer.is_unfinished = True
            peer.since = now
            peer.came_before = peer.came_bytes
            self._peers[peer] = None
        held = peer.connection.held_bytes
        self.held_bytes += held - peer.held_bytes
        peer.held_bytes = held

    def forget(self, peer: Peer) -> None:
        """It is whole, or will never be."""
        if peer.is_unfinished:
            peer.is_unfinished = False
            del self._peers[peer]
            self.held_bytes -= peer.held_bytes
            peer.held_bytes = 0

    def oldest(self) -> Peer:
        """Whose began first."""
        return next(iter(self._peers))

    def late(self, now: float, limits: ConnectionLimits) -> list[Peer]:
        """Whose come too slowly; who waits for us is not late."""
        late: list[Peer] = []
        for peer in self._peers:
            passed = now - peer.since
            if passed < limits.unfinished_ms / 1000 or peer.is_ready or peer.is_paused:
                continue
            if peer.came_bytes - peer.came_before < limits.progress_bytes_min * passed:
                late.append(peer)
        return late
