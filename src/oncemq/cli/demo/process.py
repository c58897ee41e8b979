"""Processes that the demo and the benchmarks start, watch and kill.

Law: whatever was started here is gone when its parent ends, however it ends short of SIGKILL; a
child sees none of the user's settings, so that every run is the same run.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oncemq.errors import OnceMQError

READY_SECONDS = 60.0
STOP_SECONDS = 30.0


class ChildFailed(OnceMQError):
    """A process ended that should not have, or did not begin."""

    code = "child_failed"


class Child:
    """One process; what it says on stderr goes to a file beside its data."""

    def __init__(self, name: str, arguments: Sequence[str], directory: Path) -> None:
        self.name = name
        self._arguments = [sys.executable, *arguments]
        self._directory = directory
        self._errors = directory / f"{name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        directory.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Begin a life."""
        self.starts += 1
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(
                [*self._arguments, *self._more_arguments()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment_without_settings(),
                cwd=self._directory,
            )

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """Its number, while it runs."""
        assert self._process is not None
        return self._process.pid

    def line(self, seconds: float = READY_SECONDS) -> str:
        """Its next line on stdout; an error when none comes."""
        assert self._process is not None
        assert self._process.stdout is not None
        stream = self._process.stdout
        if select.select([stream], (), (), seconds)[0] and (text := stream.readline()):
            return text.decode().rstrip("\n")
        self.kill()
        raise self.failed("said nothing")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said goodbye to."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and how it ended."""
        self._end(signal.SIGTERM)
        return self.exit_code or 0

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself; its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed(f"did not end within {seconds:g} s") from None

    def failed(self, what: str) -> ChildFailed:
        """An error with the last words of the process."""
        words = self._errors.read_text("utf-8", "replace").strip()[-2000:]
        return ChildFailed(f"{self.name} {what}; its last words: {words or 'none'}")

    def _more_arguments(self) -> Sequence[str]:
        return ()

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


class ServerChild(Child):
    """`once serve` on a data directory of its own; the same address in every life."""

    def __init__(self, directory: Path, *options: str) -> None:
        settings = directory / "settings.toml"
        directory.mkdir(parents=True, exist_ok=True)
        settings.touch()  # so that no file of the user's is read
        self.data = directory / "data"
        self.address = ""
        super().__init__(
            "server",
            ["-m", "oncemq", "serve", "--config", str(settings), "--data", str(self.data),
             "--log-level", "warning", *options],
            directory,
        )  # fmt: skip

    def ready(self) -> str:
        """Wait until it serves; the line it says so with."""
        line = self.line()
        self.address = line.partition("ready at ")[2].partition(",")[0]
        if not self.address:
            raise self.failed(f"said {line!r}")
        return line

    def begin(self) -> float:
        """Start, and wait until it serves; how many seconds that took."""
        started = time.monotonic()
        self.start()
        self.ready()
        return time.monotonic() - started

    @property
    def resident_bytes(self) -> int:
        """Its memory (RSS), from /proc; 0 where there is none."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_seconds(self) -> float:
        """Processor time that its threads have used, from /proc; 0 where there is none."""
        try:
            threads = list(Path(f"/proc/{self.pid}/task").iterdir())
            spent = [(thread / "schedstat").read_text("ascii") for thread in threads]
        except OSError:
            return 0.0
        return sum(int(each.split()[0]) for each in spent) / 1e9

    def _more_arguments(self) -> Sequence[str]:
        return ["--bind", self.address or "tcp://127.0.0.1:*"]


def environment_without_settings() -> dict[str, str]:
    """The same for every user: none of the variables that are settings."""
    return {name: text for name, text in os.environ.items() if not name.startswith("ONCEMQ_")}


@contextmanager
def ended_by_a_signal() -> Generator[None]:
    """Let SIGTERM unwind this process, so that its children are ended and its files removed."""

    def unwind(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
