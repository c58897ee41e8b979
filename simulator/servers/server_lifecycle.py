"""The server over all its lives: its machine, what befalls it, and when it comes back.

Law: it comes back after everything that may befall a server. What it cannot come back from, and
every error it was not given, is trouble.
"""

import errno
from collections.abc import Callable
from typing import Generic, TypeVar

from simulator.actors.server_loop import DIRECTORY, Pace, ServerLoop
from simulator.clock import MICROSECOND, MILLISECOND, Clock
from simulator.history.history import History
from simulator.machines.machine import Machine, Trap
from simulator.network.network import Network
from simulator.schedule.options import WorldOptions

AMPLE = 1 << 40

S = TypeVar("S", bound=ServerLoop)
# Makes one life of a server, which is not begun.
MakeServer = Callable[[Machine, Pace, Callable[[Trap], None], Callable[[Exception], None]], S]


class ServerLives(Generic[S]):
    """One server that dies and starts again."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        history: History,
        options: WorldOptions,
        *,
        machine: Machine,
        make: MakeServer[S],
        tell: Callable[[str], None],
        name: str = "the server",
    ) -> None:
        self.machine = machine
        self.name = name
        self.pace = Pace(sync=options.sync_us * MICROSECOND)
        self.server: S | None = None
        self.beyond_help = False
        self.is_away = False  # somebody works on its directory
        self.came_up: Callable[[S], None] = lambda server: None
        self._clock = clock
        self._network = network
        self._history = history
        self._options = options
        self._make = make
        self._tell = tell
        self._down_ms = 50  # after a death of its own making
        self._next_trap: Trap | None = None
        self._life = 0
        self._has_no_reserve = False  # a log that was restored, or cut, is as long as its records

    @property
    def is_up(self) -> bool:
        """Whether it listens."""
        return self.server is not None and self.server.served is not None

    def start(self) -> None:
        """Open the directory and listen."""
        if self.server is not None or self.beyond_help or self.is_away:
            return
        trap, self._next_trap = self._next_trap, None
        self._life += 1
        server = self.server = self._make(self.machine, self.pace, self._sprung, self._failed)
        if server.start(trap) and server.opened is not None:
            report = server.opened.report
            self._clock.note(f"server up {server.opened.last}")
            self.came_up(server)
            self._tell("server recovered" if self._life > 1 else "server made")
            for what, found in (("torn tail", report.torn), ("leftovers", report.removed)):
                if found:
                    self._tell(what)
            if server.opened.has_checkpoint:
                self._tell("checkpoint used")

    # What befalls it

    def kill(self, down_ms: int) -> None:
        """The process is killed: the page cache stays."""
        if self.server is None:
            return
        self._take_stock()
        server, self.server = self.server, None
        if not server.disk.dead and server.disk.trap is None:
            server.write_some()
        server.die()
        self._clock.note("server down")
        life = self._life
        self._clock.after(down_ms * MILLISECOND, lambda: self._again(life))

    def cut(self, mode: str, down_ms: int) -> None:
        """The machine loses power, whether the server runs or not."""
        self.kill(down_ms)
        self.machine.cut(mode)
        self._tell(f"server cut {mode}")

    def freeze(self, nanoseconds: int) -> None:
        """The process stands still for so long."""
        server = self.server
        if server is None or server.is_frozen:
            return
        server.freeze()
        self._clock.after(nanoseconds, lambda: server.is_frozen and server.thaw())

    def take_down(self, down_ms: int) -> None:
        """It ends, and comes back when nothing of it is under way any more."""
        self.kill(down_ms)
        self.is_away = True
        self._next_trap = None
        self._has_no_reserve = True
        self._network.begin_era()
        self._clock.after(down_ms * MILLISECOND, self._is_back)

    def _is_back(self) -> None:
        self.is_away = False
        self.start()

    def set_trap(self, trap: Trap) -> None:
        """Die at a disk call to come."""
        if self.server is not None:
            self.server.disk.trap = trap
            if trap.again:
                self._next_trap = Trap((), 1 + trap.left * 2, trap.cut, trap.down_ms)

    def fail_sync(self, down_ms: int) -> None:
        """The next sync fails, and what it was to make durable is dropped."""
        self.machine.disk.faults.failing_syncs = 1
        self._down_ms = down_ms

    def fill(self, spare: int) -> None:
        """Leave only so much room on the disk."""
        disk = self.machine.disk
        disk.faults.capacity = AMPLE
        disk.faults.capacity = AMPLE - disk.free_bytes("/") + spare

    def mend(self) -> None:
        """Everything works again; it starts if it was down."""
        faults = self.machine.disk.faults
        faults.failing_syncs, faults.capacity = 0, AMPLE
        self._next_trap = None
        self.pace.sync = self._options.sync_us * MICROSECOND
        if self.server is not None:
            self.server.disk.trap = None
            if self.server.is_frozen:
                self.server.thaw()
        self.start()

    # Inside

    def _again(self, life: int) -> None:
        if life == self._life:
            self.start()

    def _sprung(self, trap: Trap) -> None:
        self._tell("server trapped")
        if trap.cut:
            self.cut(trap.cut, trap.down_ms)
        else:
            self.kill(trap.down_ms)

    def _failed(self, error: Exception) -> None:
        opening = self.server is None or self.server.is_opening
        code = error.errno if isinstance(error, OSError) else None
        if code == errno.EIO:
            self._tell("sync failed")
        elif self._has_no_reserve and getattr(error, "code", "") == "storage_full":
            self._tell("no room to start")  # nor to note what a person agreed to go on without
        elif code == errno.ENOSPC and (opening or self._has_no_reserve):
            self._tell("no room to start")  # it waits for room, and loses nothing
        else:
            self._history.error(self.name, error)
            self.beyond_help = True
        self.kill(self._down_ms)

    def _take_stock(self) -> None:
        """What the disk shows of the housekeeping of this life."""
        disk = self.machine.disk
        if self.server is None or self.server.opened is None:
            return
        names = disk.names(f"{DIRECTORY}/log")
        logs = [name for name in names if name.endswith(".log")]
        if len(logs) > 1:
            self._tell("segments rolled")
        if any(name.endswith(".cold") for name in names):
            self._tell("segments compacted")
        if logs and int(logs[0].removesuffix(".log")) > 1:
            self._tell("segments freed")
        if disk.names(f"{DIRECTORY}/checkpoints"):
            self._tell("checkpoint made")
