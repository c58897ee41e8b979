"""The subscriber of the cluster's demo: each batch of orders and the cursor are one commit."""

import os
import sys
from pathlib import Path

from oncemq.cli.demo.ledger import DemoLedger
from oncemq.cli.demo.publisher import TIMEOUT, TOPIC
from oncemq.client.blocking.client import Client

NAME = "ledger"
LIMIT = 200


def subscribe_into(address: str, directory: Path, ledger_path: Path, *, doubles: bool) -> None:
    """Write orders into SQLite as they come. `doubles` plants a failure: a row too many."""
    parent, ledger = os.getppid(), DemoLedger(ledger_path)
    with Client(address, id=NAME, state=directory / NAME, timeout=TIMEOUT) as mq:
        mq.subscribe(TOPIC, start="earliest")
        while os.getppid() == parent:
            with mq.consume(TOPIC, limit=LIMIT, wait=1.0, into=ledger.connection) as messages:
                ledger.insert(messages)
                if doubles and messages:
                    ledger.insert(messages[:1])
                    doubles = False


if __name__ == "__main__":
    subscribe_into(
        sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), doubles=sys.argv[4:] == ["doubles"]
    )
