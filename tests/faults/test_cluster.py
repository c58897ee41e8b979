"""Three servers and a real etcd: what happens to any one of them loses and doubles nothing."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cast import FaultNursery
from tests.faults.cluster_serving import SERVERS
from tests.faults.cluster_storm import ClusterStorm, patience
from tests.faults.inject import why_no_strace
from tests.harness.etcd import Etcd, running_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("full_gets", "etcd_to_kill"),
]


@pytest.fixture
def three() -> Iterator[Etcd]:
    with running_etcd(3) as etcd:
        yield etcd


@pytest.fixture
def storm(nursery: FaultNursery, tmp_path: Path, seed: int, three: Etcd) -> Iterator[ClusterStorm]:
    made = ClusterStorm(nursery, tmp_path, seed, three)
    try:
        yield made
    finally:
        if made.cluster.processes:
            made.cluster.end(*made.cluster.processes)


def test_leaders_are_killed_in_turn(storm: ClusterStorm) -> None:
    storm.begin()
    for _ in range(4):
        silence = storm.after("kill -9 of the leader", storm.kill_leader)
        assert silence < patience()
        storm.cluster.until_in_sync()
    storm.prove("cluster-kills", "kill -9 of the leader")


def test_all_servers_are_killed_at_once(storm: ClusterStorm) -> None:
    storm.begin()
    for _ in range(2):
        storm.after("kill -9 of all servers", lambda: storm.kill_servers(*SERVERS))
    storm.prove("cluster-all-killed", "kill -9 of all servers")


def test_a_frozen_leader_that_wakes_has_no_say(storm: ClusterStorm) -> None:
    storm.begin()
    for _ in range(2):
        leader = storm.cluster.until_led()
        storm.cluster.signal(leader, signal.SIGSTOP)
        begun = time.monotonic()
        storm.make_progress(5)
        assert storm.silence_since(begun) < patience()
        storm.cluster.signal(leader, signal.SIGCONT)
        storm.faults["stop and continue"] += 1
        storm.make_progress(5)
        storm.cluster.until_in_sync()
    storm.prove("cluster-frozen", "stop of the leader")


def test_etcd_goes_away_and_puts_go_on(storm: ClusterStorm) -> None:
    storm.begin()
    storm.make_progress(3)
    etcd = storm.cluster.etcd
    for member in etcd.members:
        member.kill()
    begun = time.monotonic()
    while time.monotonic() < begun + 6:  # longer than any lease
        storm.make_progress(1)
    assert storm.silence_since(begun) < 1.0
    leader = storm.cluster.until_led()
    assert "etcd is away" in storm.cluster.facts(leader)["cluster_trouble"]
    for member in etcd.members:
        member.start(etcd.members)
    etcd.until_ready(*etcd.members)
    storm.faults["etcd all killed"] += 1
    storm.after("kill -9 of the leader", storm.kill_leader)
    storm.prove("cluster-etcd-away", "etcd all killed")


def test_a_disk_is_emptied_and_another_put_back(storm: ClusterStorm) -> None:
    storm.begin()
    storm.make_progress(5)
    storm.keep_copy("b")
    for befalls in (
        lambda: storm.empty_disk(storm.cluster.until_led()),
        lambda: storm.restore_disk("b"),
        lambda: storm.empty_disk("c"),
    ):
        storm.make_progress(20)
        befalls()
    storm.cluster.until_in_sync()
    storm.prove("cluster-disks", "disk emptied")


@pytest.mark.skipif(why_no_strace() is not None, reason=str(why_no_strace()))
def test_a_disk_that_stalls_or_fails(storm: ClusterStorm) -> None:
    storm.begin()
    silence = storm.after(
        "slow sync of a follower",
        lambda: storm.stall(next(s for s in SERVERS if s != storm.cluster.until_led()), 4.0),
    )
    assert silence < patience()
    storm.cluster.until_in_sync()
    leader = storm.cluster.until_led()
    silence = storm.after("hung sync of the leader", lambda: storm.stall(leader, 15.0))
    assert storm.cluster.until_led() != leader
    assert silence < patience()
    storm.cluster.until_in_sync()
    silence = storm.after(
        "failed sync of the leader", lambda: storm.fail(storm.cluster.until_led())
    )
    assert silence < patience()
    storm.cluster.until_in_sync()
    storm.prove("cluster-slow-disks", "failed sync of the leader")
