"""The real server, embedded: `with oncemq.testing.server() as address:`."""

import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from oncemq.assembly import Server
from oncemq.core.rules import Rules
from oncemq.storage.log import LogOptions


@contextmanager
def server(
    data: Path | None = None,
    *,
    bind: str = "tcp://127.0.0.1:*",
    rules: Rules | None = None,
    options: LogOptions | None = None,
) -> Generator[str]:
    """Run a server on a thread of this process; its address. Drains and stops at the end.

    Without `data` it works in a directory of its own, which goes with it.
    """
    with tempfile.TemporaryDirectory(prefix="oncemq-") as scratch:
        embedded = Server(
            data or Path(scratch), bind, rules=rules or Rules(), options=options or LogOptions()
        )
        thread = threading.Thread(target=embedded.run, name="oncemq-server", daemon=True)
        thread.start()
        try:
            yield embedded.address
        finally:
            embedded.stop()
            thread.join()
