"""Three replicas of a shard, and chance that decides what happens next: a seed is a history."""

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random

from oncemq.protocol.names import Micros, ServerId
from oncemq.replication.view import Expand, ReplicationLimits
from simulator.replicas.model_coordinator import Claim, ModelCoordinator
from simulator.replicas.replica_disk import ReplicaDisk
from simulator.replicas.replica_process import ReplicaProcess
from simulator.replicas.surroundings import (
    AskUnderWay,
    Envelope,
    Killed,
    Surroundings,
    claim_of,
)
from simulator.replicas.undelivered import Undelivered
from simulator.replicas.witness import Broken, ReplicaWitness

SERVERS = (ServerId("a"), ServerId("b"), ServerId("c"))
COORDINATOR = ServerId("coordinator")
# Small, so that limits are met: here a frame has one byte.
LIMITS = ReplicationLimits(window_bytes=4, catch_up_bytes=4, append_bytes=2, probe_bytes=2)
ROUNDS_MAX = 300  # of 0.1 s, until all is well again


class ReplicaWorld:
    """One history."""

    def __init__(self, seed: int, steps: int = 250) -> None:
        self.chance = Random(seed)
        self.steps = steps
        self.marks: set[str] = set()  # what happened at least once
        self.coordinator = ModelCoordinator(SERVERS, LIMITS.min_in_sync)
        self.disks = {name: ReplicaDisk() for name in SERVERS}
        self.witness = ReplicaWitness(
            self.disks, lambda: self.coordinator.state.in_sync, LIMITS.min_in_sync
        )
        self.around = Surroundings(self.witness, LIMITS, self.coordinator.new_incarnation)
        self.processes: dict[ServerId, ReplicaProcess] = {}
        self._runs = 0
        self._puts = 0
        self._frozen: set[ServerId] = set()
        self._undelivered = Undelivered(self.around.messages, self.chance)
        self._cut_links: set[tuple[ServerId, ServerId]] = set()
        self._snapshots: dict[ServerId, ReplicaDisk] = {}
        self._moves, self._weights = self._choices()

    def _choices(self) -> tuple[list[Callable[[], None]], list[int]]:
        """What may happen, and how often: some of the faults, others in each world."""
        chance = self.chance
        always: list[tuple[Callable[[], None], int]] = [
            (self._deliver, 60),
            (self._sync, 14),
            (self._put, 10),
            (self._read, 6),
            (self._tick, 16),
            (self._coordinate, 12),
            (self._watch, 6),
            (self._start, 4),
            (self._calm, 1),
        ]
        faults: list[tuple[Callable[[], None], int]] = [
            (self._undelivered.lose, 6),
            (self._undelivered.double, 6),
            (self._undelivered.hold_back, 6),
            (self._kill, 2),
            (self._light_fuse, 2),
            (self._cut_power, 1),
            (self._freeze, 2),
            (self._cut_link, 3),
            (self._cut_off_a_leader, 1),
            (self._lose_lease, 2),
            (self._fill_disk, 2),
            (self._damage, 2),
            (self._pass_time, 3),
            (self._keep_house, 4),
            (self._lose_an_answer, 3),
            (self._take_snapshot, 3),
        ]
        chosen = always + [fault for fault in faults if chance.random() < 0.6]
        return [move for move, _ in chosen], list(accumulate(weight for _, weight in chosen))

    def run(self) -> None:
        """The faults, then peace. Raises Broken when a law did not hold."""
        self._calm()
        for _ in range(self.steps):
            self.around.now = Micros(self.around.now + self.chance.randrange(60_000))
            self._moves[bisect(self._weights, self.chance.randrange(self._weights[-1]))]()
        self._recover()

    # ------------------------------------------------------------------ what goes on

    def _any_process(self) -> ReplicaProcess | None:
        name = self.chance.choice(SERVERS)
        return None if name in self._frozen else self.processes.get(name)

    def _while_alive(self, process: ReplicaProcess, event: Callable[[], None]) -> None:
        try:
            event()
        except Killed:
            self._end(process.name)

    def _deliver(self) -> None:
        messages = self.around.messages
        if not messages:
            return
        at = 0 if self.chance.random() < 0.7 else self.chance.randrange(len(messages))
        envelope = messages[at]
        if envelope.to in self._frozen:
            return
        del messages[at]
        self._hand_over(envelope)

    def _hand_over(self, envelope: Envelope) -> None:
        process = self.processes.get(envelope.to)
        if process is not None and (envelope.source, envelope.to) not in self._cut_links:
            self._while_alive(process, lambda: process.receive(envelope))

    def _sync(self) -> None:
        process = self._any_process()
        if process is not None:
            self._while_alive(process, process.synced)

    def _put(self) -> None:
        for process in list(self.processes.values()):
            if process.leader is not None and process.name not in self._frozen:
                for _ in range(self.chance.choice((1, 1, 3, 6))):
                    self._puts += 1
                    says = self._puts
                    self._while_alive(process, lambda p=process, s=says: p.put(s))

    def _read(self) -> None:
        for process in list(self.processes.values()):
            if process.leader is not None and process.name not in self._frozen:
                self._while_alive(process, process.read)

    def _calm(self) -> None:
        """Nothing goes wrong for a while."""
        self._mend()
        for _ in range(self.chance.randrange(4, 12)):
            self._one_round()
            self._put()

    def _mend(self) -> None:
        self._frozen.clear()
        self._cut_links.clear()

    def _tick(self) -> None:
        process = self._any_process()
        if process is None:
            return
        self._while_alive(process, process.tick)
        if not self._is_apart(process.name) and process.name in self.processes:
            self.coordinator.leases.add(process.name)

    def _is_apart(self, name: ServerId) -> bool:
        return (name, COORDINATOR) in self._cut_links

    def _coordinate(self) -> None:
        asks = self.around.asks
        if not asks:
            return
        asked = asks.pop(self.chance.randrange(len(asks)))
        self._decide(asked, is_answered=self.chance.random() < 0.8)
        if self.chance.random() < 0.1:
            asks.append(asked)  # a copy comes late

    def _decide(self, asked: AskUnderWay, *, is_answered: bool) -> None:
        """The coordinator does what it was asked, whether or not the answer arrives."""
        name = asked.server
        if self._is_apart(name):
            return
        openings = None
        if isinstance(asked.what, Claim):
            done = (openings := self.coordinator.claim(name, asked.what)) is not None
        else:
            done = self.coordinator.decide(name, *asked.what)
            if done and isinstance(asked.what[0], Expand):
                self.witness.grows(asked.what[0].member, asked.what[0].incarnation)
        process = self.processes.get(name)
        if process is None or process.run != asked.run or not is_answered or name in self._frozen:
            return
        view, alive = self.coordinator.view(), frozenset(self.coordinator.leases)
        if not isinstance(asked.what, Claim):
            if not done:
                process.refused(asked.what[1])
            self._while_alive(process, lambda: process.told(view, alive))
        elif openings is not None:
            self._while_alive(process, lambda: process.claimed(openings, view, alive))
        elif asked.what.nonce == process.disk.claim[1]:
            self.marks.add("older directory refused")
            process.disk.renew(self.coordinator.new_incarnation())
            self.witness.set_back.discard(name)
            self._end(name)

    def _watch(self) -> None:
        """A server hears how the shard was, some time ago or now."""
        process = self._any_process()
        if process is None or self._is_apart(process.name):
            return
        oldest = max(0, process.seen - 1)
        at = self.chance.randint(oldest, len(self.coordinator.history) - 1)
        view, alive = self.coordinator.view(at), frozenset(self.coordinator.leases)
        self._while_alive(process, lambda: process.told(view, alive))

    # ------------------------------------------------------------------ faults

    def _begin(self, name: ServerId) -> None:
        self._runs += 1
        self.processes[name] = ReplicaProcess(
            name, self.disks[name], self.around, self.chance, self._runs
        )

    def _end(self, name: ServerId) -> None:
        self.processes.pop(name, None)
        self._frozen.discard(name)

    def _start(self) -> None:
        """Something is mended: a server starts, wakes, is connected, has room."""
        name = self.chance.choice(SERVERS)
        if name not in self.processes:
            self._begin(name)
        elif self.chance.random() < 0.5:
            self._frozen.discard(name)
        if self.chance.random() < 0.4:
            self._cut_links.clear()
        process = self.processes[name]
        process.is_full = False

    def _kill(self) -> None:
        """Of the process alone: what it wrote is still there, synced or not."""
        self._end(self.chance.choice(SERVERS))

    def _light_fuse(self) -> None:
        """It will be killed between two actions."""
        if (process := self._any_process()) is not None:
            process.fuse = self.chance.randrange(6)

    def _cut_power(self) -> None:
        names = SERVERS if self.chance.random() < 0.3 else (self.chance.choice(SERVERS),)
        for name in names:
            self._end(name)
            self.disks[name].power_cut(self.chance)

    def _freeze(self) -> None:
        name = self.chance.choice(SERVERS)
        if name in self.processes:
            self._frozen.add(name)

    def _cut_link(self) -> None:
        places = [*SERVERS, COORDINATOR]
        self._cut_links.add((self.chance.choice(SERVERS), self.chance.choice(places)))

    def _cut_off_a_leader(self) -> None:
        """The others go on under another one, of which it hears nothing."""
        leaders = [each.name for each in self.processes.values() if each.leader is not None]
        for name in leaders[:1]:
            self._mend()
            for place in (*SERVERS, COORDINATOR):
                self._cut_links |= {(place, name), (name, place)}
            self.coordinator.leases.discard(name)
            for _ in range(self.chance.randrange(4, 16)):
                self._one_round()
            self._read()

    def _lose_lease(self) -> None:
        """It is over, rightly or not: nothing may depend on it."""
        self.coordinator.leases.discard(self.chance.choice(SERVERS))

    def _fill_disk(self) -> None:
        if (process := self._any_process()) is not None:
            process.is_full = True

    def _pass_time(self) -> None:
        self.around.now = Micros(self.around.now + self.chance.randrange(4_000_000))

    def _keep_house(self) -> None:
        if (process := self._any_process()) is not None:
            process.keep_house()

    def _lose_an_answer(self) -> None:
        asks = self.around.asks
        if asks:
            self._decide(asks[self.chance.randrange(len(asks))], is_answered=False)

    def _take_snapshot(self) -> None:
        name = self.chance.choice(SERVERS)
        self._snapshots[name] = self.disks[name].copy()

    def _damage(self) -> None:
        """A disk is emptied or set back, while all others in sync have all that is committed."""
        name = self.chance.choice(SERVERS)
        others = self.coordinator.state.in_sync - {name}
        if not others or others & self.witness.damaged:
            return
        if not all(self._is_whole(other) for other in others):
            return
        self._end(name)
        self.witness.holders_min = 1  # what was acknowledged may be on its way to the leader still
        disk = self._snapshots.get(name)
        if disk is None or self.chance.random() < 0.4:
            self.marks.add("disk emptied")
            disk = ReplicaDisk()
            disk.renew(self.coordinator.new_incarnation())
            self.witness.set_back.discard(name)
        else:
            self.marks.add("disk set back")
            disk = disk.copy()
            disk.power_cut(self.chance)
            self.witness.set_back.add(name)  # also if it was emptied in between
        self.disks[name] = disk
        self.witness.damaged.add(name)

    def _is_whole(self, name: ServerId) -> bool:
        disk, life = self.disks[name], self.coordinator.state.lives[name]
        has_all = self.witness.has_all(disk)
        is_known = self.coordinator.knows(name, claim_of(disk))
        return has_all and is_known and disk.life.incarnation == life.incarnation

    # ------------------------------------------------------------------ after the faults

    def _recover(self) -> None:
        """All is mended. Then the replicas become equal, and store."""
        self._mend()
        before = self.witness.committed
        for round_number in range(ROUNDS_MAX):
            self._one_round()
            if round_number == 5:
                self._put()
            if round_number > 5 and self._is_well(before):
                return
            if round_number > 5 and round_number % 10 == 0:
                self._put()
        raise Broken(f"not well after {ROUNDS_MAX / 10:.0f} s of peace: {self._how_it_is()}")

    def _one_round(self, *, syncs_always: bool = True) -> None:
        self.around.now = Micros(self.around.now + 100_000)
        for name in SERVERS:
            if name not in self.processes:
                self._begin(name)
            process = self.processes[name]
            process.fuse, process.is_full = None, False
            self._while_alive(process, process.tick)
            if not self._is_apart(name):
                self.coordinator.leases.add(name)
        asks, self.around.asks = self.around.asks, []
        for asked in asks:
            self._decide(asked, is_answered=True)
        for name in SERVERS:
            process = self.processes.get(name)
            if process is not None and not self._is_apart(name):
                view, alive = self.coordinator.view(), frozenset(self.coordinator.leases)
                self._while_alive(process, lambda p=process, v=view, a=alive: p.told(v, a))
        for _ in range(3):
            for process in list(self.processes.values()):
                if syncs_always or process.has_to_sync:
                    self._while_alive(process, process.synced)
            for _ in range(len(self.around.messages)):
                self._hand_over(self.around.messages.popleft())

    def _is_well(self, before: int) -> bool:
        leaders = [each for each in self.processes.values() if each.leader is not None]
        disks = list(self.disks.values())
        return (
            len(leaders) == 1
            and self.witness.committed > before
            and leaders[0].leader is not None
            and leaders[0].leader.refusal(self.around.now) is None
            and self.coordinator.state.in_sync == frozenset(SERVERS)
            and all(each.chains == self.witness.chains for each in disks)
            and all(
                each.follower is None or each.follower.applied == self.witness.committed
                for each in self.processes.values()
            )
        )

    def _how_it_is(self) -> str:
        state = self.coordinator.state
        logs = {name: (disk.last, disk.synced) for name, disk in self.disks.items()}
        return (
            f"{state.leader} leads epoch {state.leader_epoch}, in sync {sorted(state.in_sync)}, "
            f"proposed {state.proposed}, logs {logs}, committed {self.witness.committed}"
        )
