"""A server's loop, writer and janitor in simulated time, whatever the loop serves.

The loop's turns, the writer's syncs and the janitor's jobs are events here, so that a crash can
come between any two of them. Laws: as in `server.loop`, one group syncs while the next gathers, and
after a failed write or sync nothing is answered any more. A process that stands still does nothing,
not even for its disk; what happened meanwhile happens to it when it goes on.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from oncemq.protocol.names import Micros
from oncemq.server.clock import SteadyClock
from oncemq.server.served import KeepsHouse, Served
from oncemq.server.worker import Task, Worker
from oncemq.storage.log.log import Group
from oncemq.storage.log.recovery import Recovery
from simulator.clock import MICROSECOND, MILLISECOND, Clock
from simulator.machines.machine import Died, Machine, ProcessDisk, Trap
from simulator.network.feed import feed_at
from simulator.network.network import ALONE, Frames, Network

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


@dataclass(frozen=True, slots=True)
class StartFound:
    """What a start found."""

    last: int  # the log's last serial
    report: Recovery
    has_checkpoint: bool


class Janitor(Worker):
    """The worker's stand-in: a task runs as one event, its consequence with a later turn."""

    def __init__(self, server: "ServerLoop") -> None:
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


class ServerLoop(ABC):
    """One life of a server, from opening its directory to its end."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        machine: Machine,
        chance: Random,
        *,
        pace: Pace,
        sprung: Callable[[Trap], None],
        failed: Callable[[Exception], None],
        place: str = ALONE,
    ) -> None:
        self.pace = pace
        self.place = place
        self.disk = ProcessDisk(machine, sprung)
        self.served: Served | None = None
        self.opened: StartFound | None = None
        self._clock = clock
        self._network = network
        self._chance = chance
        self._failed = failed
        self._inbox: deque[tuple[bytes, Frames]] = deque()
        self._turn_at = -1
        self._group: Group | None = None  # under way to the disk
        self._is_written = False
        self._janitor = Janitor(self)
        self.is_frozen = False
        self._held: list[Callable[[], None]] = []  # what happened while it stood still

    @abstractmethod
    def open(self, clock: Callable[[int | None], SteadyClock]) -> tuple[Served, KeepsHouse]:
        """Recover; `clock`: the server's, from the newest timestamp of its log."""

    @property
    def is_opening(self) -> bool:
        """Whether its directory is not open yet: it may find that there is no room for one."""
        return self.served is None

    def start(self, trap: Trap | None = None) -> bool:
        """Recover and listen; False when the process died on the way."""
        self.disk.trap = trap
        return self._alive(self._begin)

    def _begin(self) -> None:
        served, self._housekeeping = self.open(self._steady_clock)
        served.bind(
            reaches=self._network.reaches, takes=_reads_everything, hand_over=_later,
            connections=dict,
        )  # fmt: skip
        self.served = served
        self._network.listen(self, self.place)
        self._wake(IDLE)

    def _steady_clock(self, last_timestamp: int | None) -> SteadyClock:
        self.now = SteadyClock(self._wall_micros, self._steady_micros, last_timestamp)
        return self.now

    def write_some(self) -> None:
        """The end comes while a group is being written: some of it is, and not synced."""
        if self.served is None or self._group is None or self._is_written:
            return
        left = self._chance.choice((1, 1, 2, 3))
        self.disk.trap = Trap(("sync", "sync_directory"), left, "", 0, silent=True)
        with suppress(Died, OSError):
            self.served.log.write(self._group)

    def die(self) -> None:
        """The process ends here and now; the disk is as it is."""
        self.disk.die()
        self._network.frozen.discard(self.place)
        self._network.hang_up(self.place)

    def freeze(self) -> None:
        """The process stands still."""
        self.is_frozen = True
        self._network.frozen.add(self.place)

    def thaw(self) -> None:
        """It goes on, and everything that happened meanwhile happens to it now."""
        self.is_frozen = False
        self._network.frozen.discard(self.place)
        held, self._held = self._held, []
        for event in held:
            self._alive(event)

    def later(self, most: int, event: Callable[[], None]) -> None:
        """Let this life of the server do something, after a while."""
        delay = self._chance.randrange(most // 10, most)
        self._clock.after(delay, lambda: self._alive(event))

    def _alive(self, event: Callable[[], None]) -> bool:
        if self.disk.dead:
            return False
        if self.is_frozen:
            self._held.append(event)
            return False
        try:
            event()
        except Died:
            return False
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _steady_micros(self) -> int:
        return self._clock.now // MICROSECOND

    def _wall_micros(self) -> int:
        return EPOCH_MICROS + self._clock.now // MICROSECOND + self.pace.skew_micros

    # The loop

    def arrived(self, route: bytes, frames: Frames) -> None:
        """A request came."""
        self._inbox.append((route, frames))
        self.wake()

    def heard(self, *, joined: bool, subject: bytes) -> None:
        """Someone listens on the feed, or nobody any more."""
        if self.served is not None and not self.disk.dead:
            self.served.listens(joined=joined, subject=subject)
            self.wake()

    def wake(self) -> None:
        """Something came: have a turn soon."""
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
        served = self.served
        assert served is not None
        now = self.now()
        served.keep_time(self.now.calendar, now)
        while self._inbox and not served.is_full:
            served.receive(*self._inbox.popleft(), now)
        deadline = served.next_deadline()
        if deadline is not None and deadline <= now:
            served.tick(now)
        self._commit(now)
        if served.has_news:
            served.take_news(now)
        self._send()
        self._housekeeping.turn(self._janitor, now)
        self._janitor.reap()
        if self._housekeeping.busy:
            self._wake(self.pace.turn)
            return
        deadlines = served.next_deadline(), served.next_commit()
        deadline = min((each for each in deadlines if each is not None), default=None)
        if deadline is None or deadline <= now:  # a commit that waits for the one under way
            self._wake(IDLE)
        else:
            self._wake(min(IDLE, (deadline - now) * MICROSECOND))

    def _commit(self, now: Micros) -> None:
        assert self.served is not None
        if self._group is not None:
            return
        group = self._group = self.served.commit(now)
        if group is not None:
            self.later(self.pace.sync, lambda: self._write(group))

    def _write(self, group: Group) -> None:
        assert self.served is not None
        self._is_written = True
        self.served.log.write(group)
        self.later(self.pace.turn, lambda: self._written(group))

    def _written(self, group: Group) -> None:
        assert self.served is not None
        self._group = None
        self._is_written = False
        self.served.written(group, self.now())
        self.turn()

    def _send(self) -> None:
        served = self.served
        assert served is not None
        outgoing, served.outgoing = served.outgoing, []
        for route, frames in outgoing:
            self._network.reply(route, frames)
        pushed, served.pushes.outgoing = served.pushes.outgoing, []
        for frames in pushed:
            self._network.air.publish(frames, feed_at(self.place))


def _reads_everything(_route: bytes) -> bool:
    return True


def _later() -> None:
    """Replies leave with the end of the turn."""
