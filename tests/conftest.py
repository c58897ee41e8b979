"""Hypothesis profiles: `dev` explores, `ci` repeats itself."""

import os

from hypothesis import settings

# No deadlines: a shared machine is slow at times, and pytest-timeout catches what hangs.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
