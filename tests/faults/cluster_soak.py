"""`make soak-cluster MINUTES=n`: every fault of a cluster on real processes, from a fresh seed.

One cluster for the whole time: three servers and three members of etcd, with publishers and
subscribers. In the end the checker looks, and the replicas must be equal. The exit code is 6 when
something is found; the directory is kept then.
"""

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from simulator import proof
from tests.e2e import storm as storms
from tests.faults.cast import FaultNursery
from tests.faults.cluster_machines import hurtable_machines
from tests.faults.cluster_serving import SERVERS
from tests.faults.cluster_storm import LEADER_CUTS, ClusterStorm
from tests.faults.conftest import GET_LIMIT
from tests.faults.inject import why_no_strace
from tests.faults.soak import FOUND
from tests.harness.etcd import running_etcd

PAUSE_MS = 3_000  # at most, between two faults
DISK_MEBIBYTES = 4_096  # sparse: it takes what is stored
COUNTS = (1, 5, 20)  # messages a put: all are checked in the end


class ClusterSoak:
    """One cluster, and what befalls it."""

    def __init__(self, storm: ClusterStorm, seconds: float) -> None:
        self.storm = storm
        self._chance = storm.random
        self._ends = time.monotonic() + seconds
        self._begun = time.monotonic()
        self._told = 0

    def run(self) -> None:
        """Until the time is over, then the checker."""
        storm = self.storm
        storm.begin()
        while time.monotonic() < self._ends:
            storm.let_pass(PAUSE_MS)
            name, befalls = self._chance.choice(self._faults())
            begun = time.monotonic()
            storm.after(name, befalls)
            self._tell(name, begun)
        storm.cluster.until_in_sync()
        outcome = storm.end()
        print(outcome.describe())
        outcome.check()

    def _faults(self) -> list[tuple[str, Callable[[], object]]]:
        storm, chance = self.storm, self._chance
        server = chance.choice(SERVERS)
        two = chance.sample(SERVERS, 2)
        clients = chance.sample([*storm.publishers, *storm.subscribers], 2)
        faults: list[tuple[str, Callable[[], object]]] = [
            ("kill -9 of the leader", storm.kill_leader),
            ("kill -9 of the leader", storm.kill_leader),
            ("kill -9 of a server", lambda: storm.kill_servers(server)),
            ("kill -9 of two servers", lambda: storm.kill_servers(*two)),
            ("kill -9 of all servers", lambda: storm.kill_servers(*SERVERS)),
            ("kill -9 of clients", lambda: storm.kill(clients=clients)),
            ("stop of a server", lambda: storm.freeze(server, chance.uniform(0.2, 6.0))),
            ("kill -9 of etcd's leader", storm.kill_etcd_leader),
            ("kill -9 of all of etcd", lambda: storm.kill_etcd(chance.uniform(0.5, 5.0))),
        ]
        if not why_no_strace():
            faults += [
                ("slow sync", lambda: storm.stall(server, chance.uniform(0.5, 4.0))),
                ("failed sync", lambda: storm.fail(server)),
            ]
        return faults + self._faults_of_machines(server)

    def _faults_of_machines(self, server: str) -> list[tuple[str, Callable[[], object]]]:
        storm, chance, machines = self.storm, self._chance, self.storm.machines
        faults: list[tuple[str, Callable[[], object]]] = [
            ("disk emptied", lambda: storm.empty_disk(server)),
            ("disk put back", lambda: storm.restore_disk(server)),
            ("two servers hurt at once", storm.hurt_two),
            ("two servers hurt at once", storm.hurt_two),
        ]
        if machines.wires is not None:
            faults += [
                (fault, lambda cut=cut: storm.cut_leader(cut)) for fault, cut in LEADER_CUTS.items()
            ]
            faults += [
                ("follower cut from everybody", storm.cut_follower),
                ("clients cut from the leader", lambda: storm.cut_clients(chance.uniform(0.3, 3))),
            ]
        if machines.disks:
            faults += [
                ("power cut of a server", lambda: storm.cut_power_of(server)),
                ("power cut of all servers", lambda: storm.cut_power_of(*SERVERS)),
                ("full disk of a server", lambda: storm.fill_disk(server)),
            ]
        if machines.clocks:
            faults.append(("clock of a server set", lambda: storm.set_clock(server)))
        return faults

    def _tell(self, name: str, begun: float) -> None:
        now = time.monotonic()
        print(
            f"{now - self._begun:6.0f} s  {name}: {now - begun:.1f} s until puts went on  "
            f"messages {self.storm.messages}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    asked = parser.parse_args()
    storms.LIMIT = GET_LIMIT
    again = f"make soak-cluster MINUTES={asked.minutes:g} SEED={asked.seed}"
    print(f"seed {asked.seed}; again: {again}")
    directory = Path(tempfile.mkdtemp(prefix="oncemq-soak-cluster-"))
    nursery = FaultNursery()
    code = 0
    drawn = random.Random(asked.seed).randrange(1 << 32)
    with hurtable_machines(DISK_MEBIBYTES) as machines, running_etcd(3, **machines.etcd) as etcd:
        storm = ClusterStorm(nursery, directory, drawn, etcd, machines=machines, counts=COUNTS)
        try:
            ClusterSoak(storm, asked.minutes * 60).run()
        except Exception:
            traceback.print_exc()
            print(f"found with seed {asked.seed}; see {directory}")
            code = FOUND
        finally:
            storm.cluster.end(*storm.cluster.processes)
            nursery.close()
    proof.record(
        "soak-cluster",
        f"make soak-cluster MINUTES={asked.minutes:g}",
        {
            "minutes": asked.minutes,
            "messages": storm.messages,
            **{f"fault: {fault}": times for fault, times in storm.injected().items() if times},
        },
        failures=int(code == FOUND),
        worst=storm.outages,
    )
    for fault, seconds in sorted(storm.outages.items(), key=lambda each: -each[1]):
        print(f"{seconds:6.2f} s  longest time without an answer: {fault}")
    if not code:
        shutil.rmtree(directory)
    return code


if __name__ == "__main__":
    sys.exit(main())
