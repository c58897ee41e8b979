"""Where benchmarks run: a directory on the disk in question, a server of its own, a step shown.

Law: each measurement has a fresh server process that syncs always, and leaves nothing behind.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import TextIO

from oncemq.cli.demo.process import ServerChild

MEBIBYTE = 1 << 20
LISTENER = Path(__file__).with_name("listener.py")  # run as programs of their own
AUDIENCE = Path(__file__).with_name("audience.py")
BATCH_BYTES_MAX = 8 * MEBIBYTE  # a batch of 64 KB messages is cut to this


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    sizes: tuple[int, ...] = (100, 1_000, 64_000)
    batches: tuple[int, ...] = (5_000, 100)
    runs: int = 3
    seconds: float = 0.7  # of one bulk run
    singles: int = 2_000  # puts one at a time
    rate: int = 250  # puts a second, while latency is measured
    latencies: int = 1_500
    backlog_bytes: int = 128 * MEBIBYTE  # what a bulk get finds
    topics: int = 100_000
    log_bytes: int = 1 << 30
    listeners: tuple[int, ...] = (1, 10, 100, 1_000)
    heard: float = 4.0  # seconds in which listeners count; a thousand get 20 batches in each
    connected: int = 10_000
    stopped: float = 60.0  # seconds for which one listener of two is stopped
    attacked: float = 12.0  # seconds of honest puts for each attack, half of them without it


QUICK = Effort(
    sizes=(100,),
    runs=1,
    seconds=0.4,
    singles=500,
    latencies=300,
    backlog_bytes=32 * MEBIBYTE,
    topics=2_000,
    log_bytes=128 * MEBIBYTE,
    listeners=(1, 100),
    heard=0.7,
    connected=500,
    stopped=4.0,
    attacked=3.0,
)


class Steps:
    """Says what is being measured: one line redrawn on a terminal, a line each elsewhere."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._live = stream is not None and stream.isatty()

    def show(self, text: str) -> None:
        """The next step begins."""
        if self._stream is None:
            return
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{('measuring ' + text)[:width]}")
        else:
            self._stream.write(f"once: measuring {text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._live and self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class Lab:
    """What every measurement is given."""

    def __init__(self, directory: Path, effort: Effort, steps: Steps, database: str = "") -> None:
        self.database = database  # a PostgreSQL to measure on, beside SQLite
        self.before = ""  # an earlier commit, to measure beside
        self.directory = directory
        self.effort = effort
        self.steps = steps
        self._numbers = count(1)

    @contextmanager
    def scratch(self) -> Generator[Path]:
        """A directory that goes with the measurement."""
        path = self.directory / str(next(self._numbers))
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def server(self, *options: str) -> Generator[ServerChild]:
        """A fresh server, ready."""
        with self.scratch() as path:
            server = ServerChild(path, "--sync", "always", *options)
            try:
                server.begin()
                yield server
            finally:
                server.kill()

    @property
    def free_bytes(self) -> int:
        """Room on the disk."""
        return shutil.disk_usage(self.directory).free


@contextmanager
def lab(beside: Path | None, effort: Effort, *, shown: bool, database: str = "") -> Generator[Lab]:
    """A lab on the disk of `beside`, or of the temporary directory."""
    if beside is not None:
        beside.mkdir(parents=True, exist_ok=True)
    steps = Steps(sys.stderr if shown else None)
    with tempfile.TemporaryDirectory(prefix="oncemq-bench-", dir=beside) as directory:
        try:
            yield Lab(Path(directory), effort, steps, database)
        finally:
            steps.clear()


def in_turns(runs: int, *measures: Callable[[], float]) -> list[float]:
    """The middle of several runs of each, taken in turns: what disturbs one disturbs all."""
    samples = [[measure() for measure in measures] for _ in range(runs)]
    return [median(column) for column in zip(*samples, strict=True)]


def quantile(times: Sequence[float], part: float) -> float:
    """The value that `part` of all are at or below."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def batch_for(size: int, batch: int) -> int:
    """The batch as it can be put: not over BATCH_BYTES_MAX."""
    return max(1, min(batch, BATCH_BYTES_MAX // size))


def forget_cached(directory: Path) -> None:
    """Ask the system to drop the files from memory, so that a restart reads the disk."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
