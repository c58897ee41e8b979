"""The shipped server in simulated time: the same driver, log and housekeeping as `assembly.Server`.

The loop's turns, the writer's syncs and the janitor's jobs are events here, so that a crash can
come between any two of them. Laws: as in `server.loop`, one group syncs while the next gathers, and
after a failed write or sync nothing is answered any more.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from oncemq.broker.broker import Broker
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros
from oncemq.server import completeness
from oncemq.server.clock import SteadyClock
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.recovery import recover
from oncemq.server.worker import Task, Worker
from oncemq.storage.log.log import Group, LogOptions
from oncemq.storage.log.recovery import OpenedLog, open_log
from simulator.clock import MICROSECOND, MILLISECOND, Clock
from simulator.machines.machine import Died, Machine, ProcessDisk, Trap
from simulator.network.feed import FEED
from simulator.network.network import Frames, Network

IDLE = 200 * MILLISECOND
EPOCH_MICROS = 1_700_000_000_000_000  # when the simulated world begins
DIRECTORY = "/server"
STAGE_MS = 3_000  # stages expire while their publishers are away for a moment


@dataclass(slots=True)
class Pace:
    """How long the server's parts take; changed by faults."""

    turn: int = 100 * MICROSECOND
    sync: int = 2 * MILLISECOND
    job: int = 5 * MILLISECOND
    skew_micros: int = 0  # how wrong the machine's clock is


class Janitor(Worker):
    """The worker's stand-in: a task runs as one event, its consequence with a later turn."""

    def __init__(self, server: "SimulatedServer") -> None:
        self._server = server
        self._given: deque[tuple[Task, Task]] = deque()
        self._ended: deque[Task] = deque()

    @property
    def idle(self) -> bool:
        """Whether everything given was done and taken note of."""
        return not self._given and not self._ended

    def give(self, task: Task, then: Task) -> None:
        """Do `task` some time later, and `then` in a turn after it."""
        self._given.append((task, then))
        self._server.later(self._server.pace.job, self._run)

    def reap(self) -> None:
        """In a turn: take note of what was done."""
        while self._ended:
            self._ended.popleft()()

    def _run(self) -> None:
        task, then = self._given[0]
        task()
        self._given.popleft()
        self._ended.append(then)
        self._server.later(self._server.pace.turn, self._server.turn)


class SimulatedServer:
    """One life of the server, from opening its directory to its end."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        machine: Machine,
        chance: Random,
        *,
        options: LogOptions,
        pace: Pace,
        sprung: Callable[[Trap], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.pace = pace
        self.disk = ProcessDisk(machine, sprung)
        self.driver: Driver | None = None
        self.opened: OpenedLog | None = None
        self.missing: list[completeness.Missing] = []  # what a person agreed to lose
        self._clock = clock
        self._network = network
        self._chance = chance
        self._options = options
        self._failed = failed
        self._inbox: deque[tuple[bytes, Frames]] = deque()
        self._turn_at = -1
        self._group: Group | None = None  # under way to the disk
        self._is_written = False
        self._janitor = Janitor(self)

    def start(self, trap: Trap | None = None) -> bool:
        """Recover and listen; False when the process died on the way."""
        self.disk.trap = trap
        return self._alive(self._open)

    def _open(self) -> None:
        opened = open_log(self.disk, DIRECTORY, self._options, random_bytes=self._chance.randbytes)
        shard, _, self.missing = recover(opened)
        broker = Broker(shard, ServerLimits(stage_ms=STAGE_MS))
        self._now = SteadyClock(
            self._wall_micros, lambda: self._clock.now // MICROSECOND, shard.last_timestamp
        )
        broker.recovered(self._now())
        self.opened = opened
        self.driver = Driver(broker, opened.log)
        self.driver.reaches = self._network.reaches
        self.driver.lose([each.record for each in self.missing], self._now())
        self.driver.keep_time(self._now.calendar, self._now())
        self.driver.begin(self._now())
        self._housekeeping = Housekeeping(self.driver, self._now())
        broker.listeners.feed = FEED
        self._network.listen(self)
        self._wake(IDLE)

    def write_some(self) -> None:
        """The end comes while a group is being written: some of it is, and not synced."""
        if self.driver is None or self._group is None or self._is_written:
            return
        left = self._chance.choice((1, 1, 2, 3))
        self.disk.trap = Trap(("sync", "sync_directory"), left, "", 0, silent=True)
        with suppress(Died, OSError):
            self.driver.log.write(self._group)

    def die(self) -> None:
        """The process ends here and now; the disk is as it is."""
        self.disk.die()
        self._network.hang_up()

    def later(self, most: int, event: Callable[[], None]) -> None:
        """Let this life of the server do something, after a while."""
        delay = self._chance.randrange(most // 10, most)
        self._clock.after(delay, lambda: self._alive(event))

    def _alive(self, event: Callable[[], None]) -> bool:
        if self.disk.dead:
            return False
        try:
            event()
        except Died:
            return False
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _wall_micros(self) -> int:
        return EPOCH_MICROS + self._clock.now // MICROSECOND + self.pace.skew_micros

    # The loop

    def arrived(self, route: bytes, frames: Frames) -> None:
        """A request came."""
        self._inbox.append((route, frames))
        self._wake(self._chance.randrange(self.pace.turn // 10, self.pace.turn))

    def heard(self, *, joined: bool, subject: bytes) -> None:
        """Someone listens on the feed, or nobody any more."""
        if self.driver is not None and not self.disk.dead:
            self.driver.pushes.changed(joined=joined, subject=subject)
            self._wake(self._chance.randrange(self.pace.turn // 10, self.pace.turn))

    def _wake(self, delay: int) -> None:
        moment = self._clock.now + delay
        if self._turn_at < 0 or moment < self._turn_at:
            self._turn_at = moment
            self._clock.at(moment, lambda: self._alive(lambda: self._due(moment)))

    def _due(self, moment: int) -> None:
        if moment == self._turn_at:
            self.turn()

    def turn(self) -> None:
        """One turn of the loop, as `server.loop.Loop` does it."""
        self._turn_at = -1
        driver = self.driver
        assert driver is not None
        now = self._now()
        driver.keep_time(self._now.calendar, now)
        while self._inbox:
            driver.receive(*self._inbox.popleft(), now)
        deadline = driver.next_deadline()
        if deadline is not None and deadline <= now:
            driver.tick(now)
        self._commit(now)
        self._send()
        self._housekeeping.turn(self._janitor, now)
        self._janitor.reap()
        if self._housekeeping.busy:
            self._wake(self.pace.turn)
            return
        deadlines = driver.next_deadline(), driver.next_commit()
        deadline = min((each for each in deadlines if each is not None), default=None)
        if deadline is None or deadline <= now:  # a commit that waits for the one under way
            self._wake(IDLE)
        else:
            self._wake(min(IDLE, (deadline - now) * MICROSECOND))

    def _commit(self, now: Micros) -> None:
        assert self.driver is not None
        if self._group is not None:
            return
        group = self._group = self.driver.commit(now)
        if group is not None:
            self.later(self.pace.sync, lambda: self._write(group))

    def _write(self, group: Group) -> None:
        assert self.driver is not None
        self._is_written = True
        self.driver.log.write(group)
        self.later(self.pace.turn, lambda: self._written(group))

    def _written(self, group: Group) -> None:
        assert self.driver is not None
        self._group = None
        self._is_written = False
        self.driver.committed(group, self._now())
        self.turn()

    def _send(self) -> None:
        assert self.driver is not None
        outgoing, self.driver.outgoing = self.driver.outgoing, []
        for route, frames in outgoing:
            self._network.reply(route, frames)
        pushed, self.driver.pushes.outgoing = self.driver.pushes.outgoing, []
        for frames in pushed:
            self._network.air.publish(frames)
