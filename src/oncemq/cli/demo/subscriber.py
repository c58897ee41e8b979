"""The subscriber of the demo: writes orders into SQLite, and may be killed at any moment.

A crash between the ledger's commit and the client's settling brings messages again; the cursor
in the ledger has moved with their rows, so it wins, and they are dropped.
"""

import os
import sys
import tempfile
from pathlib import Path

from oncemq.cli.demo.ledger import DemoLedger
from oncemq.cli.demo.publisher import TIMEOUT, TOPIC
from oncemq.client.blocking.client import Client

NAME = "ledger"
LIMIT = 20  # small, so that there are many moments to be killed in


def subscribe(address: str, directory: Path, ledger_path: Path, *, forgetful: bool) -> None:
    """Apply orders as they come, until killed or left alone."""
    parent = os.getppid()
    ledger = DemoLedger(ledger_path, forgetful=forgetful)
    state = tempfile.mkdtemp(dir=directory) if forgetful else directory / NAME
    name = f"{NAME}-{os.getpid()}" if forgetful else NAME
    with Client(address, id=name, state=state, timeout=TIMEOUT) as mq:
        mq.subscribe(TOPIC, start="earliest")
        while os.getppid() == parent:
            with mq.consume(TOPIC, limit=LIMIT, wait=1.0) as messages:
                if messages:
                    ledger.apply(messages)


if __name__ == "__main__":
    subscribe(
        sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), forgetful=sys.argv[4:] == ["forgetful"]
    )
