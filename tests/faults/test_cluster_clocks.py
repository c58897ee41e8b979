"""Three servers whose clocks are hours apart, go too fast, and are set while they run.

Timestamps never go back, whoever leads next; and nothing that is kept for a time, or leased for
one, is older for a clock that was set.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.protocol.records import Retention
from tests.faults.cast import FaultNursery
from tests.faults.cluster_machines import Machines
from tests.faults.cluster_serving import SERVERS
from tests.faults.cluster_storm import FEW, ClusterStorm
from tests.faults.wrong_clocks import WrongClock, why_no_wrong_clocks
from tests.harness.etcd import Etcd, running_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("full_gets"),
    pytest.mark.skipif(why_no_wrong_clocks() is not None, reason=str(why_no_wrong_clocks())),
]

HOUR = timedelta(hours=1)


@pytest.fixture
def one() -> Iterator[Etcd]:
    with running_etcd(1) as etcd:
        yield etcd


def test_leaders_with_wrong_clocks_follow_each_other(
    nursery: FaultNursery, tmp_path: Path, seed: int, one: Etcd
) -> None:
    clocks = {server: WrongClock(tmp_path / f"clock-{server}") for server in SERVERS}
    storm = ClusterStorm(nursery, tmp_path, seed, one, machines=Machines(clocks=clocks), counts=FEW)
    cluster = storm.cluster
    for clock, hours in zip(clocks.values(), (5, -3, 0), strict=True):
        clock.set(hours=hours)
    try:
        storm.begin()
        with Client(cluster.address, id="tenant", state=tmp_path / "tenant") as client:
            client.create_topic("hours", Retention(keep_ms=3_600_000))
            client.subscribe("flats")
            client.lease(60)
            client.put("hours", b"kept for an hour")
            for hours, too_fast in ((9, 0.0), (-8, 0.5), (5, -0.5)):
                storm.make_progress(3)
                storm.kill_leader()
                clocks[cluster.until_led()].set(hours=hours, too_fast=too_fast)
                storm.faults["clock jump"] += 1
                cluster.until_in_sync()
            client.put("hours", b"the newest")
            first, last = client.read("hours", 0)
            assert (first.payload, last.payload) == (b"kept for an hour", b"the newest")
            assert last.timestamp > first.timestamp
            assert last.timestamp - datetime.now(UTC) > HOUR, "no clock was wrong"
            assert len(client.subscriptions("flats")) == 1
            client.delete_topic("hours")
            client.delete_topic("flats")
        storm.prove("cluster-clocks", "kill -9 of leaders with wrong clocks")
    finally:
        cluster.end(*cluster.processes)
