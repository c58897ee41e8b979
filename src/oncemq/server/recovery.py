"""From an opened log to the state that it stands for: the same fold at every start of a server.

First the values of the newest checkpoint, then each record behind its beginning, in order; then it
is checked that the log holds what the state says is kept (`completeness`). Nothing is decided and
nothing is written here: what a person agreed to lose is noted by the driver, once it runs.
"""

from collections.abc import Iterable
from typing import NamedTuple

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import Serial
from oncemq.protocol.records import Record
from oncemq.server import completeness
from oncemq.storage.log.recovery import OpenedLog


class Recovered(NamedTuple):
    """The state, out of how many records, and what of it is gone by agreement."""

    shard: Shard
    records: int
    missing: list[completeness.Missing]


def fold(
    shard: Shard,
    states: Iterable[bytes],
    checkpoint_end: Serial,
    replay: Iterable[tuple[Serial, Record]],
) -> int:
    """Bring an empty shard to where the log ends; how many records that took."""
    for blob in states:
        snapshot.restore(shard, blob)
    shard.checkpointed = checkpoint_end
    count = 0
    for serial, record in replay:
        shard.apply(record, serial)
        count += 1
    return count


def recover(opened: OpenedLog) -> Recovered:
    """The state of a log that was just opened; Corrupt when the log lacks what it should hold."""
    log = opened.log
    shard = Shard(log.tag, log.identity)
    records = fold(shard, opened.states, opened.checkpoint_end, opened.replay)
    shard.serial = log.last_serial
    agreed = log.agreed if log.generation > shard.generation else ()
    return Recovered(shard, records, completeness.take(shard, log, agreed=agreed))
