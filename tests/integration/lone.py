"""A process of its own for what ends, forks or interrupts one."""

import subprocess
import sys
from textwrap import dedent

SECONDS = 60


def alone(code: str, *arguments: str) -> list[str]:
    """Run code in a new process with these arguments; the lines it printed. It must end well."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()
