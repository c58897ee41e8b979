"""Three servers, etcd and the clients on hosts of their own, and wires between them that are cut.

Some are cut in one direction only: what a host sends arrives nowhere, and it hears everything.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.protocol.records import Retention
from tests.faults.cast import FaultNursery
from tests.faults.cluster_machines import CLIENTS, ETCD, Machines
from tests.faults.cluster_serving import SERVERS
from tests.faults.cluster_storm import FEW, LEADER_CUTS, ClusterStorm, patience
from tests.faults.network import Network, network, why_no_network
from tests.harness.etcd import running_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("full_gets", "etcd_to_kill"),
]


@pytest.fixture
def wires() -> Iterator[Network]:
    if reason := why_no_network():
        pytest.skip(f"no networks here: {reason}")
    with network(*SERVERS, ETCD, CLIENTS) as made:
        yield made


@pytest.fixture
def storm(
    nursery: FaultNursery, tmp_path: Path, seed: int, wires: Network
) -> Iterator[ClusterStorm]:
    machines = Machines(wires)
    with running_etcd(3, **machines.etcd) as etcd:
        made = ClusterStorm(nursery, tmp_path, seed, etcd, machines=machines, counts=FEW)
        try:
            yield made
        finally:
            made.cluster.end(*made.cluster.processes)


def test_a_leader_that_is_cut_off_is_replaced(storm: ClusterStorm) -> None:
    storm.begin()
    for fault, cut in LEADER_CUTS.items():
        assert storm.after(fault, lambda cut=cut: storm.cut_leader(cut)) < patience()
        storm.cluster.until_in_sync()
    storm.prove("cluster-leader-cut-off")


def test_leaders_that_are_cut_off_in_one_direction_right_after_each_other(
    storm: ClusterStorm,
) -> None:
    """The wire to the leader before was mended, and its connections were silent for longer."""
    storm.begin()
    one_way = list(LEADER_CUTS.items())[:2]
    silences = [
        (fault, storm.after(fault, lambda cut=cut: storm.cut_leader(cut)))
        for fault, cut in [*one_way, *reversed(one_way)] * 2
    ]
    assert [each for each in silences if each[1] >= patience()] == []
    storm.prove("cluster-leaders-cut-one-way")


def test_puts_go_on_while_nobody_reaches_etcd(storm: ClusterStorm, wires: Network) -> None:
    storm.begin()
    storm.make_progress(3)
    wires.part(ETCD)
    begun = time.monotonic()
    while time.monotonic() < begun + 8:  # longer than any lease
        storm.make_progress(1)
    assert storm.silence_since(begun) < patience() / 5
    leader = storm.cluster.until_led()
    assert "etcd is away" in storm.cluster.facts(leader)["cluster_trouble"]
    wires.heal()
    storm.faults["partition"] += 1
    storm.after("kill -9 of the leader", storm.kill_leader)
    storm.prove("cluster-etcd-cut-off")


def test_a_follower_is_cut_off_and_clients_from_their_leader(storm: ClusterStorm) -> None:
    storm.begin()
    assert storm.after("follower cut from everybody", storm.cut_follower) < patience()
    storm.cluster.until_in_sync()
    begun = time.monotonic()
    storm.cut_clients(3.0)
    mended = time.monotonic()
    storm.make_progress(20)
    assert storm.silence_since(mended) < patience(), "nobody hears that the wire is mended"
    assert storm.silence_since(begun) > 2.0, "the cut was none"
    storm.prove("cluster-wires-cut")


def test_a_message_that_is_long_on_its_way_deposes_nobody(
    storm: ClusterStorm, wires: Network
) -> None:
    """15 MB take 2.5 s to two followers at 100 Mbit/s: leaders changed for ever."""
    if shutil.which("tc") is None:
        pytest.skip("no slow wires here: tc is not installed (iproute2)")
    for server in SERVERS:
        wires.slow(server, 100)
    storm.cluster.start()
    with Client(storm.cluster.address, timeout=60) as client:
        client.create_topic("large", Retention(forever=True))
        leader = storm.cluster.until_led()
        epoch = storm.cluster.facts(leader)["cluster_leader_epoch"]
        for _ in range(2):
            client.put("large", bytes(15 << 20))
    facts = storm.cluster.facts(leader)
    assert (facts["cluster_role"], facts["cluster_leader_epoch"]) == ("leads", epoch)
    storm.cluster.until_in_sync()
