"""The connections of a server to the others, over the simulated network.

Laws: as in `cluster.links`, nothing waits, whoever is reached again is named once, and a connection
that brings no answers is made anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from oncemq.protocol.names import Micros, ServerId
from oncemq.protocol.step import Body
from oncemq.replication.awaited_answer import AwaitedAnswer
from simulator.network.network import Network, SimulatedDealer


class SimulatedLinks:
    """All of one server. The address of a server is its place in the network."""

    def __init__(self, network: Network, me: ServerId, wake: Callable[[], None]) -> None:
        self._network, self._me, self._wake = network, me, wake
        self._lines: dict[ServerId, SimulatedDealer] = {}
        self._awaited: dict[ServerId, AwaitedAnswer] = {}
        self._reached: list[ServerId] = []
        self._looked_at = Micros(0)

    def meet(self, addresses: Mapping[ServerId, str]) -> None:
        """These are the other servers now, at these addresses."""
        for server in self._lines.keys() - addresses.keys():
            self._lines.pop(server).close()
            del self._awaited[server]
        for server, address in addresses.items():
            line = self._lines.get(server)
            if line is None:
                line = self._lines[server] = SimulatedDealer(self._network, self._me, self._wake)
                self._awaited[server] = AwaitedAnswer()
            if line.address != address:
                line.connect(address)

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        """Send now, or not at all."""
        line = self._lines.get(server)
        is_sent = line is not None and line.send(frames)
        if is_sent:
            self._awaited[server].sent()
        return is_sent

    def receive(self) -> Iterable[tuple[ServerId, Sequence[Body]]]:
        """What the others said."""
        for server, line in list(self._lines.items()):
            while (is_connected := line.news()) is not None:
                self._awaited[server].is_gone()
                if is_connected:
                    self._reached.append(server)
            while (frames := line.receive()) is not None:
                self._awaited[server].answered()
                yield server, frames

    def connected(self) -> list[ServerId]:
        """Who is reached again since this was last asked: what was under way may be lost."""
        reached, self._reached = self._reached, []
        return list(dict.fromkeys(reached))

    def taking(self) -> Iterable[ServerId]:
        """Messages arrive whole, or not at all."""
        return ()

    def look(self, now: Micros) -> None:
        """The network dials by itself; who does not answer is dialed anew."""
        passed, self._looked_at = Micros(now - self._looked_at), now
        for server, line in self._lines.items():
            if self._awaited[server].is_in_vain(passed):
                line.connect(line.address)

    def close(self) -> None:
        """Part from all."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()
