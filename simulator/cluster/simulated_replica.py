"""One life of a server of a cluster: the shipped replica in the loop of the simulation."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from oncemq.broker.permits import EPOCH_PERMITS, OF_LEADERS
from oncemq.broker.state.shard import Shard
from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.parts import Parts
from oncemq.cluster.replica import Replica
from oncemq.cluster.replica_directory import Home, ReplicaPlace
from oncemq.cluster.serving import Serving
from oncemq.coordination.etcd.rules.calls import Call, CallAnswer
from oncemq.coordination.values import ClusterConfig, ClusterKeys
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ServerId, ShardId
from oncemq.protocol.requests import Put
from oncemq.replication.view import ReplicationLimits
from oncemq.server.clock import SteadyClock
from oncemq.server.served import KeepsHouse, Served
from oncemq.storage.log.log import LogOptions
from oncemq.wire import codec
from oncemq.wire.replica_codec import is_of_replicas
from simulator.actors.server_loop import DIRECTORY, STAGE_MS, Pace, ServerLoop, StartFound
from simulator.clock import MICROSECOND, Clock
from simulator.cluster.simulated_links import SimulatedLinks
from simulator.coordination.etcd import SimulatedEtcd
from simulator.coordination.simulated_coordinator import EtcdFaults, SimulatedCoordinator
from simulator.machines.machine import Machine, Trap
from simulator.network.feed import feed_at
from simulator.network.network import Frames, Network

KEYS = ClusterKeys("simulated")
SHARD = ShardId(1)
LEASE_MS = 3_000  # as `coordination.etcd` has it
UNHEARD = EtcdFaults(lost=1.0, broken=1.0)
FAILED_DISK = "the disk does not give"  # as the server says it
LIMITS = ReplicationLimits(
    window_bytes=64 << 10, append_bytes=4 << 10, ahead_bytes=1 << 10, probe_bytes=4 << 10
)


@dataclass
class Around:
    """What a server of a cluster has around it: the same for all of its lives."""

    clock: Clock
    network: Network
    etcd: SimulatedEtcd
    chance: Random
    options: LogOptions
    way_to_etcd: EtcdFaults  # changed by faults
    tell: Callable[[str], None]  # for the marks
    unanswered: Callable[[Call, CallAnswer], None]  # what happened, and its server does not hear
    trouble: Callable[[str], None]  # for the findings
    steady_offset: int = 0  # microseconds: its steady clock began some other time
    steady_ahead: int = 0  # and is so much quicker, in parts of a thousand


class SimulatedReplica(ServerLoop):
    """From its start to its end."""

    def __init__(
        self,
        around: Around,
        name: ServerId,
        machine: Machine,
        pace: Pace,
        sprung: Callable[[Trap], None],
        failed: Callable[[Exception], None],
    ) -> None:
        super().__init__(
            around.clock, around.network, machine, around.chance,
            pace=pace, sprung=sprung, failed=failed, place=name,
        )  # fmt: skip
        self.parts: Parts | None = None
        self._damage = ""  # that was met, in words
        self._seen: object = None  # the directory, or the filling of it, that was looked at
        self._around, self._name = around, name
        self._coordinator: SimulatedCoordinator | None = None
        self._links = SimulatedLinks(around.network, name, self.wake)

    def open(self, clock: Callable[[int | None], SteadyClock]) -> tuple[Served, KeepsHouse]:
        """Open the directory, if there is one, and look for the cluster."""
        around, chance = self._around, self._chance
        now = clock(None)
        coordinator = self._coordinator = SimulatedCoordinator(
            around.clock, around.etcd, KEYS.prefix, self.wake,
            chance=chance, faults=around.way_to_etcd, lease_ms=LEASE_MS,
            unanswered=around.unanswered,
        )  # fmt: skip
        agreement = ShardAgreement(
            self._name, KEYS, SHARD,
            founding=ClusterConfig(nonce="", lease_ms=LEASE_MS),
            address=self.place,
            claim=_hex(chance),
            new_nonce=lambda: _hex(chance),
        )  # fmt: skip
        home = Home(self.disk, DIRECTORY, around.options, chance.randbytes)
        serving = Serving(ServerLimits(stage_ms=STAGE_MS), feed=feed_at(self.place))
        replica = Replica(
            ReplicaPlace(self._name, SHARD, home, LIMITS), agreement, coordinator, self._links,
            serving, now(), address=self.place,
        )  # fmt: skip
        parts: Parts = vars(replica)["_parts"]
        self.parts = parts
        if (opened := parts.opened) is not None:
            has_checkpoint = opened.shard.checkpointed > 0
            self.opened = StartFound(opened.log.last_serial, opened.report, has_checkpoint)
        return replica, replica

    @property
    def shard(self) -> Shard | None:
        """The state that clients are answered from, while it leads."""
        driver = None if self.parts is None else self.parts.driver
        return None if driver is None else driver.broker.shard

    @property
    def is_opening(self) -> bool:
        """A directory may be made, or filled, some time after the start."""
        return self.parts is None or (self.parts.opened is None and self.parts.filling is None)

    def arrived(self, route: bytes, frames: Frames) -> None:
        super().arrived(route, frames)
        leading = None if self.parts is None else self.parts.leading
        if leading is None or leading.driver is None or is_of_replicas(frames):
            return
        with suppress(codec.Malformed):
            request = codec.decode_request(frames)[1]
            first = OF_LEADERS + leading.rules.leader_epoch * EPOCH_PERMITS
            if isinstance(request, Put) and 0 < request.permit < first:
                self._around.tell("put after another epoch's permit")

    def turn(self) -> None:
        super().turn()
        parts = self.parts
        assert parts is not None
        if parts.opened is not None and parts.opened is not self._seen:
            self._seen = parts.opened
            if parts.opened.report.cut:
                self._around.tell("tail cut")
        self._look_at_damage(parts.mending.why)
        if parts.filling is not None and parts.filling is not self._seen:
            self._seen = parts.filling
            self._around.tell("log refilled")

    def _look_at_damage(self, why: str) -> None:
        """No disk of these worlds changes what it has synced; some fail, in a sync or in all."""
        if why and why != self._damage and FAILED_DISK not in why:
            self._around.trouble(f"broke: {self.place} met damage that no disk did: {why}")
        self._damage = why

    @property
    def standing(self) -> str:
        """What it says of itself, for findings."""
        served = self.served
        assert isinstance(served, Replica)
        facts: dict[str, object] = vars(Replica)["_told_of_itself"](served)
        return " ".join(f"{k.removeprefix('cluster_')}={v}" for k, v in facts.items() if v != "")

    @property
    def is_serving(self) -> bool:
        """Whether clients are answered, and may store."""
        leading = None if self.parts is None else self.parts.leading
        if leading is None or self.shard is None or self.is_frozen:
            return False
        return leading.rules.refusal(self.now()) is None

    def change_way_to_etcd(self) -> None:
        """As its surroundings are now; who stands still hears nothing and says nothing."""
        if self._coordinator is not None:
            self._coordinator.faults = UNHEARD if self.is_frozen else self._around.way_to_etcd

    def freeze(self) -> None:
        super().freeze()
        self.change_way_to_etcd()

    def thaw(self) -> None:
        super().thaw()
        self.change_way_to_etcd()

    def die(self) -> None:
        super().die()
        self._links.close()
        if self._coordinator is not None:
            self._coordinator.crash()

    def _steady_micros(self) -> int:
        around = self._around
        now = self._clock.now // MICROSECOND
        return around.steady_offset + now + now * around.steady_ahead // 1000


def _hex(chance: Random) -> str:
    return chance.randbytes(8).hex()
