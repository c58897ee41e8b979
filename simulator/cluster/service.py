"""Whether the shard is served as soon as it must be: a promise about time, watched from outside.

Law: with a majority of whole servers that reach each other and etcd, one of them serves `RESUMES`
after the last thing that befell anybody; also while a third one is cut off from them, in one
direction or in both, and leads, or does not.
"""

from collections.abc import Callable
from itertools import combinations

from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.cluster.mishaps import ClusterMishaps, Lives
from simulator.cluster.simulated_replica import SimulatedReplica
from simulator.cluster.ways import ETCD, Ways
from simulator.coordination.etcd import SimulatedEtcd
from simulator.coordination.simulated_coordinator import EtcdFaults
from simulator.history.history import History

RESUMES = 5 * SECOND
LOOK = 50 * MILLISECOND
MAJORITY = 2
QUICK = 100 * MILLISECOND  # a disk that syncs within this is well
ROOM = 1 << 30


class Service:
    """Of one world."""

    def __init__(
        self,
        clock: Clock,
        etcd: SimulatedEtcd,
        lives: Lives,
        ways: Ways,
        mishaps: ClusterMishaps,
        history: History,
        tell: Callable[[str], None],
    ) -> None:
        self._clock, self._etcd, self._lives = clock, etcd, lives
        self._ways, self._mishaps, self._history = ways, mishaps, history
        self._calm_since = 0  # nothing befell anybody since, and nobody served
        self._able_since: dict[frozenset[str], int] = {}  # who together have to serve
        self._is_told = False
        self._in_sync: frozenset[str] = frozenset()
        self._leader = ""
        self._tell = tell
        self.longest = 0  # nanoseconds without service, while there was to be some

    def watch(self) -> None:
        """From now on."""
        self._look()
        self._clock.after(LOOK, self.watch)

    def disturbed(self) -> None:
        """Something befalls somebody, or is over."""
        self._calm_since = self._clock.now

    def has_just_grown(self) -> bool:
        """Whether the last change of the shard took a member into sync."""
        shard = self._mishaps.shard
        return shard is not None and len(shard.in_sync) > len(self._in_sync)

    def _look(self) -> None:
        self._mark()
        now = self._clock.now
        able = self._majorities()
        self._able_since = {each: self._able_since.get(each, now) for each in able}
        if not able or any(map(self._is_serving, frozenset[str]().union(*able))):
            self._calm_since = now
            self._is_told = False
            return
        waits = now - max(self._calm_since, min(self._able_since.values()))
        self.longest = max(self.longest, waits)
        if waits > RESUMES and not self._is_told:
            self._is_told = True
            names = ", ".join(sorted(min(able, key=self._able_since.__getitem__)))
            self._history.trouble(
                f"unserved: {names} are well, and nobody serves at {now / SECOND:.1f} s"
            )

    def _mark(self) -> None:
        """What of it is rare, and must be met."""
        shard = self._mishaps.shard
        if shard is None:
            return
        in_sync = frozenset(map(str, shard.in_sync))
        if in_sync - self._in_sync:
            self._tell("in-sync set grew")
        if self._in_sync - in_sync:
            self._tell("in-sync set shrank")
        self._in_sync = in_sync
        leader = "" if shard.leader is None else str(shard.leader)
        if leader and leader != self._leader:
            self._tell("leader changed" if self._leader else "leader elected")
        self._leader = leader or self._leader
        for name, lives in self._lives.items():
            self._mark_stale(name, lives.server, shard.leader_epoch)
        if self._etcd.is_away:
            self._tell("etcd away")

    def _mark_stale(self, name: str, server: SimulatedReplica | None, leader_epoch: int) -> None:
        leading = None if server is None or server.parts is None else server.parts.leading
        if server is None or leading is None:
            return
        is_stale = leading.rules.leader_epoch < leader_epoch and leading.stepped_down is None
        if is_stale and leading.driver is not None:
            self._tell("stale leader frozen" if server.is_frozen else "stale leader cut off")
        if not server.is_frozen and leading.rules.refusal(server.now()) is not None:
            self._tell("too few in sync")

    def _is_serving(self, name: str) -> bool:
        server = self._lives[name].server
        return server is not None and server.is_serving

    def _is_well(self, name: str) -> bool:
        lives = self._lives[name]
        disk = lives.machine.disk
        return (
            lives.server is not None
            and lives.is_up
            and not lives.server.is_frozen
            and lives.pace.sync <= QUICK
            and disk.free_bytes("/") > ROOM
            and self._ways.is_whole(name, ETCD)
        )

    def _majorities(self) -> list[frozenset[str]]:
        """Those of which one has to serve: all that are well, or two with all that is committed."""
        if self._etcd.is_away or self._ways.usual != EtcdFaults():
            return []
        well = sorted(filter(self._is_well, self._lives))
        pairs = [pair for pair in combinations(well, MAJORITY) if self._ways.is_whole(*pair)]
        found = [frozenset(pair) for pair in pairs if all(map(self._mishaps.is_whole, pair))]
        are_joined = len(pairs) == len(list(combinations(well, MAJORITY))) > 0
        if are_joined and any(map(self._mishaps.is_whole, well)):
            found.append(frozenset(well))
        return found
