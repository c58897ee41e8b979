"""What a replica needs to serve clients, once it leads: limits, a feed, what the loop knows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncemq.broker.broker import Broker
from oncemq.broker.expiry import Calendar
from oncemq.broker.given import Facts
from oncemq.cluster.replica_directory import ReplicaDirectory
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import LeaderEpoch, Micros
from oncemq.protocol.step import Body
from oncemq.server.clock import DOWN_MICROS
from oncemq.server.driver import Driver
from oncemq.server.events import Events
from oncemq.server.worker import InPlaceWorker, Worker


def _reaches_nobody(_route: bytes, _frames: Sequence[Body]) -> bool:
    return False


def _takes_everything(_route: bytes) -> bool:
    return True


@dataclass
class Serving:
    """Filled in by the server and its loop before anything happens."""

    rules: ServerLimits
    feed: str = ""  # the address of the live feed
    reaches: Callable[[bytes, Sequence[Body]], bool] = _reaches_nobody
    takes: Callable[[bytes], bool] = _takes_everything
    connections: Callable[[], Facts] = dict
    events: Events = field(default_factory=Events)
    reads: Worker = field(default_factory=InPlaceWorker)  # of files for other replicas

    def driver(
        self,
        opened: ReplicaDirectory,
        leader_epoch: LeaderEpoch,
        calendar: Calendar,
        refusal: Callable[[Micros], str | None],
        now: Micros,
    ) -> Driver:
        """All of the log is committed: the broker goes on from there."""
        missing = opened.lead()
        broker = Broker(opened.shard, self.rules)
        broker.recovered(now, leader_epoch)
        broker.listeners.feed = self.feed
        driver = Driver(broker, opened.log)
        driver.is_alone = False
        driver.reader.verifies_all = True  # another server has what is damaged here
        driver.events = self.events
        driver.reaches, driver.takes = self.reaches, self.takes
        driver.connections = self.connections
        driver.admission.replicas_refusal = refusal
        driver.lose([each.record for each in missing], now)
        driver.keep_time(calendar, now)
        driver.begin(now)
        return driver


def down_for(opened: ReplicaDirectory, calendar: Calendar, now: Micros) -> Micros:
    """How much of the time since the newest timestamp nothing may grow older by.

    A server that followed knows how long ago that timestamp came, whatever the date is here and
    was there. One that was started since does not: an hour at most may have passed.
    """
    newest, stamped_at = opened.shard.last_timestamp, opened.stamped_at
    passed = DOWN_MICROS if stamped_at is None else min(DOWN_MICROS, now - stamped_at)
    quiet = now + calendar.timestamps - calendar.passed - newest - passed
    return Micros(max(0, quiet)) if newest else Micros(0)
