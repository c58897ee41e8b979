"""A simulated machine: a disk that outlives its processes, and traps that end one in mid-call.

Laws: a killed process loses its files and locks, and the page cache stays; a power cut loses what
waited for a sync. A trap springs before the disk call it counted down to, or after that call took
effect; nothing of the process runs any more then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from oncemq.storage.disk import Buffer, File, Lock
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut


class Died(BaseException):
    """The process is no more. Nothing may catch this but the simulation."""


@dataclass(slots=True)
class Trap:
    """Ends the process at the disk call that makes `left` zero."""

    calls: tuple[str, ...]  # which calls count; none: all that change something
    left: int
    cut: str  # the name of a PowerCut; empty: the process is killed
    down_ms: int  # how long until it is started again
    again: bool = False  # set another one for the way back
    silent: bool = False  # whoever set it sees to the rest


def trap_of(args: Mapping[str, int | str | bool]) -> Trap:
    """The trap that a step describes."""
    calls = (str(args["calls"]),) if args["calls"] else ()
    return Trap(
        calls, int(args["left"]), str(args["mode"]), int(args["down_ms"]), bool(args["again"])
    )


@dataclass(slots=True)
class DiskFault:
    """What the disk says to the call that makes `left` zero, and to so many in all."""

    calls: tuple[str, ...]  # which calls count; none: all that change something
    left: int
    error: int  # an errno
    times: int


CHANGES = ("write", "sync", "truncate", "allocate", "create", "rename", "remove", "sync_directory")


class Machine:
    """One disk, and whatever processes use it."""

    def __init__(self, random: Random) -> None:
        self.disk = FaultyDisk(random)

    def cut(self, mode: str) -> None:
        """The power fails and comes back."""
        self.disk.crash(PowerCut[mode])

    def fill(self, spare: int) -> None:
        """Leave so much room, and no more."""
        faults = self.disk.faults
        faults.capacity = 1 << 40
        faults.capacity -= self.disk.free_bytes("/") - spare

    def mend(self) -> None:
        """There is room again."""
        self.disk.faults.capacity = 1 << 40

    def copy(self, random: Random) -> "Machine":
        """The same machine as it is now, from a backup taken by a process that reads files."""
        machine = Machine(random)
        machine.disk = self.disk.fork(random)
        return machine


class ProcessDisk:
    """The disk as one process has it: all of it ends with the process."""

    def __init__(self, machine: Machine, sprung: Callable[[Trap], None]) -> None:
        self.trap: Trap | None = None
        self.fault: DiskFault | None = None
        self.dead = False
        self.calls = 0
        self._disk = machine.disk
        self._sprung = sprung
        self._locks: list[Lock] = []

    def die(self) -> None:
        """The process ended, however it did."""
        self.dead = True
        for lock in self._locks:
            lock.release()

    def passes(self, call: str) -> None:
        """Every call that changes something goes through here first."""
        if self.dead:
            raise Died
        self.calls += 1
        trap = self.trap
        if trap is not None and call in (trap.calls or CHANGES):
            trap.left -= 1
            if trap.left <= 0:
                self.trap = None
                if not trap.silent:
                    self._sprung(trap)
                raise Died
        if self.fault is not None:
            self._fail(self.fault, call)

    def _fail(self, fault: DiskFault, call: str) -> None:
        if call in (fault.calls or CHANGES):
            fault.left -= 1
            if fault.left <= 0:
                fault.times -= 1
                if fault.times <= 0:
                    self.fault = None
                raise OSError(fault.error, "planned", call)

    def open(self, path: str, create: bool = False) -> File:
        if create:
            self.passes("create")
        return ProcessFile(self, self._disk.open(path, create))

    def names(self, directory: str) -> list[str]:
        return self._disk.names(directory)

    def rename(self, source: str, target: str) -> None:
        self.passes("rename")
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.passes("remove")
        self._disk.remove(path)

    def make_directory(self, path: str) -> None:
        self.passes("make_directory")
        self._disk.make_directory(path)

    def sync_directory(self, path: str) -> None:
        self.passes("sync_directory")
        self._disk.sync_directory(path)

    def free_bytes(self, directory: str) -> int:
        return self._disk.free_bytes(directory)

    def lock(self, path: str) -> Lock:
        if self.dead:
            raise Died
        lock = self._disk.lock(path)
        self._locks.append(lock)
        return lock


class ProcessFile:
    """An open file of one process."""

    def __init__(self, owner: ProcessDisk, file: File) -> None:
        self._owner = owner
        self._file = file
        self.read = file.read
        self.size = file.size
        self.close = file.close

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._owner.passes("write")
        self._file.write(buffers, position)

    def sync(self) -> None:
        self._owner.passes("sync")
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._owner.passes("truncate")
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._owner.passes("allocate")
        self._file.allocate(size)
