"""What befalls a cluster and no server alone: frozen servers, cut ways, etcd, lost disks, drains.

Law: a disk is lost, or set back, only while nobody else lacks what it had, and another directory
that is in sync has everything. Two that lose theirs at once lose data, as REPLICATION.md says.
"""

from collections.abc import Callable, Mapping
from random import Random

from oncemq.coordination import transactions
from oncemq.coordination.coordinator import Transact
from oncemq.coordination.etcd.rules.calls import Attempt
from oncemq.coordination.values import ServerState, ShardReplicas, decoded, encoded
from oncemq.protocol.names import ServerId
from simulator.clock import MILLISECOND, Clock
from simulator.cluster.simulated_replica import KEYS, SHARD, SimulatedReplica
from simulator.cluster.ways import ETCD, Ways
from simulator.coordination.etcd import SimulatedEtcd
from simulator.machines.machine import Machine
from simulator.network.network import Way
from simulator.schedule.cast import WorldStep
from simulator.servers.server_lifecycle import ServerLives

Lives = Mapping[str, ServerLives[SimulatedReplica]]


class ClusterMishaps:
    """Of one world."""

    def __init__(
        self,
        clock: Clock,
        etcd: SimulatedEtcd,
        lives: Lives,
        ways: Ways,
        clients: list[str],
        tell: Callable[[str], None],
    ) -> None:
        self._clock, self._etcd, self._lives, self._ways = clock, etcd, lives, ways
        self._clients, self._tell = clients, tell
        self._copies: dict[str, Machine] = {}
        self.lacking: dict[str, int] = {}  # who lost its disk, until it has this serial again
        self._drains = 0

    def befall(self, step: WorldStep, name: str) -> bool:
        """Do it to this server; False: it is nothing of this kind."""
        args = step.args
        nanoseconds = int(args.get("for_ms", 0)) * MILLISECOND
        match step.do:
            case "freeze":
                self._lives[name].freeze(nanoseconds)
            case "cut_ways":
                ways = self._ways_of(name, str(args["to"]), out=bool(args["out"]))
                back = self._ways_of(name, str(args["to"]), out=False) if args["back"] else []
                self._ways.cut({*ways, *back}, nanoseconds)
            case "etcd_away":
                self._etcd.go_away(nanoseconds)
            case "end_leases":
                self._etcd.end_leases_early()
            case "forget_history":
                self._etcd.compact()
            case "drain":
                self._drain(name, nanoseconds)
            case "copy_disk":
                self._copies[name] = self._lives[name].machine.copy(Random(self._clock.now))
            case "lose_disk" | "set_back_disk":
                self._replace_disk(step.do, name, int(args["down_ms"]))
            case _:
                return False
        return True

    def _ways_of(self, name: str, to: str, *, out: bool) -> list[Way]:
        others = [each for each in self._lives if each != name]
        peers = {
            "servers": others,
            "clients": self._clients,
            "etcd": [ETCD],
            "all": [*others, *self._clients, ETCD],
        }.get(to, [to])
        return [(name, each) if out else (each, name) for each in peers if each != name]

    # ------------------------------------------------------------------ what the cluster agreed on

    @property
    def shard(self) -> ShardReplicas | None:
        """As etcd has it."""
        entry = self._etcd.entries.get(KEYS.shard(SHARD))
        return None if entry is None else decoded(entry.value, ShardReplicas, key=entry.key)

    def _drain(self, name: str, nanoseconds: int) -> None:
        """As `once cluster drain` does, and after a while the other way."""
        self._drains += 1
        if self._say_draining(name, draining=True):
            self._tell("server drained")
            self._clock.after(nanoseconds, lambda: self._say_draining(name, draining=False))

    def _say_draining(self, name: str, *, draining: bool) -> bool:
        key = KEYS.server(ServerId(name))
        entry = self._etcd.entries.get(key)
        if entry is None:
            return False
        before = decoded(entry.value, ServerState, key=key)
        state = transactions.drain(before, draining=draining, nonce=f"drain {self._drains}")
        self._etcd.apply(Attempt(Transact({key: entry.revision}, {key: encoded(state)})))
        return True

    def end_drains(self) -> None:
        """Every server may lead again."""
        for name in self._lives:
            self._say_draining(name, draining=False)

    # ------------------------------------------------------------------ lost disks

    def _replace_disk(self, what: str, name: str, down_ms: int) -> None:
        copy = self._copies.get(name)
        is_lost = what == "lose_disk"
        if (copy is None and not is_lost) or not self._others_have_everything(name):
            return
        committed = self._committed()
        lives = self._lives[name]
        lives.kill(down_ms)
        if is_lost or copy is None:
            lives.machine = Machine(Random(self._clock.now))
        else:
            lives.machine = copy.copy(Random(self._clock.now))
        lives.machine.disk.faults.capacity = 1 << 40
        self.lacking[name] = committed
        self._tell("server's disk lost" if is_lost else "server's disk set back")

    def _others_have_everything(self, name: str) -> bool:
        others = {each: lives for each, lives in self._lives.items() if each != name}
        if any(map(self._lacks, others)):
            return False
        return any(lives.is_up and self.is_whole(each) for each, lives in others.items())

    def is_whole(self, name: str) -> bool:
        """Whether its directory is in sync, and was not replaced, or has everything again."""
        shard = self.shard
        if shard is None or name not in shard.in_sync or name in shard.joining:
            return False
        return not self._lacks(name)

    def _lacks(self, name: str) -> bool:
        if name not in self.lacking:
            return False
        server = self._lives[name].server
        opened = None if server is None or server.parts is None else server.parts.opened
        if opened is None or opened.applied < self.lacking[name]:
            return True
        del self.lacking[name]
        return False

    def _committed(self) -> int:
        """What anybody knows to be committed, and a little more: all that there is."""
        found = [0]
        for lives in self._lives.values():
            if lives.server is not None and lives.server.parts is not None:
                opened = lives.server.parts.opened
                found.append(0 if opened is None else opened.log.last_serial)
        return max(found)
