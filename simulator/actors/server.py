"""The shipped server that is alone, in simulated time: driver, log and housekeeping."""

from collections.abc import Callable
from random import Random

from oncemq.broker.broker import Broker
from oncemq.broker.state.shard import Shard
from oncemq.protocol.limits import ServerLimits
from oncemq.server import completeness
from oncemq.server.clock import SteadyClock
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.recovery import recover
from oncemq.server.served import KeepsHouse, Served
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from simulator.actors.server_loop import DIRECTORY, STAGE_MS, Pace, ServerLoop, StartFound
from simulator.clock import Clock
from simulator.machines.machine import Machine, Trap
from simulator.network.feed import FEED
from simulator.network.network import Network


class SimulatedServer(ServerLoop):
    """One life of it."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        chance: Random,
        options: LogOptions,
        machine: Machine,
        pace: Pace,
        sprung: Callable[[Trap], None],
        failed: Callable[[Exception], None],
    ) -> None:
        super().__init__(clock, network, machine, chance, pace=pace, sprung=sprung, failed=failed)
        self.driver: Driver | None = None
        self.missing: list[completeness.Missing] = []  # what a person agreed to lose
        self._options = options

    @property
    def shard(self) -> Shard | None:
        """The state that clients are answered from."""
        return None if self.driver is None else self.driver.broker.shard

    def open(self, clock: Callable[[int | None], SteadyClock]) -> tuple[Served, KeepsHouse]:
        """Recover what the log has."""
        opened = open_log(self.disk, DIRECTORY, self._options, random_bytes=self._chance.randbytes)
        shard, _, self.missing = recover(opened)
        broker = Broker(shard, ServerLimits(stage_ms=STAGE_MS))
        now = clock(shard.last_timestamp)
        broker.recovered(now())
        driver = self.driver = Driver(broker, opened.log)
        driver.lose([each.record for each in self.missing], now())
        driver.keep_time(now.calendar, now())
        driver.begin(now())
        self.opened = StartFound(opened.log.last_serial, opened.report, bool(opened.states))
        broker.listeners.feed = FEED
        return driver, Housekeeping(driver, now())
