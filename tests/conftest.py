"""Hypothesis profiles: `dev` explores, `ci` repeats itself. The one PostgreSQL. The order."""

import os
import signal

import pytest
from hypothesis import settings
from tests.databases.postgres import postgres
from tests.turns import in_turns

__all__ = ["postgres"]  # a fixture for every directory: one server for all of them

# Installed, pytest finds it by itself; this is for a checkout beside its environment.
pytest_plugins = ["oncemq.testing.plugin"]

# No deadlines: a shared machine is slow at times, and pytest-timeout catches what hangs.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so every process they
# start, which is asked to end that way in some of them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[item.get_closest_marker("long") is not None].append(item)
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = in_turns(parts[True], parts[False], processes)
