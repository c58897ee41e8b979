"""A plugin of pytest: which tests run which lines of the package, kept for `tools.mutate`.

Each process of the run writes one file: its tests, with the seconds they took, and for each source
file and line the numbers of the tests that ran it. The seconds are those of a machine at rest.
"""

import time
from collections.abc import Generator
from pathlib import Path
from time import perf_counter

import coverage
import msgspec
import pytest

PLACE = Path("build/mutate")
WAITED = Path("/proc/thread-self/schedstat")  # its second number: nanoseconds without a processor
IMPORTED = "imported"  # in no test: when the module was loaded


class Covered(msgspec.Struct):
    """What one process writes."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[int]]]  # -1: when the module was loaded
    slow: set[str] = set()  # those that are marked so


class Covering:
    """The lines run by each test of this process."""

    def __init__(self) -> None:
        self._coverage = coverage.Coverage(data_file=None, source=["oncemq"], config_file=False)
        # The plugin of the package itself is loaded before this one: no reason to write nothing.
        self._coverage.set_option("run:disable_warnings", ["module-not-measured"])
        self._seconds: dict[str, float] = {}
        self._slow: set[str] = set()

    def start(self) -> None:
        """From now on."""
        self._coverage.start()
        self._coverage.switch_context(IMPORTED)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        """One test, with its fixtures."""
        began = seconds_at_rest()
        self._coverage.switch_context(item.nodeid)
        yield
        self._coverage.switch_context(IMPORTED)
        self._seconds[item.nodeid] = seconds_at_rest() - began
        if item.get_closest_marker("slow"):
            self._slow.add(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write it all down; not later: xdist ends a process that takes long after its tests."""
        self._coverage.stop()
        data = self._coverage.get_data()
        numbers = {test: number for number, test in enumerate(self._seconds)} | {IMPORTED: -1}
        lines = {
            str(Path(path).relative_to(Path.cwd())): {
                line: sorted({numbers[each] for each in tests if each in numbers})
                for line, tests in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
            if Path(path).is_relative_to(Path.cwd())
        }
        PLACE.mkdir(parents=True, exist_ok=True)
        covered = Covered(self._seconds, lines, self._slow)
        (PLACE / f"{time.time_ns()}.json").write_bytes(msgspec.json.encode(covered))


def seconds_at_rest() -> float:
    """A clock that stands still while others have the processor: as on a machine at rest."""
    try:
        waited = int(WAITED.read_text().split()[1])
    except OSError:  # not on Linux
        waited = 0
    return perf_counter() - waited / 1e9


_covering = Covering()


def pytest_configure(config: pytest.Config) -> None:
    """Begin before the package is imported."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        return  # the one that only deals out the tests
    _covering.start()
    config.pluginmanager.register(_covering, "covering")
