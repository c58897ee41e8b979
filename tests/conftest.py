"""Hypothesis profiles and the seed of CI. The one PostgreSQL, the one etcd. The order."""

import os
import signal
import time

import hypothesis.core
import pytest
from hypothesis import settings

from tests.databases.postgres import postgres
from tests.harness.etcd import etcd, etcd_to_kill
from tests.turns import in_turns

__all__ = ["etcd", "etcd_to_kill", "postgres"]  # fixtures for every directory: one of each

# Installed, pytest finds it by itself; this is for a checkout beside its environment.
pytest_plugins = ["oncemq.testing.plugin"]

# No deadlines: a shared machine is slow at times, and pytest-timeout catches what hangs.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Each run of CI rolls the dice anew: what it always rolled alike, it would never find. The seed is
# printed, and the same in every process: with it a run is repeated. What one finds stays as an
# `@example`.
SEED = "HYPOTHESIS_SEED"
if os.environ.get("CI"):
    os.environ.setdefault(SEED, str(time.time_ns() // 1_000_000))
if SEED in os.environ:
    hypothesis.core.global_force_seed = int(os.environ[SEED])

# A shell that runs the tests in the background has them ignore Ctrl-C, and so every process they
# start, which is asked to end that way in some of them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str | None:
    """The seed, in case that something is found."""
    return f"hypothesis: repeat with CI=1 {SEED}={os.environ[SEED]}" if SEED in os.environ else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed again, below what failed."""
    if SEED in os.environ and terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"hypothesis: repeat with CI=1 {SEED}={os.environ[SEED]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[item.get_closest_marker("long") is not None].append(item)
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = in_turns(parts[True], parts[False], processes)
