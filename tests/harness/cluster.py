"""Servers of which one leads, for the client without sockets: the others are scripted.

The one that leads is the driver of `harness.client.Server`, wherever it leads: its log is what a
new leader has, too.
"""

from collections.abc import Sequence
from typing import Any

from oncemq.protocol.replies import RefusedReply, StatusReport, not_leader
from oncemq.protocol.requests import StatusRequest
from oncemq.wire import codec
from tests.harness.client import NOWHERE, Server, Wire, World


class Cluster:
    """Who leads, what the others say, and who is dead."""

    def __init__(self, world: World, *addresses: str) -> None:
        self.leader = addresses[0]
        self.says: dict[str, RefusedReply] = {}  # of those that follow
        self.dead: set[str] = set()  # no connection comes
        self.mute: set[str] = set()  # nothing is answered
        world.servers = addresses
        world.wire_to = lambda server: ClusterWire(self, server)


class ClusterWire(Wire):
    """A line to any of them."""

    def __init__(self, cluster: Cluster, server: Server) -> None:
        super().__init__(server)
        self.cluster = cluster
        self.address = ""
        self.asked: list[str] = []  # where it connected to
        self.refused: list[bytes] = []  # heads of requests that a follower refused
        self._said: list[list[Any]] = []

    def connect(self, address: str) -> None:
        self.address = address
        self._said.clear()
        self.asked.append(address)
        super().connect(NOWHERE if address in self.cluster.dead else address)

    def send(self, frames: Sequence[Any]) -> bool:
        cluster = self.cluster
        if self.address == cluster.leader and self.address not in cluster.mute:
            return super().send(frames)
        if not self.up or not self.route:
            return False
        self.sent += 1
        if self.address not in cluster.mute:
            token, request, _ = codec.decode_request(frames)
            answer = cluster.says.get(self.address, not_leader())
            if isinstance(request, StatusRequest):
                answer = StatusReport({"leads": False})
            else:
                self.refused.append(bytes(frames[0]))
            self._said.append(codec.encode_reply(token, answer))
        return True

    def collect(self) -> None:
        super().collect()
        if self.cluster.leader != self.address:
            self.inbox.clear()  # it steps down without another word of the leader
        said, self._said = self._said, []
        self.inbox += [each for each in said if not self.lose(next(self._replies))]
