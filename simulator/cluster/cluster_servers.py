"""The three servers of a simulated cluster over all their lives, and etcd.

Law: after the healing all replicas are equal: by the chain value at the end of the log, by the
state that is folded from it, and by the messages that topics keep.
"""

from functools import partial
from random import Random

from oncemq.broker.state.shard import Shard
from oncemq.coordination.etcd.rules.calls import Attempt, Attempted, Call, CallAnswer
from oncemq.protocol.names import ServerId
from simulator.actors.shared_world import World
from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.cluster.equality import differences
from simulator.cluster.mishaps import ClusterMishaps
from simulator.cluster.service import Service
from simulator.cluster.simulated_replica import Around, SimulatedReplica
from simulator.cluster.ways import Ways
from simulator.coordination.etcd import SimulatedEtcd
from simulator.coordination.simulated_coordinator import EtcdFaults
from simulator.history.history import History
from simulator.machines.machine import Machine
from simulator.network.network import Network
from simulator.schedule.cast import WorldStep
from simulator.schedule.options import WorldOptions
from simulator.servers.server_lifecycle import ServerLives
from simulator.servers.server_mishaps import befall

SERVERS = ("a", "b", "c")  # their ids, and their addresses
LOSSY = EtcdFaults(
    delay_ms=50, lost=0.1, late=0.1, unanswered=0.15, lag_ms=400, broken=0.1, missed=0.02
)
AGAIN_MS = 1  # after the last power cut
QUIET = 150 * SECOND  # within which all replicas have everything, when nothing goes wrong


class ClusterServers:
    """Their machines, the ways between them, and who they are to clients."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        history: History,
        options: WorldOptions,
        world: World,
        *,
        chance: Random,
        disk: Random,
    ) -> None:
        self._clock, self._network, self._history = clock, network, history
        self._options, self._world = options, world
        self._etcd = SimulatedEtcd(clock)
        self._around: dict[str, Around] = {}
        self._lives: dict[str, ServerLives[SimulatedReplica]] = {}
        for name in SERVERS:
            draw = Random(chance.random())
            around = self._around[name] = Around(
                clock, network, self._etcd, draw, options.log_options(), EtcdFaults(),
                tell=world.tell, unanswered=self._unanswered, trouble=history.trouble,
                steady_offset=draw.randrange(10**12), steady_ahead=draw.randrange(-20, 21),
            )  # fmt: skip
            self._lives[name] = ServerLives(
                clock, network, history, options,
                machine=Machine(Random(disk.random())),
                make=partial(SimulatedReplica, around, ServerId(name)),
                tell=world.tell,
                name=f"server {name}",
            )  # fmt: skip
        self._ways = Ways(
            clock, network, {name: partial(self._way_to_etcd, name) for name in SERVERS}
        )
        self._mishaps = ClusterMishaps(
            clock, self._etcd, self._lives, self._ways, world.clients, world.tell
        )
        self._service = Service(
            clock, self._etcd, self._lives, self._ways, self._mishaps, history, world.tell
        )

    # ------------------------------------------------------------------ as the world knows them

    @property
    def names(self) -> list[str]:
        return [*SERVERS]

    @property
    def beyond_help(self) -> bool:
        return any(lives.beyond_help for lives in self._lives.values())

    @property
    def serving(self) -> SimulatedReplica | None:
        """The server that clients are answered by."""
        found = [lives.server for lives in self._lives.values()]
        return next((each for each in found if each is not None and each.is_serving), None)

    @property
    def shard(self) -> Shard | None:
        return None if self.serving is None else self.serving.shard

    def start(self) -> None:
        self._service.watch()
        for lives in self._lives.values():
            lives.start()

    def befall(self, step: WorldStep) -> None:
        name = self._name(step.who)
        self._service.disturbed()
        if step.do == "etcd_is_lossy":
            self._ways.usual = LOSSY
            self._clock.after(int(step.args["for_ms"]) * MILLISECOND, self._etcd_is_well)
        elif not (
            befall(self._lives[name], step, self._clock, self._options.sync_us)
            or self._mishaps.befall(step, name)
        ):
            raise AssertionError(f"nothing is known of {step.do}")

    def mend(self) -> None:
        self._service.disturbed()
        self._etcd.go_away(0)
        self._etcd_is_well()
        self._ways.mend()
        self._mishaps.end_drains()
        for lives in self._lives.values():
            lives.mend()

    def _etcd_is_well(self) -> None:
        self._ways.usual = EtcdFaults()
        self._service.disturbed()

    def last_cut(self) -> None:
        self._wait_for_equality()
        for lives in self._lives.values():
            lives.cut("NOTHING", AGAIN_MS)

    def _way_to_etcd(self, name: str, faults: EtcdFaults) -> None:
        self._around[name].way_to_etcd = faults
        server = self._lives[name].server
        if server is not None:
            server.change_way_to_etcd()

    def _unanswered(self, call: Call, answer: CallAnswer) -> None:
        """It happened, and whoever asked does not hear of it."""
        if not isinstance(call, Attempt) or not isinstance(answer, Attempted):
            return
        if answer.succeeded:
            self._world.tell("change unanswered")
            if self._service.has_just_grown():
                self._world.tell("expansion unanswered")

    def _wait_for_equality(self) -> None:
        """All replicas have everything, and so it lies on all disks."""
        if not self._clock.run(self._clock.now + QUIET, done=self._is_quiet):
            self._history.trouble(f"stuck: not all replicas have everything: {self._told()}")
            return
        for each in differences({name: lives.machine for name, lives in self._lives.items()}):
            self._history.trouble(f"unequal: {each}")

    def _is_quiet(self) -> bool:
        leader = self.serving
        if leader is None or leader.parts is None or leader.parts.leading is None:
            return self.beyond_help
        rules = leader.parts.leading.rules
        if rules.commit != rules.last:
            return False
        opened = [
            lives.server.parts.opened
            for lives in self._lives.values()
            if lives.server and lives.server.parts
        ]
        return len(opened) == len(SERVERS) and all(
            each is not None and each.log.durable_serial == rules.last == each.log.last_serial
            for each in opened
        )

    def _told(self) -> str:
        """How each of them is, in words."""
        found = {name: lives.server for name, lives in self._lives.items()}
        return "; ".join(
            f"{name}: {'down' if server is None else server.standing}"
            for name, server in found.items()
        )

    def _name(self, who: str) -> str:
        """Which server a step means: by its name, or by its part at the moment."""
        if who in SERVERS or not who:
            return who or SERVERS[0]
        leader = self.serving
        leads = SERVERS[0] if leader is None else leader.place
        others = [name for name in SERVERS if name != leads]
        return {"leader": leads, "follower": others[0], "other": others[1]}[who]
