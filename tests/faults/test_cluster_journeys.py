"""Everything that a client does goes on when a leader is killed, and when the next one freezes.

All journeys of `cluster_journeys` are under way through the same failovers; each is a test.
"""

import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.cast import FaultNursery
from tests.faults.cluster_journeys import JOURNEYS, Stage
from tests.faults.cluster_serving import SERVERS, ClusterServing
from tests.harness.etcd import running_etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def outcomes(
    nursery: FaultNursery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What became of each journey: why it failed, or nothing."""
    home = tmp_path_factory.mktemp("journeys")
    with running_etcd(1) as etcd:
        cluster = ClusterServing(nursery, home, etcd)
        cluster.start()
        try:
            yield travelled(cluster, home)
        finally:
            cluster.end(*SERVERS)


def travelled(cluster: ClusterServing, home: Path) -> dict[str, str]:
    stage = Stage(cluster.address, home)
    under_way = {name: walk(stage) for name, walk in JOURNEYS.items()}
    failed: dict[str, str] = {}
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: leader_is_killed(cluster),
        lambda: leader_freezes(cluster),
    ]
    for number, befalls in enumerate(steps):
        befalls()
        for name, each in list(under_way.items()):
            try:
                next(each)
            except StopIteration:
                del under_way[name]
            except Exception:
                failed[name] = f"after {number} failovers:\n{traceback.format_exc()}"
                del under_way[name]
    failed |= dict.fromkeys(under_way, "it has not ended")
    return failed


def leader_is_killed(cluster: ClusterServing) -> None:
    cluster.until_in_sync()
    leader = cluster.until_led()
    cluster.end(leader)
    cluster.until_led(but=leader)
    cluster.begin(leader)


def leader_freezes(cluster: ClusterServing) -> None:
    """It wakes once another leads, and has no say any more."""
    cluster.until_in_sync()
    leader = cluster.until_led()
    cluster.signal(leader, signal.SIGSTOP)
    cluster.until_led(but=leader)
    cluster.signal(leader, signal.SIGCONT)
    assert cluster.until_led() != leader


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_journey_goes_on_over_failovers(name: str, outcomes: dict[str, str]) -> None:
    assert name not in outcomes, outcomes[name]
