"""One connection per process and server, made when first needed.

Spark forks its Python workers and uses them again for task after task, so a connection outlives
a task but never crosses a fork: it is looked up by the process that asks.
"""

import gc
import multiprocessing

from oncemq.client.blocking import Client

_clients: dict[tuple[int | None, str, float], Client] = {}


def client(server: str, timeout: float) -> Client:
    """This process's anonymous client of these servers."""
    key = multiprocessing.current_process().ident, server, timeout
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = Client(server, timeout=timeout)
        # Spark has a worker collect its garbage after every task. All that it has imported is
        # none, and looking through it takes longer than reading ten thousand rows does.
        gc.freeze()
    return found
