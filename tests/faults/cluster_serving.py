"""Three servers of a cluster as processes, and the etcd that they agree through."""

import os
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncemq import Client
from oncemq.errors import OnceMQError
from simulator.cluster.replica_digests import ReplicaDigest, digest_of
from tests.e2e.processes import Process, free_port, until
from tests.faults.cast import FaultNursery
from tests.harness.etcd import Etcd

SERVERS = ("a", "b", "c")
EVERYBODY_SECONDS = 90.0  # until all are in sync again, whatever happened

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Host:
    """What a server runs on."""

    disk: Path | None = None  # another one than the others'
    address: str = "127.0.0.1"
    more: Mapping[str, Any] = field(default_factory=dict)  # for its role: see `roles.placed`


class ClusterServing:
    """As `Serving`, of a cluster: `address` is all of theirs."""

    def __init__(
        self,
        nursery: FaultNursery,
        directory: Path,
        etcd: Etcd,
        hosts: Mapping[str, Host] | None = None,
        **options: Any,
    ) -> None:
        self.etcd = etcd
        self.processes: dict[str, Process] = {}
        self.hosts = {server: (hosts or {}).get(server, Host()) for server in SERVERS}
        self.addresses = {
            server: f"tcp://{host.address}:{free_port()}" for server, host in self.hosts.items()
        }
        self.homes = {
            server: (host.disk or directory) / f"data-{server}"
            for server, host in self.hosts.items()
        }
        self._nursery, self._directory, self._options = nursery, directory, options
        self._lives = 0

    @property
    def address(self) -> Any:
        return list(self.addresses.values())

    @property
    def process(self) -> Process:
        """Any of them, for what is said when something does not come to be."""
        return self.processes[SERVERS[0]]

    # ------------------------------------------------------------------ lives

    def start(self) -> Any:
        """All of them, and wait until all are in sync."""
        for server in SERVERS:
            self.begin(server)
        self.until_in_sync()
        return self.address

    def begin(self, server: str) -> None:
        """Start one; nothing is waited for."""
        self._lives += 1
        self.processes[server] = self._nursery.start(
            "serve_replica",
            f"server-{server}-{self._lives}",
            self._directory,
            bind=self.addresses[server],
            data=str(self.homes[server]),
            server_id=server,
            etcd=list(self.etcd.access.addresses),
            **self._options,
            **self.hosts[server].more,
        )

    def end(self, *servers: str) -> None:
        """SIGKILL, also of those that have ended."""
        self._nursery.end(*(self.processes[server] for server in servers))

    def stop(self) -> None:
        """All at rest and equal, then killed at one moment."""
        self.until_at_rest()
        self.end(*SERVERS)

    def signal(self, server: str, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.processes[server].pid, number)

    def alone(self) -> list[str]:
        """Who ended without being killed, with what it said."""
        gone = self._nursery.alone(list(self.processes.values()))
        return [f"{each.name}: {each.errors[-2000:]}" for each in gone]

    # ------------------------------------------------------------------ disks

    def copy(self, server: str) -> Path:
        """The directory of a server that is not running, kept as it is now."""
        kept = self._directory / f"copy-{server}-{self._lives}"
        shutil.copytree(self.homes[server], kept)
        return kept

    def empty(self, server: str) -> None:
        """Its disk is a new one."""
        shutil.rmtree(self.homes[server])

    def put_back(self, server: str, kept: Path) -> None:
        """Its disk is as it was then."""
        shutil.rmtree(self.homes[server], ignore_errors=True)
        shutil.copytree(kept, self.homes[server])

    # ------------------------------------------------------------------ how they are

    def facts(self, server: str) -> Facts:
        """What it says of itself; nothing, where it does not answer."""
        with suppress(OnceMQError), Client(self.addresses[server], timeout=1.0) as client:
            return client.status()
        return {}

    def all_facts(self) -> dict[str, Facts]:
        return {server: self.facts(server) for server in SERVERS}

    def leader(self) -> str | None:
        """Who serves clients in the highest epoch."""
        found = [
            (int(facts["cluster_leader_epoch"]), server)
            for server, facts in self.all_facts().items()
            if facts.get("cluster_role") == "leads"
        ]
        return max(found)[1] if found else None

    def until_led(self, *, but: str = "") -> str:
        """By anybody, or by another one than that."""

        def led() -> str | None:
            leader = self.leader()
            return None if leader == but else leader

        what = f"somebody leads{but and ' but '}{but}; {self.alone()}; {self.all_facts()}"
        leader = until(led, EVERYBODY_SECONDS, what=what)
        assert leader is not None
        return leader

    def others(self, server: str) -> list[str]:
        return [other for other in SERVERS if other != server]

    def until_in_sync(self, *, seconds: float = EVERYBODY_SECONDS) -> float:
        """All of them; how long it took."""
        begun = time.monotonic()
        what = f"all in sync; {self.alone()}; {self.all_facts()}"
        until(lambda: self.is_in_sync(*SERVERS), seconds, what=what)
        return time.monotonic() - begun

    def is_in_sync(self, *followers: str) -> bool:
        """As their leader says."""
        leader = self.leader()
        facts = {} if leader is None else self.facts(leader)
        return all(facts.get(f"member.{each}.in_sync") for each in followers if each != leader)

    def until_at_rest(self) -> None:
        """Everything is on every disk, and committed."""
        self.until_in_sync()
        until(self._rest, EVERYBODY_SECONDS, what=f"all at rest; {self.all_facts()}")

    def _rest(self) -> bool:
        names = ("cluster_last", "cluster_synced", "cluster_applied", "cluster_commit")
        seen = {facts.get(name) for facts in self.all_facts().values() for name in names}
        return len(seen) == 1 and None not in seen

    def digests(self) -> dict[str, ReplicaDigest]:
        """Of the directories, once their servers are gone."""
        return {server: digest_of(home) for server, home in self.homes.items()}


def must_be_equal(digests: Mapping[str, ReplicaDigest]) -> None:
    """End of log, state and messages of all replicas."""
    one, *others = digests.values()
    for other in others:
        assert other.tail == one.tail, digests
        assert other.messages == one.messages
        assert other.state == one.state
