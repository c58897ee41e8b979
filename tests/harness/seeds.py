"""Which fresh seeds the simulations of a commit run, and for how long: SIM_SEED and SIM_SECONDS."""

import os
import subprocess
import time
from pathlib import Path

SECONDS = float(os.environ.get("SIM_SECONDS", "30"))


def first_seed() -> int:
    """As given, or by the commit: every commit sees new ones, and a red one stays red."""
    if "SIM_SEED" in os.environ:
        return int(os.environ["SIM_SEED"])
    here = Path(__file__).parent
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    ).stdout.strip()
    return int(head[:8], 16) * 100_000 if head else time.time_ns() // 1_000_000
