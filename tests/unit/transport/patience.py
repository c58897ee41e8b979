"""Waiting for what a socket brings."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 20.0
T = TypeVar("T")


def until(look: Callable[[], T | None]) -> T:
    """What it gives, as soon as it gives something."""
    deadline = time.monotonic() + PATIENCE
    while (found := look()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return found
