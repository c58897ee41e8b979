"""What a listener says to the server: what it listens to, and that it left."""

from typing import Any, NamedTuple

from oncemq.client.ticket import Ticket


class ListenSaid(NamedTuple):
    """A Listen: to be answered at once (it joins), or when there is a reason (it stands)."""

    topics: tuple[str, ...]
    number: int
    wait_ms: int
    joins: bool
    acknowledges: bool  # what is settled


class LeaveSaid(NamedTuple):
    """The word that a listener left."""

    number: int
    ticket: Ticket[Any]
