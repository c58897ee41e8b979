"""The facts the log holds. A new fact is a new record type, never a changed one.

Law: folding the records of a log in order gives the broker's state, always the same.
The payload bytes of `MessagesStored` and nothing else travel beside the record, as its body.
"""

from typing import get_args

import msgspec

from oncemq.protocol.commit_records import (
    Committed,
    ContentsCommitted,
    OwnerBound,
    OwnerBoundAlone,
    OwnersForgotten,
    PartKept,
    StageDropped,
    StageMade,
    StagesEnded,
)
from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Generation,
    LeaderEpoch,
    Micros,
    Offset,
    ProducerId,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.structs import RecordStruct, Run


class Retention(msgspec.Struct, frozen=True, array_like=True):
    """How long settled messages stay: not at all, for a time, up to a size, forever."""

    keep_ms: int = 0
    keep_bytes: int = 0
    forever: bool = False

    @property
    def keeps(self) -> bool:
        """Whether anything is kept beyond what subscriptions still need."""
        return self.forever or self.keep_ms > 0 or self.keep_bytes > 0


class TopicCreated(RecordStruct, frozen=True, array_like=True):
    kind = 1
    topic_id: TopicId
    name: str
    retention: Retention
    timestamp: Micros


class TopicAwaited(TopicCreated, frozen=True, array_like=True):
    """A topic that patterns wait for: it is made with a subscription for each, from its beginning.

    One fact, or a crash could leave the topic without them. Each has the next identity.
    """

    kind = 29
    clients: tuple[ClientId, ...]


class TopicConfigured(RecordStruct, frozen=True, array_like=True):
    kind = 2
    topic_id: TopicId
    retention: Retention


class TopicDeleted(RecordStruct, frozen=True, array_like=True):
    kind = 3
    topic_id: TopicId


class TopicTrimmed(RecordStruct, frozen=True, array_like=True):
    """Retention let go of everything below `low`."""

    kind = 4
    topic_id: TopicId
    low: Offset


class MessagesStored(RecordStruct, frozen=True, array_like=True):
    """A batch. Its body is columnar (see wire.batch); the record never looks inside."""

    kind = 5
    topic_id: TopicId
    first_offset: Offset
    count: int
    columns: int
    checksum: int  # of the body, as the publisher computed it: the retry must match it
    runs: tuple[Run, ...]


class MessagesDiscarded(RecordStruct, frozen=True, array_like=True):
    """A put nobody subscribes to: the sequence advances, the messages are not kept."""

    kind = 6
    topic_id: TopicId
    checksum: int
    run: Run


class SubscriptionMade(RecordStruct, frozen=True, array_like=True):
    kind = 7
    topic_id: TopicId
    subscription_id: SubscriptionId
    client: ClientId
    cursor: Offset
    timestamp: Micros


class SubscriptionEnded(RecordStruct, frozen=True, array_like=True):
    kind = 8
    topic_id: TopicId
    client: ClientId


class CursorMoved(RecordStruct, frozen=True, array_like=True):
    """Everything below `cursor` is settled: the cursor names the NEXT offset."""

    kind = 9
    topic_id: TopicId
    client: ClientId
    cursor: Offset


class ClientOpened(RecordStruct, frozen=True, array_like=True):
    """A client with state started: its epoch fences every earlier one."""

    kind = 10
    client: ClientId
    client_epoch: Epoch
    nonce: int


class ClockNoted(RecordStruct, frozen=True, array_like=True):
    """What time it is. Behind `after`, timestamps passed over so many microseconds that were none.

    Written when the clock was set forward, and now and then when nothing else has a timestamp.
    """

    kind = 45
    after: Micros
    passed: int
    timestamp: Micros


class ClientLeased(RecordStruct, frozen=True, array_like=True):
    """A client's subscriptions end when it is not heard of for so long; 0: they stay."""

    kind = 44
    client: ClientId
    lease_ms: int
    timestamp: Micros
    about: str  # whose they are, in the client's words


class ProducersForgotten(RecordStruct, frozen=True, array_like=True):
    """Anonymous producers of a topic that were silent for long enough."""

    kind = 11
    topic_id: TopicId
    producers: tuple[ProducerId, ...]


class Marked(RecordStruct, frozen=True, array_like=True):
    """Nothing new: its frame carries the mark that everything before it is durable.

    Written when the log has come to rest, so that damage to the last records is told from a
    torn tail.
    """

    kind = 12


class MessagesKeyed(MessagesStored, frozen=True, array_like=True):
    """A batch put under an idempotency key: the key and what it stands for, in one frame."""

    kind = 13
    key: str


class KeyedDiscarded(MessagesDiscarded, frozen=True, array_like=True):
    """A put under an idempotency key that nobody subscribes to: the key is remembered."""

    kind = 14
    key: str


class KeysForgotten(RecordStruct, frozen=True, array_like=True):
    """Idempotency keys of a topic whose time is over, each by the producer it stands for."""

    kind = 15
    topic_id: TopicId
    keys: tuple[ProducerId, ...]


class MessagesStaged(MessagesStored, frozen=True, array_like=True):
    """A batch of a stage, under the stage's id: no reader sees it before a commit."""

    kind = 21
    size: int  # of the body


class PatternSubscribed(RecordStruct, frozen=True, array_like=True):
    """A client wants every topic that matches, also those made later, from their beginning."""

    kind = 23
    subscription_id: SubscriptionId
    client: ClientId
    pattern: str
    timestamp: Micros


class PatternUnsubscribed(RecordStruct, frozen=True, array_like=True):
    """No longer. The subscriptions it made end with facts of their own."""

    kind = 24
    client: ClientId
    pattern: str


class SubscriptionDerived(RecordStruct, frozen=True, array_like=True):
    """A subscription that a pattern made to a topic that was there before it.

    SubscriptionMade is one that was asked for by name.
    """

    kind = 25
    topic_id: TopicId
    subscription_id: SubscriptionId
    client: ClientId
    cursor: Offset
    timestamp: Micros


class MessagesLost(RecordStruct, frozen=True, array_like=True):
    """Messages of a topic, or of a stage, that are gone for good: a person agreed to that."""

    kind = 33
    topic_id: TopicId
    first_offset: Offset
    end_offset: Offset


class ClientForgotten(RecordStruct, frozen=True, array_like=True):
    """An id that nobody uses is remembered no longer: whoever comes with it is new."""

    kind = 36
    client: ClientId
    client_epoch: Epoch = Epoch(0)  # its newest: no id begins anew at or below it


class GenerationBegan(RecordStruct, frozen=True, array_like=True):
    """The log goes on from an earlier state: loss was accepted, or a backup restored.

    Whatever clients saw of a topic beyond where it ends here is of a future that was lost.
    """

    kind = 32
    generation: Generation
    timestamp: Micros


class EpochBegan(RecordStruct, frozen=True, array_like=True):
    """A server leads the shard: the first record of its epoch. A server alone writes none."""

    kind = 46
    leader_epoch: LeaderEpoch
    leader: str


Record = (
    TopicCreated
    | TopicAwaited
    | TopicConfigured
    | TopicDeleted
    | TopicTrimmed
    | MessagesStored
    | MessagesDiscarded
    | SubscriptionMade
    | SubscriptionEnded
    | CursorMoved
    | ClientOpened
    | ClientLeased
    | ClockNoted
    | ProducersForgotten
    | Marked
    | MessagesKeyed
    | KeyedDiscarded
    | KeysForgotten
    | StageMade
    | MessagesStaged
    | StageDropped
    | StagesEnded
    | Committed
    | ContentsCommitted
    | PartKept
    | OwnersForgotten
    | OwnerBound
    | OwnerBoundAlone
    | PatternSubscribed
    | PatternUnsubscribed
    | SubscriptionDerived
    | MessagesLost
    | ClientForgotten
    | GenerationBegan
    | EpochBegan
)
RECORDS: dict[int, type[Record]] = {record.kind: record for record in get_args(Record)}

# What is about one topic, and changes nothing else.
TopicRecord = (
    MessagesStored
    | CursorMoved
    | MessagesDiscarded
    | SubscriptionMade
    | SubscriptionDerived
    | SubscriptionEnded
    | TopicConfigured
    | TopicTrimmed
    | TopicDeleted
    | KeysForgotten
    | ProducersForgotten
    | MessagesLost
)
