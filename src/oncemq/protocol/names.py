"""The numbers and names everything else speaks in, and the rules a name must keep.

Law: a name that passed here is 1 to 255 bytes of UTF-8 in NFC without control
characters; it never becomes a file name.
"""

import unicodedata
from hashlib import blake2b
from typing import NewType

TopicId = NewType("TopicId", int)  # never used twice, even for the same name
SubscriptionId = NewType("SubscriptionId", int)  # never used twice, even for the same client
ProducerId = NewType("ProducerId", bytes)  # 16 bytes chosen by the client
ClientId = NewType("ClientId", str)
Offset = NewType("Offset", int)  # place in a topic, from 0
Sequence = NewType("Sequence", int)  # a producer's number on a topic, from 1
Serial = NewType("Serial", int)  # place of a record in the shard's log, from 1
Epoch = NewType("Epoch", int)  # grows when a client starts; higher fences lower
Generation = NewType("Generation", int)  # of the log: grows when it goes on from an earlier state
LeaderEpoch = NewType("LeaderEpoch", int)  # of a shard: grows with each leader; higher fences lower
ServerId = NewType("ServerId", str)  # of a server of a cluster
ShardId = NewType("ShardId", int)  # never used twice in a cluster
Micros = NewType("Micros", int)  # microseconds since 1970, given at append

NAME_BYTES_MAX = 255
PRODUCER_BYTES = 16
ANONYMOUS = "_anonymous-"  # prefix of client ids that live as long as their process
ANONYMOUS_EPOCH = Epoch(0)
STAGE_NAME = ""  # what the checksums of a stage's batches begin with; no topic has this name
NO_SUBSCRIPTION = SubscriptionId(0)  # none has this number
PIPELINES = "_pipelines"  # the status topic of Spark's pipelines
SYSTEM_TOPICS = frozenset({PIPELINES})  # that clients may create, by these names and no others
EPOCH_MAX = Epoch(1 << 62)  # the log and the client's database hold it and the next


def name_fault(name: str, *, what: str = "topic name") -> str | None:
    """Why `name` cannot be used, or None. System names (leading `_`) pass: see `is_system`."""
    if not name:
        return f"the {what} is empty; give it 1 to {NAME_BYTES_MAX} bytes"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"the {what} {name!r} is not valid UTF-8"
    if size > NAME_BYTES_MAX:
        return f"the {what} has {size} bytes; {NAME_BYTES_MAX} at most"
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        return f"the {what} {name!r} has a control character; leave it out"
    if not unicodedata.is_normalized("NFC", name):
        return f"the {what} {name!r} is not in Unicode form NFC; normalize it first"
    return None


def key_producer(key: str) -> ProducerId:
    """Who numbers the messages put under an idempotency key: the key itself, from 1."""
    return ProducerId(blake2b(key.encode(), digest_size=16, person=b"oncemq-key").digest())


def owner_producer(owner: str) -> ProducerId:
    """Who numbers the messages that an owner's commits publish on a topic."""
    return ProducerId(blake2b(owner.encode(), digest_size=16, person=b"oncemq-owner").digest())


def is_system(name: str) -> bool:
    """Whether the name is the system's: users may read such a topic, not make one up."""
    return name.startswith("_")


def is_anonymous(client: str) -> bool:
    """Whether the client id belongs to a client without durable state."""
    return client.startswith(ANONYMOUS)
