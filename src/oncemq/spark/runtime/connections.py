"""One connection per process and server, made when first needed.

Spark forks its Python workers and uses them again for task after task, so a connection outlives
a task but never crosses a fork: it is looked up by the process that asks.
"""

import gc
import multiprocessing
from functools import cache

from oncemq.client.blocking.client import Client

_clients: dict[tuple[int | None, str, float], Client] = {}


def client(server: str, timeout: float) -> Client:
    """This process's anonymous client of these servers."""
    key = multiprocessing.current_process().ident, server, timeout
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = Client(server, timeout=timeout)
        settle_in()
    return found


@cache
def settle_in() -> None:
    """Let this Python process of Spark's look for garbage only in what comes from now on.

    Spark has each of them collect garbage after every piece of work. What it has imported by now
    is none, and to look through all that takes longer than to read ten thousand rows.
    """
    gc.freeze()
