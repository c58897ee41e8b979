"""A server's socket without a server: it does its part while a test looks."""

from collections.abc import Callable
from typing import TypeVar

from oncemq.transport.serving.bound_socket import BoundSocket
from tests.harness.waiting import until

T = TypeVar("T")


def until_served(served: BoundSocket, look: Callable[[], T | None]) -> T:
    """What the look gives, as soon as it gives something; newcomers are let in meanwhile."""

    def looked() -> T | None:
        served.connections.wait(0)
        return look()

    return until(looked)
