"""A wall clock of its own for a process, set and set again while it runs: see `wrong_clock.c`."""

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("wrong_clock.c")


class WrongClock:
    """Of one process, which starts under `variables`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.set(hours=0)
        self.variables = {"LD_PRELOAD": str(library()), "WRONG_CLOCK": str(path)}

    def set(self, *, hours: float, too_fast: float = 0.0) -> None:
        """So many hours from the right time; from now on going too fast, by this part."""
        ahead = int(hours * 3600 * 1_000_000_000)
        os.pwrite(self._file, struct.pack("=qqq", ahead, time.time_ns(), int(too_fast * 1000)), 0)


@cache
def library() -> Path:
    """Compiled once."""
    made = Path(tempfile.mkdtemp(prefix="oncemq-clock-")) / "wrong_clock.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(made), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made


def why_no_wrong_clocks() -> str | None:
    """Why no process can have a clock of its own here; None when one can."""
    if sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    if shutil.which("cc") is None:
        return "cc is not installed"
    if not sysconfig.get_config_var("HAVE_SEM_CLOCKWAIT"):
        return "this Python waits for locks by the wall clock"
    return None
