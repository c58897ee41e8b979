"""What a replica's directory holds, in three values that are equal where replicas are equal.

The end of the log by its chain value; the state that is folded from it; and the messages behind
compaction, however their batches were joined. The directory is copied first: looking changes it.
"""

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.cluster.replica_directory import Home, ReplicaDirectory
from oncemq.protocol.names import Serial
from oncemq.protocol.replicas.messages import Place
from oncemq.storage.disk import LocalDisk, LockingDisk
from oncemq.storage.log.log import Log, LogOptions
from oncemq.wire import batch

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class ReplicaDigest:
    """Of one directory."""

    tail: Place
    state: str
    messages: dict[str, tuple[int, int, str]]  # by topic: from, to, digest


def digest_of(directory: Path) -> ReplicaDigest:
    """Of a replica whose server is gone: all that its log has counts as committed."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "data"
        shutil.copytree(directory, copy)
        return digest_on(LocalDisk(), str(copy))


def digest_on(disk: LockingDisk, directory: str) -> ReplicaDigest:
    """The same on any disk, in place."""
    opened = ReplicaDirectory(
        Home(disk, directory, LogOptions(), token_bytes), cut_to=None, opening=None
    )
    try:
        opened.apply_to(Serial(opened.log.last_serial))
        messages = message_digests(opened.shard, opened.log)
        return ReplicaDigest(opened.tail, state_digest(opened.shard), messages)
    finally:
        opened.close()


def state_digest(shard: Shard) -> str:
    """Of everything that a checkpoint would hold, in whatever order; of a copy, which it changes.

    Each replica forgets stages by itself once nothing of them is of use to it: they are left out.
    """
    stages = shard.stages
    stages.leaving.clear()
    stages.release(shard.low_of, most=1 << 30)
    found = hashlib.sha256()
    for blob in sorted(snapshot.capture(shard)):
        found.update(len(blob).to_bytes(8, "little") + blob)
    return found.hexdigest()


def message_digests(shard: Shard, log: Log) -> dict[str, tuple[int, int, str]]:
    """Of what each topic keeps: offset, producer, sequence, time and bytes of each message."""
    digests: dict[str, tuple[int, int, str]] = {}
    for topic in shard.topics.values():
        found, offset = hashlib.sha256(), topic.low
        while offset < topic.end:
            stored = log.read_many(
                topic.id, offset, count_max=topic.end - offset, bytes_max=READ_BYTES
            )
            assert stored, f"{topic.name}@{offset} is kept and in no segment"
            place = offset
            for each in stored:
                record = each.record
                payloads = batch.payloads_of(each.body, record.count, record.columns)
                place = record.first_offset
                for run in record.runs:
                    for number in range(run.count):
                        if place >= offset:
                            head = f"{place} {run.producer.hex()} {run.first_sequence + number} "
                            payload = payloads[place - record.first_offset]
                            found.update(f"{head}{run.timestamp} {len(payload)} ".encode())
                            found.update(payload)
                        place += 1
            offset = place
        digests[topic.name] = int(topic.low), int(topic.end), found.hexdigest()
    return digests
