"""Questions to a server without an id or a state: for commands that are about other clients."""

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from oncemq.client.blocking.runner import Runner
from oncemq.client.clock import monotonic_clock
from oncemq.client.engine.engine import Engine
from oncemq.client.settings import Settings, servers_from
from oncemq.client.state.state import open_state
from oncemq.client.verbs import messages
from oncemq.protocol.requests import Request
from oncemq.transport.dealer import DealerSocket

Answer = Callable[[Request], Any]  # the reply, or the exception for a refusal


@contextmanager
def asking(server: str | list[str], timeout: float) -> Generator[Answer]:
    """A way to ask, as long as the block lasts."""
    settings = Settings(servers_from(server), timeout, 0, random.random)
    engine = Engine(settings, open_state(None, None), DealerSocket(), monotonic_clock)
    turns = Runner(engine, timeout)
    try:
        yield lambda request: turns.run(messages.ask(engine, lambda _: request))
    finally:
        turns.close()
        engine.close()
