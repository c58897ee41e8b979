"""Runs of pytest that begin at once: in forks of a process that has the libraries imported.

Most of a short run is importing them. The package itself is imported by each run anew.
"""

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

LIBRARIES = (
    "pytest", "pytest_asyncio.plugin", "pytest_timeout", "xdist.plugin", "hypothesis",
    "hypothesis.stateful", "asyncio", "zmq.asyncio", "msgspec", "click", "psutil",
    "asyncpg", "psycopg", "sqlalchemy.ext.asyncio", "pyarrow", "pyspark.sql",
)  # fmt: skip

FEW_WORLDS = {"SIM_WORLDS": "30"}  # of the simulation, and always the same
MEMORY_MAX = 6 * 2**30  # the machine has other work

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(list(LIBRARIES))


class Done(NamedTuple):
    """How a run ended."""

    code: int
    report: str


def run(tree: Path, arguments: list[str], seconds: float) -> Done | None:
    """Run pytest in a tree; None when it took longer. No process of it is left behind."""
    report = tree / "report.txt"
    process = _forks.Process(target=_run, args=(tree, arguments, report))
    process.start()
    process.join(seconds)
    in_time = process.exitcode is not None
    with contextlib.suppress(ProcessLookupError):  # the servers that its tests left, too
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()
    return Done(process.exitcode or 0, report.read_text(errors="replace")) if in_time else None


def _run(tree: Path, arguments: list[str], report: Path) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))  # a loop without an end
    with report.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.dont_write_bytecode = False  # the next run is quicker
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.update(FEW_WORLDS)
    os.environ["PYTHONPATH"] = str(tree / "src")
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(tree / ".hypothesis")
    here = str(Path.cwd())
    sys.path[:] = [str(tree / "src"), *(path for path in sys.path if path not in ("", here))]
    os.chdir(tree)
    import pytest

    ignored = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # of what is imported already
    # Directories of its own: another run of pytest may be cleaning up where all have theirs.
    with tempfile.TemporaryDirectory(prefix="mutate-", ignore_cleanup_errors=True) as own:
        places = ("--basetemp", f"{own}/tests", "-p", "no:cacheprovider")
        code = pytest.main(["-q", *places, *ignored, *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
