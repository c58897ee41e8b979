"""The questions of a leader to its members whether it still leads: which were asked and answered.

A question is asked of all that a commit waits for, with the next message to each, and has a number;
whoever answers names the newest that it was asked. See `Leader.confirm` for what that proves.
"""

from collections import deque
from collections.abc import Iterable

from oncemq.protocol.names import Micros


class LeaderRounds:
    """Of one epoch."""

    def __init__(self) -> None:
        self.newest = 0  # that was asked
        self.confirmed = 0  # the newest that everybody answered
        self._asked_at: deque[Micros] = deque()  # of those that not everybody answered

    def ask(self, now: Micros) -> None:
        """One more."""
        self.newest += 1
        self._asked_at.append(now)

    def answered(self, by_each: Iterable[int]) -> bool:
        """The newest that each has answered; whether everybody answered one more by now."""
        confirmed = min([self.newest, *by_each])  # nobody answers what was not asked
        if confirmed <= self.confirmed:
            return False
        for _ in range(confirmed - self.confirmed):
            self._asked_at.popleft()
        self.confirmed = confirmed
        return True

    def waits_since(self) -> Micros | None:
        """When the oldest was asked that is not answered; None: all are."""
        return self._asked_at[0] if self._asked_at else None
