"""What the network does to messages that are under way: it loses, doubles and delays them."""

from collections import deque
from random import Random

from simulator.replicas.surroundings import Envelope

MESSAGES_MAX = 60  # under way; then none is doubled
LATE_MAX = 8  # held back


class Undelivered:
    """The messages of a world that nobody has heard yet."""

    def __init__(self, messages: deque[Envelope], chance: Random) -> None:
        self._messages, self._chance = messages, chance
        self._late: list[Envelope] = []

    def lose(self) -> None:
        """One never arrives."""
        if self._messages:
            del self._messages[self._chance.randrange(len(self._messages))]

    def double(self) -> None:
        """One arrives twice."""
        messages = self._messages
        if messages and len(messages) < MESSAGES_MAX:
            messages.append(messages[self._chance.randrange(len(messages))])

    def hold_back(self) -> None:
        """One comes much later than others."""
        messages, late = self._messages, self._late
        if messages and len(late) < LATE_MAX:
            late.append(messages[self._chance.randrange(len(messages))])
        elif late:
            messages.append(late.pop(self._chance.randrange(len(late))))
