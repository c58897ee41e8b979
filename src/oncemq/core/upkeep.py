"""What time does to the state: anonymous guests are forgotten, retention lets go.

Law: nothing that an acknowledged promise rests on is dropped. A producer with state is kept
as long as its topic; only process-long ones go, a day after their last word, idempotency keys
and open stages after the time that was stated for them.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from oncemq.core.names import ClientId, Micros, Offset, ProducerId, TopicId, is_anonymous
from oncemq.core.records import (
    KeysForgotten,
    OwnersForgotten,
    PatternUnsubscribed,
    ProducersForgotten,
    Record,
    StageDropped,
    SubscriptionEnded,
    TopicTrimmed,
)
from oncemq.core.rules import Rules
from oncemq.core.shard import Shard
from oncemq.core.topic import Topic

DAY = Micros(86_400_000_000)
BATCH = 1_000  # guests dropped in one go, so that a tick stays short


class Calendar(NamedTuple):
    """Where other readings of the clock stand, beside the time that waits go by.

    Timestamps follow the date, wherever it is set to; ages grow no faster than time passes.
    """

    timestamps: int = 0
    ages: int = 0


class Upkeep:
    """Housekeeping of a shard, decided by the clock it is given."""

    def __init__(self, shard: Shard, rules: Rules) -> None:
        self._shard = shard
        self._key_micros = rules.idempotency_ms * 1000
        self._stage_micros = rules.stage_ms * 1000
        self._visits: dict[ClientId, Micros] = {}

    def visited(self, client: ClientId, now: Micros) -> None:
        """A guest with subscriptions spoke."""
        self._visits[client] = now

    def due(self, now: Micros, aged: Micros) -> Iterator[Record]:
        """Facts about guests that stayed away for a day, keys and stages that had their time.

        `aged`: the time by which what has a timestamp is that old.
        """
        gone: dict[TopicId, list[ProducerId]] = {}
        for (topic_id, producer), seen in islice(self._shard.guests.items(), BATCH):
            if seen + DAY > aged:
                break
            gone.setdefault(topic_id, []).append(producer)
        for topic_id, producers in gone.items():
            yield ProducersForgotten(topic_id, tuple(producers))
        for client in [each for each, seen in self._visits.items() if seen + DAY <= now]:
            del self._visits[client]
            for topic_id in list(self._shard.by_client.get(client, ())):
                yield SubscriptionEnded(topic_id, client)
            for pattern in list(self._shard.patterns.of(client)):
                yield PatternUnsubscribed(client, pattern)

        if owners := self._shard.owners.silent_since(Micros(aged - DAY), BATCH):
            yield OwnersForgotten(owners)
        for stage in self._shard.stages.silent_since(Micros(aged - self._stage_micros), BATCH):
            yield StageDropped(stage.id)
        self._shard.stages.release(self._shard.low_of)
        for topic_id, keys in list(self._shard.keys.items()):
            if over := keys.older_than(Micros(aged - self._key_micros), BATCH):
                yield KeysForgotten(topic_id, over)

    def recovered(self, now: Micros) -> None:
        """After a restart every guest has a day from now."""
        for client in (*self._shard.by_client, *self._shard.patterns.by_client):
            if is_anonymous(client):
                self._visits[client] = now


def trim(topic: Topic, low: Offset) -> TopicTrimmed | None:
    """The fact that retention lets go below `low`, never of what is not settled."""
    low = min(low, topic.settled)
    return TopicTrimmed(topic.id, low) if low > topic.trimmed else None


def retained_from(
    topic: Topic, extents: Iterable[tuple[Offset, Offset, Micros, int]], now: Micros
) -> Offset:
    """From where retention keeps, given (first, end, last timestamp, bytes), oldest first.

    Whole extents go or stay: a message may be kept longer than asked, never shorter.
    """
    retention = topic.retention
    if retention.forever or not retention.keeps:
        return topic.trimmed
    spans = list(extents)
    beyond = sum(size for _, _, _, size in spans)
    low = topic.trimmed
    for _, end, newest, size in spans:
        too_old = not retention.keep_ms or newest + retention.keep_ms * 1000 <= now
        too_much = not retention.keep_bytes or beyond - size >= retention.keep_bytes
        if not (too_old and too_much):
            break
        beyond -= size
        low = end
    return Offset(max(low, topic.trimmed))
