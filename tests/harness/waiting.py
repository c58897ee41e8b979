"""Waiting for what a socket, a thread or a process brings."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 30.0
T = TypeVar("T")


def until(look: Callable[[], T | None]) -> T:
    """What it gives, as soon as it gives something."""
    deadline = time.monotonic() + PATIENCE
    while (found := look()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return found


def until_true(holds: Callable[[], object], what: str) -> None:
    """Return as soon as it holds; `what` is said when that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.005)
