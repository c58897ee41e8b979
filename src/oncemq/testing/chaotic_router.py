"""A server's door that loses answers, brings requests twice, and is slow; as `Chaos` says."""

import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

from oncemq.testing.chaos import DELAY, DROP_REPLY, DUPLICATE_REQUEST, Chaos
from oncemq.transport.router import Frames, RouterSocket
from oncemq.transport.serving.connections import Connections
from oncemq.zmtp.messages import Frame

Request = tuple[bytes, Sequence[Frame]]


class ChaoticRouter(RouterSocket):
    """The real door; between it and the loop, requests are held and answers are lost."""

    def __init__(
        self,
        address: str,
        *,
        frame_bytes_max: int,
        connections: Connections,
        chaos: Chaos,
        is_dead: Callable[[], bool],
    ) -> None:
        super().__init__(address, frame_bytes_max=frame_bytes_max, connections=connections)
        self._chaos = chaos
        self._is_dead = is_dead
        self._held: list[tuple[float, int, Request]] = []
        self._order = count()
        self._latest: dict[bytes, float] = {}  # by route: a delayed request delays those behind it

    def wait(self, timeout_ms: int) -> None:
        """As the real one, and until the next held request is due."""
        if self._held:
            due_ms = (self._held[0][0] - time.monotonic()) * 1000
            timeout_ms = max(0, min(timeout_ms, int(due_ms) + 1))
        super().wait(timeout_ms)

    def receive(self) -> Request | None:
        """The next request that is due: a held one, or one that just came."""
        while True:
            now = time.monotonic()
            if self._held and self._held[0][0] <= now:
                return heappop(self._held)[2]
            received = super().receive()
            if received is None:
                return None
            if self._chaos.strikes(DUPLICATE_REQUEST):
                self._hold(now + self._chaos.hold(DUPLICATE_REQUEST), received)
            due = self._latest.get(received[0], 0.0)
            if self._chaos.strikes(DELAY):
                due = max(due, now + self._chaos.hold(DELAY))
            if due <= now:
                return received
            self._latest[received[0]] = due
            self._hold(due, received)

    def send(self, route: bytes, frames: Frames) -> bool:
        """An answer that is lost looks sent; who is dead says nothing."""
        return self._is_dead() or self._chaos.strikes(DROP_REPLY) or super().send(route, frames)

    def send_all(self, replies: Sequence[tuple[bytes, Frames]]) -> None:
        """One by one, each with its luck."""
        for route, frames in replies:
            self.send(route, frames)

    def _hold(self, due: float, request: Request) -> None:
        heappush(self._held, (due, next(self._order), request))
