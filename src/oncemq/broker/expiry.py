"""What time does to the state: anonymous guests are forgotten, retention lets go.

Law: nothing that an acknowledged promise rests on is dropped. A producer with state is kept
as long as its topic; only process-long ones go, a day after their last word, idempotency keys
and open stages after the time that was stated for them. The subscriptions of an anonymous client
end with its connection, or soon after. What is done in one go is bounded.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from oncemq.broker.state.ages import Reading
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Topic
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Micros, Offset, ProducerId, TopicId, is_anonymous
from oncemq.protocol.records import (
    ClientLeased,
    KeysForgotten,
    OwnersForgotten,
    PatternUnsubscribed,
    ProducersForgotten,
    Record,
    StageDropped,
    SubscriptionEnded,
    TopicTrimmed,
)

HOUR = Micros(3_600_000_000)
DAY = Micros(86_400_000_000)
BATCH = 1_000  # guests dropped in one go, so that a tick stays short
TOPICS_A_LOOK = 1_000  # at most, whose keys or retention are looked at in one go
NAMES = 200  # the same, where they have names of up to 255 bytes
# A guest that says nothing is looked for after the one, and gone after the other: a connection
# that breaks has that long to come back and be used.
SILENT_MICROS = 60_000_000
GONE_MICROS = 120_000_000
NO_ROUTE = b""

QUIET_MICROS = 1_800_000_000  # without a timestamp: then the time is noted
NOTED_MICROS = 1_000_000  # that timestamps passed over: a little less is not worth a record

UPKEEP_BYTES = 256 << 10  # of facts, in one go
FACT_BYTES_MAX = 64 << 10
FRAME_BYTES = 64

_encode = msgspec.msgpack.Encoder().encode


class Calendar(NamedTuple):
    """Where other readings of the clock stand, beside the time that waits go by.

    Timestamps follow the date, wherever it is set to. `passed`: how much time they have passed over
    that was none, since the server started; ages leave it out.
    """

    timestamps: int = 0
    passed: int = 0


class Rounds:
    """Looks at all topics of a kind in turn, some at a time: a tick stays short with a million."""

    def __init__(self) -> None:
        self._left: list[TopicId] = []

    def some(self, topics: Collection[TopicId]) -> list[TopicId]:
        """The next ones; some may be gone since the round began."""
        if not self._left:
            self._left = list(topics)
        found = self._left[-TOPICS_A_LOOK:]
        del self._left[-TOPICS_A_LOOK:]
        return found


class Visit(NamedTuple):
    """When a guest with subscriptions was last there, and the way back to it."""

    moment: Micros
    route: bytes


class Expiry:
    """Housekeeping of a shard, decided by the clock it is given."""

    def __init__(self, shard: Shard, rules: ServerLimits) -> None:
        self._shard = shard
        self._key_micros = rules.idempotency_ms * 1000
        self._stage_micros = rules.stage_ms * 1000
        self._keyed = Rounds()
        self._visits: OrderedDict[ClientId, Visit] = OrderedDict()  # the longest silent first
        self._leases_from = Micros(0)  # no lease ends before

    def visited(self, client: ClientId, route: bytes, now: Micros) -> None:
        """A guest with subscriptions spoke, or its connection is there."""
        self._visits[client] = Visit(now, route)
        self._visits.move_to_end(client)

    def silent(self, now: Micros) -> list[tuple[ClientId, bytes]]:
        """Guests that said nothing for a while, not too many: are they connected?"""
        found: list[tuple[ClientId, bytes]] = []
        for client, visit in islice(self._visits.items(), BATCH):
            if visit.moment + SILENT_MICROS > now:
                break
            found.append((client, visit.route))
        return found

    def due(self, now: Micros, ages: Reading) -> Iterator[Record]:
        """Facts about guests that are gone, keys and stages that had their time.

        Whoever writes them may stop after any of them: the rest is due the next time. None is
        larger than `FACT_BYTES_MAX`.
        """
        yield from self._guests_gone(now)
        a_day_ago = ages.before(DAY)
        gone: dict[TopicId, list[ProducerId]] = {}
        for (topic_id, producer), seen in islice(self._shard.guests.items(), BATCH):
            if seen > a_day_ago:
                break
            gone.setdefault(topic_id, []).append(producer)
        for topic_id, producers in gone.items():
            yield ProducersForgotten(topic_id, tuple(producers))
        yield from self._leases_over(now, ages)
        if owners := self._shard.owners.silent_since(a_day_ago, NAMES):
            yield OwnersForgotten(owners)
        for stage in self._shard.stages.silent_since(ages.before(self._stage_micros), BATCH):
            yield StageDropped(stage.id)
        self._shard.stages.release(self._shard.low_of)
        forgotten = ages.before(self._key_micros)
        for topic_id in self._keyed.some(self._shard.keys):
            keys = self._shard.keys.get(topic_id)
            if keys and (over := keys.older_than(forgotten, BATCH)):
                yield KeysForgotten(topic_id, over)

    def _guests_gone(self, now: Micros) -> Iterator[Record]:
        """Guests whose connections are gone for too long: first the patterns, then all they made.

        A pattern that is still there would have all it made again after a power cut.
        """
        while self._visits:
            client, visit = next(iter(self._visits.items()))
            if visit.moment + GONE_MICROS > now:
                return
            for pattern in list(self._shard.patterns.of(client)):
                yield PatternUnsubscribed(client, pattern)
            for topic_id in list(self._shard.by_client.get(client, ())):
                yield SubscriptionEnded(topic_id, client)
            del self._visits[client]

    def _leases_over(self, now: Micros, ages: Reading) -> Iterator[Record]:
        """Clients that did not renew their leases in time: the patterns first, the lease last."""
        for client in self._shard.leases.over(ages) if now >= self._leases_from else ():
            for pattern in list(self._shard.patterns.of(client)):
                yield PatternUnsubscribed(client, pattern)
            for topic_id in list(self._shard.by_client.get(client, ())):
                yield SubscriptionEnded(topic_id, client)
            yield ClientLeased(client, 0, ages.now, "")

    def recovered(self, now: Micros) -> None:
        """After a restart no guest is connected yet: each has a while to come back.

        So has whoever has a lease: an hour, in which no lease ends.
        """
        self._leases_from = Micros(now + HOUR)
        for client in (*self._shard.by_client, *self._shard.patterns.by_client):
            if is_anonymous(client):
                self.visited(client, NO_ROUTE, now)


def size_of(record: Record) -> int:
    """How many bytes of the log a fact takes, at most."""
    return FRAME_BYTES + len(_encode(record))


def trim(topic: Topic, low: Offset) -> TopicTrimmed | None:
    """The fact that retention lets go below `low`, never of what is not settled."""
    low = min(low, topic.settled)
    return TopicTrimmed(topic.id, low) if low > topic.trimmed else None


def retained_from(
    topic: Topic, extents: Iterable[tuple[Offset, Offset, Micros, int]], ages: Reading
) -> Offset:
    """From where retention keeps, given (first, end, last timestamp, bytes), oldest first.

    Whole extents go or stay: a message may be kept longer than asked, never shorter.
    """
    retention = topic.retention
    if retention.forever or not retention.keeps:
        return topic.trimmed
    spans = list(extents)
    old = ages.before(retention.keep_ms * 1000)
    beyond = sum(size for _, _, _, size in spans)
    low = topic.trimmed
    for _, end, newest, size in spans:
        too_old = not retention.keep_ms or newest <= old
        too_much = not retention.keep_bytes or beyond - size >= retention.keep_bytes
        if not (too_old and too_much):
            break
        beyond -= size
        low = end
    return Offset(max(low, topic.trimmed))
