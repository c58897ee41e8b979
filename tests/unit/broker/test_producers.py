"""The judgement of a put by its sequence, as a table."""

import pytest

from oncemq.broker.state.producers import (
    Conflict,
    Duplicate,
    Gap,
    New,
    Producer,
    Recent,
    judge,
)
from oncemq.protocol.limits import PUTS_UNDER_WAY_MAX
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence
from oncemq.protocol.structs import Run

PRODUCER = ProducerId(b"p" * 16)


def recent(first: int, count: int, checksum: int = 1) -> Recent:
    return Recent(Sequence(first), count, Offset(first - 1), checksum)


def producer(*puts: Recent) -> Producer:
    known = Producer(anonymous=False)
    for put in puts:
        run = Run(put.messages, PRODUCER, Epoch(1), put.first_sequence, Micros(0))
        known = known.after(run, put.first_offset, put.checksum)
    return known


def full() -> Producer:
    """Has put 2 messages at a time, once more than it keeps receipts of."""
    return producer(*(recent(1 + 2 * n, 2) for n in range(PUTS_UNDER_WAY_MAX + 1)))


TWO_PUTS = producer(recent(1, 3), recent(4, 2))  # sequences 1 to 3, then 4 and 5

TABLE = [
    # who, first, count, checksum, verdict
    (None, 1, 1, 1, New()),
    (None, 2, 1, 1, Gap(Sequence(1))),
    (TWO_PUTS, 6, 9, 1, New()),
    (TWO_PUTS, 7, 1, 1, Gap(Sequence(6))),
    (TWO_PUTS, 4, 2, 1, Duplicate(recent(4, 2))),
    (TWO_PUTS, 1, 3, 1, Duplicate(recent(1, 3))),
    (TWO_PUTS, 4, 2, 2, Conflict),
    (TWO_PUTS, 4, 1, 1, Conflict),
    (TWO_PUTS, 1, 5, 1, Conflict),
    (TWO_PUTS, 2, 2, 1, Conflict),
    (TWO_PUTS, 5, 1, 1, Conflict),
    (TWO_PUTS, 5, 2, 1, Conflict),
    (TWO_PUTS, 4, 3, 1, Conflict),
    (full(), 1, 2, 1, Duplicate(None)),
    (full(), 1, 2, 9, Duplicate(None)),
    (full(), 3, 2, 1, Duplicate(recent(3, 2))),
]


@pytest.mark.parametrize(("known", "first", "count", "checksum", "verdict"), TABLE)
def test_a_put_is_judged_by_its_sequence(known, first, count, checksum, verdict) -> None:
    found = judge(known, first=Sequence(first), count=count, checksum=checksum)
    if verdict is Conflict:
        assert isinstance(found, Conflict)
    else:
        assert (type(found), found) == (type(verdict), verdict)


def test_only_so_many_receipts_are_kept() -> None:
    known = full()
    assert len(known.recent) == PUTS_UNDER_WAY_MAX
    assert known.last_sequence == 2 * (PUTS_UNDER_WAY_MAX + 1)
