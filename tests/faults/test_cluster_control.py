"""The control: rules broken on purpose in real servers are seen to lose what was acknowledged.

If they lost nothing here, the tests of `test_cluster*.py` would show nothing.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncemq.errors import Unreachable
from oncemq.testing.power import power_disk, why_no_power_disk
from tests.e2e import storm as storms
from tests.e2e.processes import until
from tests.faults.cast import FaultNursery
from tests.faults.cluster_machines import Machines
from tests.faults.cluster_serving import SERVERS
from tests.faults.cluster_storm import FEW, ClusterStorm
from tests.harness.etcd import Etcd, running_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("full_gets"),
]


@pytest.fixture
def one() -> Iterator[Etcd]:
    with running_etcd(1) as etcd:
        yield etcd


def findings(storm: ClusterStorm) -> list[str]:
    """What publishers were told is stored, and is not; or a server that stops, since its log has
    what its leader lacks: then nobody may be left to be asked."""

    def looked() -> tuple[list[str]] | None:
        if halted := [each for each in storm.cluster.alone() if "has lost data" in each]:
            return (halted,)
        try:
            return (sorted(storm.acknowledged() - storm.stored()),)
        except Unreachable:
            return None

    storm.cluster.until_led()
    found = until(looked, 90.0, what="it is seen what is stored")
    assert found is not None
    return found[0]


@pytest.mark.parametrize("is_broken", [False, True], ids=["as it is", "commits alone"])
def test_a_leader_that_waits_for_no_follower_is_seen_to_lose(
    nursery: FaultNursery, tmp_path: Path, seed: int, one: Etcd, is_broken: bool
) -> None:
    storm = ClusterStorm(nursery, tmp_path, seed, one, counts=FEW, commits_alone=is_broken)
    cluster = storm.cluster
    try:
        storm.begin()
        storm.make_progress(5)
        leader = cluster.until_led()
        for follower in cluster.others(leader):
            cluster.signal(follower, signal.SIGSTOP)
        if is_broken:
            storm.make_progress(20)
        else:
            storm.let_pass(1_000)
        storm.end_clients()
        cluster.end(leader)
        for follower in cluster.others(leader):
            cluster.end(follower)  # what was sent to it and not read is gone
            cluster.begin(follower)
        cluster.until_led(but=leader)
        assert bool(findings(storm)) == is_broken
    finally:
        cluster.end(*cluster.processes)


@pytest.mark.parametrize("sync_ms", [0, 3_600_000])
def test_servers_that_do_not_sync_are_seen_to_lose_when_the_power_of_all_is_cut(
    nursery: FaultNursery, tmp_path: Path, seed: int, one: Etcd, sync_ms: int
) -> None:
    if reason := why_no_power_disk():
        pytest.skip(f"no power cuts here: {reason}")
    log = storms.SERVER["log"] | {"sync_ms": sync_ms, "segment_bytes": 8 << 20}
    log |= {"checkpoint_records": 1 << 30, "checkpoint_bytes": 1 << 30}
    with ExitStack() as stack:
        disks = {s: stack.enter_context(power_disk(tmp_path, mebibytes=96)) for s in SERVERS}
        storm = ClusterStorm(
            nursery, tmp_path, seed, one, machines=Machines(disks=disks), counts=FEW, log=log
        )
        stack.callback(lambda: storm.cluster.end(*storm.cluster.processes))
        storm.begin()
        storm.make_progress(20)
        storm.end_clients()
        storm.cut_power_of(*SERVERS)
        assert bool(findings(storm)) == bool(sync_ms)
