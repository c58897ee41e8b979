"""Faults in a running process's calls to the kernel, by strace: errors and delays, until the
block ends. What strace is told to inject is written as in its manual: `fdatasync:error=EIO:when=3`.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.e2e.processes import until


class Injection:
    """One strace on one process, all of its threads."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._kept: str | None = None

    def keep(self) -> None:
        """Remember the trace, whose file goes."""
        self._kept = self._trace.read_text()

    @property
    def calls(self) -> int:
        """How many of the calls were seen."""
        return len([line for line in self._lines if "resumed>" not in line])

    @property
    def injected(self) -> int:
        """How many of them failed as told."""
        return len([line for line in self._lines if "INJECTED" in line])

    @property
    def _lines(self) -> list[str]:
        text = self._trace.read_text() if self._kept is None else self._kept
        return [line for line in text.splitlines() if "(" in line]


@contextmanager
def injection(process: int, fault: str) -> Iterator[Injection]:
    """The fault, in every thread of the process; healed when the block ends."""
    call = fault.partition(":")[0]
    with tempfile.NamedTemporaryFile(suffix=".trace") as trace:
        strace = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", trace.name, "-p", str(process)),
                *("-e", f"trace={call}", "-e", f"inject={fault}"),
            ],
            stderr=subprocess.PIPE,
        )
        injected = Injection(Path(trace.name))
        try:
            until(lambda: _traced(process), what=f"strace {fault}")
            yield injected
        finally:
            strace.terminate()
            strace.communicate()
            injected.keep()


@cache
def why_no_strace() -> str | None:
    """Why faults cannot be injected here; None when they can. It tries."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=fdatasync:error=EIO", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"strace failed: {tried.stderr.strip()}"
    return None


def _traced(process: int) -> bool:
    """Whether every thread has its tracer; true as well of a process that is gone."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        return all("TracerPid:\t0\n" not in (each / "status").read_text() for each in threads)
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{process}/task").exists()
