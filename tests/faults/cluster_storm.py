"""The cast of `cast.py` on a cluster: servers die, freeze and lose their disks, etcd goes away.

The checker is the same, and in the end the three replicas must be equal.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.e2e import storm
from tests.e2e.processes import until
from tests.faults.cast import COUNTS, FaultNursery, FaultStorm
from tests.faults.cluster_machines import CLIENTS, ETCD, Machines
from tests.faults.cluster_serving import SERVERS, ClusterServing, Host, must_be_equal
from tests.faults.inject import injection
from tests.faults.network import Network
from tests.faults.small_disk import free_room, take_all_room
from tests.harness.etcd import Etcd

RESUMES_SECONDS = 5.0  # the word: service resumes within so long
FEW = (1, 2, 5)  # messages a put: what takes long is to check them all in the end

Cut = Callable[[Network, str, list[str]], None]  # of the leader's wires, with its followers
LEADER_CUTS: dict[str, Cut] = {
    "leader not heard by followers": lambda wires, leader, others: wires.cut([leader], others),
    "leader hears no follower": lambda wires, leader, others: wires.cut(others, [leader]),
    "leader cut from etcd": lambda wires, leader, _: wires.part(leader, [ETCD]),
    "leader cut from everybody": lambda wires, leader, _: wires.part(leader),
}


ONE_WAY = list(LEADER_CUTS.values())[:2]


def patience() -> float:
    """How long a failover may take here: longer where others have most of the processors."""
    return RESUMES_SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class ClusterStorm(FaultStorm):
    """A storm over three servers; what befalls "the server" befalls the one that leads."""

    def __init__(
        self,
        nursery: FaultNursery,
        directory: Path,
        seed: int,
        etcd: Etcd,
        hosts: Mapping[str, Host] | None = None,
        *,
        machines: Machines | None = None,
        counts: tuple[int, ...] = COUNTS,
        **options: Any,
    ) -> None:
        super().__init__(nursery, directory, seed, counts=counts)
        self.machines = machines or Machines()
        self.clients_on = self.machines.on(CLIENTS)
        hosts = hosts or self.machines.hosts()
        self.cluster = ClusterServing(
            nursery, directory, etcd, hosts, **{**storm.SERVER, **options}
        )
        self.serving = self.cluster  # type: ignore[assignment]
        self.outages: dict[str, float] = {}  # the longest silence after each kind of fault
        self._counts_from = 0.0  # silence before that is no promise of G7
        self._copies: dict[str, list[Path]] = {server: [] for server in SERVERS}

    # ------------------------------------------------------------------ what happens to servers

    def kill_servers(self, *servers: str) -> None:
        """SIGKILL these at one moment, and start them again."""
        self.cluster.end(*servers)
        self.killed["server"] += len(servers)
        for server in servers:
            self.cluster.begin(server)
            self._one_is_well(of=len(servers))

    def kill_leader(self) -> None:
        """The others have to go on; then it comes back."""
        leader = self.cluster.until_led()
        self.cluster.end(leader)
        self.killed["server"] += 1
        self.make_progress(5)
        self.cluster.begin(leader)

    def freeze(self, server: str, seconds: float) -> None:
        """SIGSTOP, for so long: the length is the fault, nothing is waited for."""
        self.cluster.signal(server, signal.SIGSTOP)
        time.sleep(seconds)
        self.cluster.signal(server, signal.SIGCONT)
        self.faults["stop and continue"] += 1

    def hurt_two(self) -> None:
        """Two servers are killed, frozen or cut off, for a moment: nobody may be left to lead.

        That is more than G7 promises: silence counts from when one of them is well again, here
        and wherever several are hurt at once.
        """
        chance, cluster, wires = self.random, self.cluster, self.machines.wires
        ways = ["kill", "freeze", *(["deafen", "silence"] if wires else [])]
        hurt = {server: chance.choice(ways) for server in chance.sample(SERVERS, 2)}
        for server, way in hurt.items():
            if way == "kill":
                cluster.end(server)
                self.killed["server"] += 1
            elif way == "freeze":
                cluster.signal(server, signal.SIGSTOP)
                self.faults["stop and continue"] += 1
            elif way == "deafen":
                self._wires.cut(self._wires.hosts, [server])
            else:
                self._wires.cut([server], self._wires.hosts)
            self.let_pass(1_000)
        self.let_pass(6_000)
        for server in chance.sample(sorted(hurt), 2):
            if hurt[server] == "kill":
                cluster.begin(server)
            elif hurt[server] == "freeze":
                cluster.signal(server, signal.SIGCONT)
            else:
                self._mended(is_one_way=True)
            self._one_is_well()
            self.let_pass(1_000)

    def _one_is_well(self, *, of: int = 2) -> None:
        """Of several that were hurt at once, the first is well again, or starts."""
        if of > 1 and not self._counts_from:
            self._counts_from = time.monotonic()

    def stall(self, server: str, seconds: float) -> None:
        """A sync of its disk takes so long."""
        micros = int(seconds * 1_000_000)
        process = self.cluster.processes[server]
        with injection(process.pid, f"fdatasync:delay_enter={micros}:when=3") as done:
            deadline = time.monotonic() + 2.0
            until(lambda: done.calls >= 3 or time.monotonic() > deadline)
            time.sleep(seconds)
        self.faults["slow sync"] += 1

    def fail(self, server: str, error: str = "EIO") -> None:
        """A sync of its disk fails: the server has to stop."""
        process = self.cluster.processes[server]
        with injection(process.pid, f"fdatasync:error={error}:when=2") as done:
            deadline = time.monotonic() + 2.0
            until(lambda: done.injected or time.monotonic() > deadline)
            self.let_pass(100)
        self.cluster.end(server)
        self.faults["fdatasync " + error] += 1
        self.cluster.begin(server)

    def cut_power_of(self, *servers: str) -> None:
        """Of servers and their disks, at one moment; they come back when the others go on."""
        gone = self.cluster.alone()
        assert not gone, gone
        self.machines.disks[servers[0]].cut(*(self.cluster.processes[each].pid for each in servers))
        for server in servers[1:]:
            self.machines.disks[server].cut()
        self.cluster.end(*servers)
        if len(servers) == 1:
            self.make_progress(5)
        for server in servers:
            self.machines.disks[server].restore(self.random.choice(("", "data=writeback")))
            self.cluster.begin(server)
            self._one_is_well(of=len(servers))
        self.faults["power cut"] += len(servers)

    def fill_disk(self, server: str) -> None:
        """Others take its room, until it is left out, if it does not lead; then they free it."""
        cluster, place = self.cluster, self.machines.disks[server].path
        take_all_room(place)
        until(
            lambda: cluster.leader() == server or not cluster.is_in_sync(server),
            60.0,
            what=f"{server} is left out",
        )
        self.let_pass(500)
        free_room(place)
        self.faults["full disk"] += 1

    def set_clock(self, server: str) -> None:
        """To some other hour; from there it goes too fast, or too slowly."""
        chance = self.random
        self.machines.clocks[server].set(
            hours=chance.uniform(-9, 9), too_fast=chance.choice((0.0, 0.5, -0.5))
        )
        self.faults["clock jump"] += 1

    def empty_disk(self, server: str) -> None:
        """Its disk is replaced by an empty one, while the others have everything."""
        self.cluster.until_in_sync()
        self.cluster.end(server)
        self.cluster.empty(server)
        self.cluster.begin(server)
        self.faults["disk emptied"] += 1

    def keep_copy(self, server: str) -> None:
        """Somebody copies its disk, to put it back some time."""
        self.cluster.end(server)
        self._copies[server].append(self.cluster.copy(server))
        self.killed["server"] += 1
        self.cluster.begin(server)

    def restore_disk(self, server: str) -> None:
        """Its disk is put back to a copy of an earlier time."""
        if not self._copies[server]:
            self.keep_copy(server)
            return
        self.cluster.until_in_sync()
        self.cluster.end(server)
        self.cluster.put_back(server, self.random.choice(self._copies[server]))
        self.cluster.begin(server)
        self.faults["disk restored"] += 1

    # ------------------------------------------------------------------ what happens to wires

    def cut_leader(self, cut: Cut) -> None:
        """The leader's wires are cut until another leads, and puts go on; then they are mended."""
        leader = self.cluster.until_led()
        cut(self._wires, leader, self.cluster.others(leader))
        self.cluster.until_led(but=leader)
        self.make_progress(5)
        self._mended(is_one_way=cut in ONE_WAY)

    def cut_follower(self) -> None:
        """Nobody reaches it until it left the in-sync set."""
        leader = self.cluster.until_led()
        follower = self.random.choice(self.cluster.others(leader))
        self._wires.part(follower)
        until(lambda: not self.cluster.is_in_sync(follower), 60.0, what=f"{follower} is left out")
        self._mended()

    def cut_clients(self, seconds: float) -> None:
        """Clients do not reach the leader, for so long; servers see nothing of it."""
        self._wires.part(self.cluster.until_led(), [CLIENTS])
        time.sleep(seconds)
        self._mended()

    @property
    def _wires(self) -> Network:
        assert self.machines.wires is not None
        return self.machines.wires

    def _mended(self, *, is_one_way: bool = False) -> None:
        self._wires.heal()
        self.faults["one-way partition" if is_one_way else "partition"] += 1

    # ------------------------------------------------------------------ what happens to etcd

    def kill_etcd_leader(self) -> None:
        etcd = self.cluster.etcd
        leader = etcd.leader()
        leader.kill()
        self.let_pass(2_000)
        leader.start(etcd.members)
        self.faults["etcd member killed"] += 1

    def kill_etcd(self, seconds: float) -> None:
        """All of it, for so long."""
        etcd = self.cluster.etcd
        for member in etcd.members:
            member.kill()
        time.sleep(seconds)
        for member in etcd.members:
            member.start(etcd.members)
        etcd.until_ready(*etcd.members)
        self.faults["etcd all killed"] += 1

    # ------------------------------------------------------------------ how it goes on

    def after(self, fault: str, befalls: Callable[[], object]) -> float:
        """The longest time without an answer while a fault befalls and until puts go on."""
        self.make_progress(3)
        begun, self._counts_from = time.monotonic(), 0.0
        befalls()
        self.make_progress(5)
        silence = self.silence_since(self._counts_from or begun)
        self.outages[fault] = max(silence, self.outages.get(fault, 0.0))
        return silence

    def prove(self, name: str, outage: str = "") -> None:
        """As ever; without `outage`, what `after` saw is what there is to say of that."""
        super().prove(name, outage)

    def silences(self, outage: str) -> dict[str, float]:
        return self.outages | (super().silences(outage) if outage else {})

    def silence_since(self, begun: float) -> float:
        times = sorted(
            note[5]
            for name in self.publishers
            for note in self.notes(name)
            if len(note) > 5 and note[5] >= begun
        )
        moments = [begun, *times, time.monotonic()]
        return max(after - before for before, after in pairwise(moments))

    def make_progress(self, count: int = 1) -> None:
        before = self._stored()

        def progressed() -> bool:
            return self._stored() >= before + count

        until(progressed, 60.0, what=f"puts go on; {self.cluster.alone()}")

    def end_clients(self) -> None:
        """SIGKILL of all publishers and subscribers, for good."""
        self._fault_nursery.end(*self._clients.values())

    def end(self) -> storm.Outcome:
        gone = self.cluster.alone()
        assert not gone, "\n".join(gone)
        outcome = super().end()
        must_be_equal(self.cluster.digests())
        return outcome
