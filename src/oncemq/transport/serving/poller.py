"""What happened on which descriptor: epoll where there is one, else poll (macOS).

Both are level-triggered: what was not taken is told again.
"""

import select
from collections.abc import Sequence
from typing import Protocol

READABLE = select.POLLIN
WRITABLE = select.POLLOUT
EVENTS_MAX = 512  # told at a time; the system begins with those behind them the next time

Happened = Sequence[tuple[int, int]]  # descriptors, and what of them


class Poller(Protocol):
    """Descriptors, and what of each is of interest."""

    def register(self, descriptor: int, interest: int, /) -> None: ...
    def modify(self, descriptor: int, interest: int, /) -> None: ...
    def unregister(self, descriptor: int, /) -> None: ...
    def wait(self, timeout_ms: int, /) -> Happened: ...
    def close(self) -> None: ...


class EpollPoller:
    """Linux: costs by what happened, not by how many there are."""

    def __init__(self) -> None:
        epoll = self._epoll = select.epoll()
        self.register, self.modify = epoll.register, epoll.modify
        self.unregister, self.close = epoll.unregister, epoll.close
        self._poll = epoll.poll

    def wait(self, timeout_ms: int) -> Happened:
        """What happened, as soon as something did, or nothing when the time is over."""
        return self._poll(timeout_ms / 1000, EVENTS_MAX)


class PollPoller:
    """Everywhere else."""

    def __init__(self) -> None:
        poll = self._poll = select.poll()
        self.register, self.modify, self.unregister = poll.register, poll.modify, poll.unregister

    def wait(self, timeout_ms: int) -> Happened:
        """What happened, as soon as something did, or nothing when the time is over."""
        return self._poll.poll(timeout_ms)

    def close(self) -> None:
        """There is nothing open."""


def new_poller() -> Poller:
    """The best that this system has."""
    return EpollPoller() if hasattr(select, "epoll") else PollPoller()
