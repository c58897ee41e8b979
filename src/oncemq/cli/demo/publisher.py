"""A publisher of the demo: puts its orders one by one, and may be killed at any moment.

It remembers nothing itself. What it has put is in its client's outbox or in the topic: a life
begins by sending what the last one left, and by asking the topic how far that was.
"""

import os
import sys
from pathlib import Path

import msgspec

from oncemq.cli.demo.ledger import Order, decode_order, encode_order
from oncemq.client.blocking.client import Client

TOPIC = "orders"
TIMEOUT = 60.0
FIELDS = 3
WIDTH = 8


class PublisherBoard(msgspec.Struct, frozen=True, array_like=True):
    """What one life of a publisher has done, as its parent sees it."""

    done: int = 0  # the number of the last order that is stored
    sends: int = 0
    duplicates: int = 0


class BoardFile:
    """Written in place, without a sync: a file outlives the process that was killed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, done: int, counters: dict[str, int]) -> None:
        """Replace what it says."""
        numbers = (done, counters["sends"], counters["duplicates"])
        raw = b"".join(number.to_bytes(WIDTH, "little") for number in numbers)
        os.pwrite(self._descriptor, raw, 0)


def read_board(path: Path) -> PublisherBoard:
    """What a life has done so far."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return PublisherBoard()
    if len(raw) < FIELDS * WIDTH:
        return PublisherBoard()
    cells = (raw[at : at + WIDTH] for at in range(0, FIELDS * WIDTH, WIDTH))
    return PublisherBoard(*(int.from_bytes(cell, "little") for cell in cells))


def last_number(address: str, name: str) -> int:
    """The number of this publisher's last order in the topic, 0 when it has none."""
    last = offset = 0
    with Client(address, timeout=TIMEOUT) as visitor:
        while messages := visitor.read(TOPIC, offset, limit=5_000):
            for message in messages:
                order = decode_order(message.payload)
                last = order.number if order.publisher == name else last
            offset = messages[-1].offset + 1
    return last


def publish(address: str, name: str, count: int, directory: Path, board: Path) -> None:
    """Put orders up to `count`, from wherever the last life was stopped."""
    parent = os.getppid()
    with Client(address, id=name, state=directory / name, timeout=TIMEOUT) as mq:
        mq.flush()
        number = last_number(address, name)
        notes = BoardFile(board)
        notes.write(number, mq.counters)
        while number < count and os.getppid() == parent:
            number += 1
            mq.put(TOPIC, encode_order(Order(name, number, cents=number * 7 % 10_000)))
            notes.write(number, mq.counters)


if __name__ == "__main__":
    publish(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
