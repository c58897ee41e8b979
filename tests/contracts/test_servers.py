"""What a simulated world asks of its servers: one that is alone, and three of a cluster."""

from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from simulator.actors.shared_world import World
from simulator.clock import MILLISECOND, SECOND, Clock
from simulator.cluster.cluster_servers import SERVERS, ClusterServers
from simulator.history.history import History
from simulator.network.network import Network
from simulator.schedule.cast import WorldStep
from simulator.schedule.options import options_of
from simulator.servers.alone_server import AloneServer
from simulator.servers.servers import Servers
from simulator.world.small_sizes import small_sizes


class Site:
    """Servers without clients."""

    def __init__(self, make: type[AloneServer] | type[ClusterServers]) -> None:
        self.options = replace(options_of(0), cluster=make is ClusterServers, faults=())
        self.clock, self.history = Clock(), History()
        places = SERVERS if self.options.cluster else ()
        network = Network(self.clock, Random(0), delay=MILLISECOND, late=MILLISECOND, places=places)
        world = World(self.clock, network, self.history, Random(1))
        self.servers: Servers = make(
            self.clock, network, self.history, self.options, world,
            chance=Random(2), disk=Random(3),
        )  # fmt: skip

    def until_served(self) -> None:
        is_served = self.clock.run(
            self.clock.now + 20 * SECOND, done=lambda: self.servers.shard is not None
        )
        assert is_served


@pytest.fixture(params=[AloneServer, ClusterServers])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(request.param)
    with small_sizes(site.options):
        yield site
    assert site.history.troubles == []


def test_nobody_is_served_before_the_start(site: Site) -> None:
    assert site.servers.shard is None
    assert site.servers.names
    assert not site.servers.beyond_help


def test_clients_are_served_some_time_after_the_start(site: Site) -> None:
    site.servers.start()
    site.until_served()


def test_after_every_mishap_of_a_server_all_is_mended(site: Site) -> None:
    site.servers.start()
    site.until_served()
    for name in ("a", "b", "c") if site.options.cluster else ("",):
        step = WorldStep(0, "kill_server", name, {"down_ms": 10_000_000})
        site.servers.befall(step)
    assert site.servers.shard is None
    site.servers.mend()
    site.until_served()


def test_after_the_last_power_cut_they_come_back_by_themselves(site: Site) -> None:
    site.servers.start()
    site.until_served()
    site.servers.last_cut()
    assert site.servers.shard is None
    site.until_served()


def test_a_mishap_that_nobody_knows_is_an_error(site: Site) -> None:
    with pytest.raises(AssertionError, match="melt"):
        site.servers.befall(WorldStep(0, "melt", "a" if site.options.cluster else ""))
