"""Worlds of three shipped servers with etcd: fixed seeds, and fresh ones for SIM_SECONDS.

A failure names its seed; `make sim SEED=cluster-n` replays it. Schedules that failed once are in
`tests/regress`, with those of a server alone.
"""

import os
import subprocess
import sys
from random import Random

import pytest
from msgspec.structs import replace

from oncemq.cluster.replica_directory import Home, ReplicaDirectory
from oncemq.protocol.names import LeaderEpoch, ServerId
from oncemq.protocol.records import EpochBegan
from oncemq.replication.member import Member
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.new_replica import new_replica
from simulator import marks
from simulator.actors.server_loop import DIRECTORY
from simulator.campaign import campaign
from simulator.cluster.equality import differences
from simulator.machines.machine import Machine
from simulator.schedule.clusters import CLUSTER_FAULTS, cluster_options_of
from simulator.schedule.schedule import Schedule, cluster_schedule_of, schedule_of
from simulator.world.simulation import run
from tests.harness.seeds import SECONDS, first_seed

WORLDS = 60
TRACES = """
import logging
logging.disable(logging.CRITICAL)
from simulator.schedule.schedule import cluster_schedule_of
from simulator.world.simulation import run
for seed in {seeds}:
    print(run(cluster_schedule_of(seed)).trace)
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_first_worlds_of_three_servers_break_nothing() -> None:
    total = campaign(0, 340, most=WORLDS, draw=cluster_schedule_of)
    total.record("make test", "simulation-cluster-first-worlds")
    print(total)
    assert not total.failures, f"replay with: make sim SEED=cluster-{min(total.failures)}"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 90)
def test_fresh_worlds_of_three_servers_break_nothing_and_reach_every_mark() -> None:
    first = first_seed()
    print(f"seeds from cluster-{first} on")
    total = campaign(first, SECONDS, draw=cluster_schedule_of)
    total.record("make sim", "simulation-cluster")
    print(total)
    assert not total.failures, f"replay with: make sim SEED=cluster-{min(total.failures)}"
    assert total.unseen == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mark", marks.RARE_IN_CLUSTERS)
def test_a_rare_thing_is_seen_in_worlds_of_clusters_that_have_more_of_it(mark: str) -> None:
    seen = 0
    for seed in range(60):
        options = replace(
            cluster_options_of(seed), faults=("etcd_lossy", "disk_lost"), cluster_mishaps=30,
            chaos_ms=25_000,
        )  # fmt: skip
        outcome = run(schedule_of(seed, options))
        assert outcome.findings == []
        seen += bool(outcome.marks.get(mark))
        if seen >= 2:
            return
    pytest.fail(f"{mark}: {seen} times")


def without_mishaps(seed: int) -> Schedule:
    options = replace(cluster_options_of(seed), faults=(), mishaps=0, cluster_mishaps=0)
    return schedule_of(seed, options)


def test_three_servers_that_nothing_befalls_serve_everybody() -> None:
    outcome = run(without_mishaps(3))
    assert outcome.findings == []
    assert outcome.puts
    assert outcome.given


@pytest.mark.parametrize("seed", [3, 11])
def test_the_same_seed_gives_the_same_world_twice(seed: int) -> None:
    first, second = run(cluster_schedule_of(seed)), run(cluster_schedule_of(seed))
    assert (first.trace, first.events, first.marks) == (second.trace, second.events, second.marks)


@pytest.mark.slow
def test_no_hash_seed_changes_a_world_of_three_servers() -> None:
    seeds = (3, 7, 11)
    traces = {
        subprocess.run(
            [sys.executable, "-c", TRACES.format(seeds=seeds)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "4711")
    }
    assert len(traces) == 1


def test_every_fault_of_a_cluster_is_on_in_some_worlds_and_off_in_others() -> None:
    worlds = [set(cluster_options_of(seed).faults) for seed in range(40)]
    assert all(0 < sum(fault in world for world in worlds) < 40 for fault in CLUSTER_FAULTS)


def test_a_campaign_of_clusters_has_marks_of_its_own() -> None:
    assert campaign(0, 0.0, draw=cluster_schedule_of).wanted is marks.IN_CLUSTERS


# ------------------------------------------------------------------ what is found


def test_a_shard_that_nobody_serves_for_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "_ask", lambda *_: [])  # nobody stands for election
    findings = run(without_mishaps(3)).findings
    assert findings[0].startswith("unserved: a, b, c are well, and nobody serves at 5.")


def test_replicas_that_differ_are_found() -> None:
    machines = {name: Machine(Random(name)) for name in "abc"}
    for name, machine in machines.items():
        new_replica(
            machine.disk, DIRECTORY, identity=b"i" * 16, tag=7, generation=1,
            random_bytes=Random(name).randbytes,
        )  # fmt: skip
    assert differences(machines) == []
    _append(machines["b"])
    assert [each.partition(" with")[0] for each in differences(machines)] == [
        "the logs of a and b end"
    ]


def _append(machine: Machine) -> None:
    home = Home(machine.disk, DIRECTORY, LogOptions(), Random(0).randbytes)
    opened = ReplicaDirectory(home, cut_to=None, opening=None)
    opened.log.begin_epoch(EpochBegan(LeaderEpoch(1), ServerId("b")))
    group = opened.log.take_group()
    assert group is not None
    opened.log.write(group)
    opened.log.finished(group)
    opened.close()
