"""The connections of a server to the others, over the simulated network.

Law: as in `cluster.links`, nothing waits, and whoever is reached again is named once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from oncemq.protocol.names import ServerId
from oncemq.protocol.step import Body
from simulator.network.network import Network, SimulatedDealer


class SimulatedLinks:
    """All of one server. The address of a server is its place in the network."""

    def __init__(self, network: Network, me: ServerId, wake: Callable[[], None]) -> None:
        self._network, self._me, self._wake = network, me, wake
        self._lines: dict[ServerId, SimulatedDealer] = {}
        self._reached: list[ServerId] = []

    def meet(self, addresses: Mapping[ServerId, str]) -> None:
        """These are the other servers now, at these addresses."""
        for server in self._lines.keys() - addresses.keys():
            self._lines.pop(server).close()
        for server, address in addresses.items():
            line = self._lines.get(server)
            if line is None:
                line = self._lines[server] = SimulatedDealer(self._network, self._me, self._wake)
            if line.address != address:
                line.connect(address)

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        """Send now, or not at all."""
        line = self._lines.get(server)
        return line is not None and line.send(frames)

    def receive(self) -> Iterable[tuple[ServerId, Sequence[Body]]]:
        """What the others said."""
        for server, line in list(self._lines.items()):
            while (is_connected := line.news()) is not None:
                if is_connected:
                    self._reached.append(server)
            while (frames := line.receive()) is not None:
                yield server, frames

    def connected(self) -> list[ServerId]:
        """Who is reached again since this was last asked: what was under way may be lost."""
        reached, self._reached = self._reached, []
        return list(dict.fromkeys(reached))

    def look(self) -> None:
        """The network dials by itself."""

    def close(self) -> None:
        """Part from all."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()
