"""A crash at every point of a workload: it runs once, and copies of its disk crash at each call."""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut

KILL = None  # no power cut: the process dies and the page cache stays
VARIANTS: tuple[PowerCut | None, ...] = (
    KILL,
    PowerCut.NOTHING,
    PowerCut.PREFIX,
    PowerCut.REORDERED,
    PowerCut.REORDERED,
    PowerCut.TORN,
    PowerCut.SIZE_LOST,
    PowerCut.ZEROED,
)


class Ended(Exception):
    """The workload's own machine crashes here."""


class CrashPoints:
    """Crashes a copy of a disk before each call that changes it, or before one in so many.

    `verify` gets each crashed copy and the random that crashes it again; it opens what is on it,
    raises if something is wrong, and says how often it recovered. The workload's own machine goes
    on; it crashes only where the workload says so, by `after` and `failing`.
    """

    def __init__(
        self,
        disk: FaultyDisk,
        verify: Callable[[FaultyDisk, Random], int],
        *,
        part: int = 0,
        parts: int = 1,
        seed: int = 0,
    ) -> None:
        self.points = 0
        self.recoveries = 0
        self._disk = disk
        self._verify = verify
        self._part = part
        self._parts = parts
        self._seed = seed
        self._end: tuple[str, str, Exception] | None = None  # at, or after, this call of this path
        self._before = ("", "")
        disk.faults.hook = self._hook

    def crash_here(self, call: str = "nothing", path: str = "") -> None:
        """Try every variant on a copy of the disk as it is now."""
        for number, variant in enumerate(VARIANTS):
            random = Random(f"{self._seed} {self.points} {number}")
            copy = self._disk.fork(random)
            _end_of(copy, variant)
            try:
                self.recoveries += self._verify(copy, random)
            except Exception as error:
                error.add_note(f"crashed at point {self.points}, before {call} {path}: {variant}")
                raise

    def after(
        self, work: Callable[[], object], call: str, path: str, *, variant: PowerCut | None
    ) -> None:
        """Do the work up to this call of a path, that included; then crash the machine itself."""
        self._do(work, (call, path, Ended()))
        _end_of(self._disk, variant)

    def failing(self, work: Callable[[], object], call: str, path: str) -> None:
        """Do the work until this call of a path fails, which is the end of the process."""
        self._do(work, (call, path, OSError(errno.EIO, "planned", path)))
        self._disk.kill()

    def _do(self, work: Callable[[], object], end: tuple[str, str, Exception]) -> None:
        self._end = end
        with suppress(Ended, OSError):
            work()
        assert self._end is None, f"the work never called {end[0]} {end[1]}"

    def _hook(self, call: str, path: str, _size: int) -> None:
        if call == "read":
            return
        self.points += 1
        if self.points % self._parts == self._part:
            self.crash_here(call, path)
        before, self._before = self._before, (call, path)
        if self._end is not None:
            wanted, part, error = self._end
            at = before if isinstance(error, Ended) else (call, path)
            if at[0] == wanted and part in at[1]:
                self._end = None
                raise error


def _end_of(disk: FaultyDisk, variant: PowerCut | None) -> None:
    if variant is None:
        disk.kill()
    else:
        disk.crash(variant)
