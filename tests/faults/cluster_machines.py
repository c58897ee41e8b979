"""What the servers of a cluster run on, where it can be hurt: wires, disks and clocks of theirs."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncemq.testing.power import PowerDisk, power_disk, why_no_power_disk
from tests.faults.cluster_serving import SERVERS, Host
from tests.faults.network import Network, network, why_no_network
from tests.faults.wrong_clocks import WrongClock, why_no_wrong_clocks

ETCD, CLIENTS = "etcd", "clients"  # hosts beside those of the servers


@dataclass(frozen=True)
class Machines:
    """Of all servers; what is left out is the machine's that the tests run on."""

    wires: Network | None = None
    disks: Mapping[str, PowerDisk] = field(default_factory=dict)
    clocks: Mapping[str, WrongClock] = field(default_factory=dict)

    def hosts(self) -> dict[str, Host]:
        """One for each server."""
        return {server: self._host(server) for server in SERVERS}

    def on(self, host: str) -> dict[str, str]:
        """The options of a role that runs there."""
        return {} if self.wires is None else {"namespace": self.wires.namespace(host)}

    @property
    def etcd(self) -> dict[str, Any]:
        """The same of etcd's members."""
        if self.wires is None:
            return {}
        # Not `ip netns exec`: it takes copies of all mounts along, where a disk stays mounted.
        under = ("nsenter", f"--net=/run/netns/{self.wires.namespace(ETCD)}")
        return {"host": self.wires.address(ETCD), "under": under}

    def _host(self, server: str) -> Host:
        more: dict[str, Any] = self.on(server)
        if server in self.clocks:
            more["variables"] = self.clocks[server].variables
        disk = self.disks[server].path if server in self.disks else None
        if self.wires is None:
            return Host(disk=disk, more=more)
        return Host(disk=disk, address=self.wires.address(server), more=more)


@contextmanager
def hurtable_machines(mebibytes: int) -> Iterator[Machines]:
    """With all that can be hurt here, on disks of this size."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncemq-machines-")))
        wires, disks, clocks = None, {}, {}
        if not why_no_network():
            wires = stack.enter_context(network(*SERVERS, ETCD, CLIENTS))
        if not why_no_power_disk():
            for server in SERVERS:
                disks[server] = stack.enter_context(power_disk(home, mebibytes=mebibytes))
        if not why_no_wrong_clocks():
            clocks = {server: WrongClock(home / f"clock-{server}") for server in SERVERS}
        yield Machines(wires, disks, clocks)
