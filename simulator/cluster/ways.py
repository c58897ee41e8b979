"""Which ways between servers, clients and etcd carry something: cut in one direction or in both.

Law: a way that is cut by several mishaps is whole again when the last of them is over.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from simulator.clock import Clock
from simulator.coordination.simulated_coordinator import EtcdFaults
from simulator.network.network import Network, Way

ETCD = "etcd"


class Ways:
    """Of one world."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        tell_etcd: Mapping[str, Callable[[EtcdFaults], None]],
    ) -> None:
        self._clock, self._network = clock, network
        self._tell_etcd = tell_etcd  # by server: how its way to etcd is now
        self._usual = EtcdFaults()
        self._until: dict[Way, int] = {}

    @property
    def usual(self) -> EtcdFaults:
        """How the ways to etcd are where they are not cut."""
        return self._usual

    @usual.setter
    def usual(self, faults: EtcdFaults) -> None:
        self._usual = faults
        self._changed()

    def cut(self, ways: Iterable[Way], nanoseconds: int) -> None:
        """Nothing gets through for so long."""
        until = self._clock.now + nanoseconds
        for way in ways:
            self._until[way] = max(until, self._until.get(way, 0))
        self._changed()
        self._clock.at(until, self._look)

    def mend(self) -> None:
        """Everything gets through."""
        self._until.clear()
        self._changed()

    def is_whole(self, one: str, other: str) -> bool:
        """Whether both directions carry something."""
        return (one, other) not in self._until and (other, one) not in self._until

    def _look(self) -> None:
        ended = [way for way, until in self._until.items() if until <= self._clock.now]
        for way in ended:
            del self._until[way]
        if ended:
            self._changed()

    def _changed(self) -> None:
        for server, tell in self._tell_etcd.items():
            tell(self._way_to_etcd(server))
        self._network.block(self._until)

    def _way_to_etcd(self, server: str) -> EtcdFaults:
        ways = self._usual
        if (server, ETCD) in self._until:
            ways = replace(ways, lost=1.0, broken=1.0)
        if (ETCD, server) in self._until:
            ways = replace(ways, unanswered=1.0, broken=1.0)
        return ways
