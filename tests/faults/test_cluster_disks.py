"""Three servers on disks of their own, which lose their power or have no room left."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.errors import StorageFull, Unreachable
from oncemq.protocol.records import Retention
from oncemq.testing.power import PowerDisk, power_disk, why_no_power_disk
from tests.e2e.processes import until
from tests.faults.cast import FaultNursery
from tests.faults.cluster_machines import Machines
from tests.faults.cluster_serving import SERVERS, Host
from tests.faults.cluster_storm import FEW, ClusterStorm, patience
from tests.faults.small_disk import free_room, take_all_room, tmpfs
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


# ------------------------------------------------------------------ no room


@pytest.fixture
def small(tmp_path: Path) -> Iterator[dict[str, Path]]:
    with ExitStack() as stack:
        yield {
            server: stack.enter_context(tmpfs(tmp_path / f"disk-{server}", "48m"))
            for server in SERVERS
        }


def test_a_follower_without_room_is_left_out_and_puts_are_refused_where_too_few_have_room(
    nursery: FaultNursery, tmp_path: Path, seed: int, three: Etcd, small: dict[str, Path]
) -> None:
    hosts = {server: Host(disk=disk) for server, disk in small.items()}
    storm = ClusterStorm(nursery, tmp_path, seed, three, hosts, counts=FEW)
    cluster = storm.cluster
    try:
        storm.begin()
        follower = cluster.others(cluster.until_led())[0]

        def fills_up() -> None:
            take_all_room(small[follower])
            until(lambda: not cluster.is_in_sync(follower), 60, what=f"{follower} is left out")

        assert storm.after("full disk of a follower", fills_up) < patience()
        free_room(small[follower])
        storm.make_progress(5)
        cluster.until_in_sync()
        with Client(cluster.address, timeout=20) as client:
            client.create_topic("others", Retention(forever=True))
            client.put("others", b"so that it is known there")
            leader = cluster.until_led()
            for full in (cluster.others(leader), [leader]):
                for server in full:
                    take_all_room(small[server])
                if leader not in full:  # what was put before it refuses waits for its commit
                    until(lambda: cluster.facts(leader).get("cluster_refuses"), 60)
                said = until(lambda: refusal_of(client), 60, what="a put is refused")
                assert "nothing was stored" in said or "leads, and answers nobody" in said
                assert leader in full or "needs 2 servers that store" in said
                for server in full:
                    free_room(small[server])
                storm.make_progress(5)
                cluster.until_in_sync()
            client.delete_topic("others")
        storm.faults["full disk"] += 4
        storm.prove("cluster-full-disks")
    finally:
        cluster.end(*cluster.processes)


def refusal_of(client: Client) -> str:
    """Why a put is not answered with a receipt, once it is not.

    It is refused; or, where another's put was under way when the disks filled up, and waits for
    its commit ever since, the leader answers nobody and says why: what is true of the new put is
    known only once the one before it is.
    """
    try:
        client.put("others", bytes(4_000))
    except (StorageFull, Unreachable) as refusal:
        return str(refusal)
    return ""


# ------------------------------------------------------------------ no power


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, PowerDisk]]:
    if reason := why_no_power_disk():
        pytest.skip(f"no power cuts here: {reason}")
    with ExitStack() as stack:
        yield {
            server: stack.enter_context(power_disk(tmp_path, mebibytes=96)) for server in SERVERS
        }


def test_the_power_of_one_server_or_of_all_is_cut(
    nursery: FaultNursery,
    tmp_path: Path,
    seed: int,
    three: Etcd,
    disks: dict[str, PowerDisk],
) -> None:
    storm = ClusterStorm(
        nursery, tmp_path, seed, three, machines=Machines(disks=disks), counts=(1, 20, 80)
    )
    cluster = storm.cluster
    try:
        storm.begin()
        leader = cluster.until_led()
        cuts = {
            "power cut of a follower": lambda: [cluster.others(leader)[0]],
            "power cut of the leader": lambda: [leader],
            "power cut of all servers": lambda: list(SERVERS),
        }
        for fault, servers in cuts.items():
            leader = cluster.until_led()
            victims = servers()
            silence = storm.after(fault, lambda victims=victims: storm.cut_power_of(*victims))
            assert silence < patience()
            cluster.until_in_sync()
        storm.prove("cluster-power")
    finally:
        cluster.end(*cluster.processes)
