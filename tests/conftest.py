"""Hypothesis profiles: `dev` explores, `ci` repeats itself. And the one PostgreSQL."""

import os
import signal

from hypothesis import settings
from tests.databases.postgres import postgres

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
