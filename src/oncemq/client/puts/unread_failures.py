"""Puts that failed and whose receipt nobody looked at: `flush` and `close` say it instead."""

from typing import Any

from oncemq.client.ticket import Ticket
from oncemq.errors import OnceMQError

KEPT = 1_000  # the first of them is raised: more would only matter if all of these were looked at


class Unseen:
    """The failures that are still to be told."""

    def __init__(self) -> None:
        self._failed: list[Ticket[Any]] = []

    def __len__(self) -> int:
        return len(self._failed)

    def fail(self, ticket: Ticket[Any], error: OnceMQError) -> None:
        """Whoever looks at the ticket learns it there, everyone else by `take`."""
        ticket.fail(error)
        if len(self._failed) >= KEPT:
            self._failed = [each for each in self._failed if not each.looked_at]
        if not ticket.looked_at and len(self._failed) < KEPT:
            self._failed.append(ticket)

    def take(self) -> OnceMQError | None:
        """The first that nobody has looked at; with that, all are told."""
        failed, self._failed = self._failed, []
        return next((ticket.error for ticket in failed if not ticket.looked_at), None)
