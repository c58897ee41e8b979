"""A publisher of the cluster's demo: puts an order, waits for its receipt, puts the next.

Told to stop, it ends after the receipt that it waits for. So what it noted is what was
acknowledged, all of it.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from oncemq.cli.demo.ledger import Order, encode_order
from oncemq.cli.demo.publisher import TIMEOUT, TOPIC, BoardFile
from oncemq.client.blocking.client import Client

PAUSE_SECONDS = 0.002  # so that a minute's worth can be read back in seconds


def publish_until_told(address: str, name: str, directory: Path, board: Path) -> None:
    """From the first order on, until SIGTERM, or until nobody watches any more."""
    told, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda _number, _frame: told.set())
    with Client(address, id=name, state=directory / name, timeout=TIMEOUT) as mq:
        notes, number = BoardFile(board), 0
        while not told.wait(PAUSE_SECONDS) and os.getppid() == parent:
            number += 1
            mq.put(TOPIC, encode_order(Order(name, number, cents=number * 7 % 10_000)))
            notes.write(number, mq.counters)


if __name__ == "__main__":
    publish_until_told(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
