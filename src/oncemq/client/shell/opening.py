"""A client as it starts: its state, its engine, and its way to the server; both shells begin here.

Law: what was opened is closed again when the rest of it fails.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from oncemq.client.clock import monotonic_clock
from oncemq.client.engine.engine import Engine
from oncemq.client.settings import Settings, servers_from
from oncemq.client.state.state import State, open_state
from oncemq.transport.dealer import DealerSocket
from oncemq.transport.feed_subscriber import FeedSubscriber


def open_engine(
    server: str | Sequence[str],
    name: str | None,
    state: str | Path | State | None,
    *,
    timeout: float,
    outbox_bytes_max: int,
) -> Engine:
    """The engine of a client, connecting."""
    settings = Settings(servers_from(server), timeout, outbox_bytes_max, random.random)
    opened = state if isinstance(state, State) else open_state(name, state)
    link = DealerSocket()
    try:
        return Engine(settings, opened, link, monotonic_clock, FeedSubscriber())
    except BaseException:
        link.close()
        opened.close()
        raise
