"""`python -m benchmarks [PART]... [--all] [--quick]`."""

import sys

from benchmarks.command import benchmarks
from oncemq.cli.terminal.guard import guard
from oncemq.cli.terminal.session import CommandSession

if __name__ == "__main__":
    session = CommandSession()
    sys.exit(guard(lambda: benchmarks.main(obj=session, standalone_mode=False), session))
