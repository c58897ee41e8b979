"""One topic: its end, who subscribes, which producers it knows, what it may let go.

Laws: offsets are dense from 0; `visible` never passes what is durable; nothing at or above
the lowest cursor is free (G4); without subscriptions and retention nothing is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from oncemq.broker.state.producers import Producer, Recent
from oncemq.protocol.lost_ranges import Holes
from oncemq.protocol.names import (
    ClientId,
    Generation,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    Serial,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import Retention, TopicAwaited, TopicCreated

ENDS_KEPT = 16  # generations of the log whose beginnings a topic remembers one by one


PRODUCERS_A_VALUE = 500  # of a checkpoint: about a millisecond
UNKNOWN = Offset(-1)


@dataclass(slots=True)
class Subscription:
    """A durable name on a topic; `cursor` is the next offset it will get."""

    id: SubscriptionId
    client: ClientId
    cursor: Offset
    derived: bool = False  # by a pattern, not by name
    made: Serial = field(default=Serial(0), compare=False)  # the record that made it, if not older
    began: Offset = UNKNOWN  # the lowest cursor it is known to have had

    def __post_init__(self) -> None:
        if self.began == UNKNOWN:
            self.began = self.cursor  # it is made here, or began no later than that


@dataclass(slots=True)
class Topic:
    """The state of one topic, a fold of its records."""

    id: TopicId
    name: str
    retention: Retention
    created: Micros
    end: Offset = Offset(0)
    visible: Offset = Offset(0)  # end as of the last sync; what readers may see
    trimmed: Offset = Offset(0)  # retention let go of everything below
    last_serial: Serial = Serial(0)  # of the newest record about this topic
    configured: Serial = Serial(0)  # of the one that its retention is from
    ends: tuple[tuple[Generation, Offset], ...] = ()  # where it ended when a generation began
    producers: dict[ProducerId, Producer] = field(default_factory=dict[ProducerId, Producer])
    subscriptions: dict[ClientId, Subscription] = field(
        default_factory=dict[ClientId, Subscription]
    )
    lost: Holes = field(default_factory=Holes)
    # The lowest cursor, and how many subscriptions stand there; 0: it is to be looked for.
    _lowest: Offset = field(default=Offset(0), compare=False)
    _slowest: int = field(default=0, compare=False)

    @property
    def wanted(self) -> bool:
        """Whether a put is stored: someone subscribes, or retention keeps it."""
        return bool(self.subscriptions) or self.retention.keeps

    @property
    def low(self) -> Offset:
        """The lowest offset that is kept."""
        settled = self.settled
        if self.retention.keeps:
            return min(self.trimmed, settled)
        return max(self.trimmed, settled)

    @property
    def settled(self) -> Offset:
        """Below this every subscription is done."""
        if not self.subscriptions:
            return self.end
        if not self._slowest:
            cursors = [each.cursor for each in self.subscriptions.values()]
            self._lowest = min(cursors)
            self._slowest = cursors.count(self._lowest)
        return self._lowest

    def subscribe(self, subscription: Subscription) -> None:
        """Somebody subscribes, or asks by name for what a pattern made: then it began before."""
        there = self.subscriptions.get(subscription.client)
        if there is not None and there.id == subscription.id:
            subscription.began = there.began
        if there is not None:
            self._leaves(there.cursor)
        self.subscriptions[subscription.client] = subscription
        self._comes(subscription.cursor)

    def unsubscribe(self, client: ClientId) -> None:
        """A subscription ends."""
        self._leaves(self.subscriptions.pop(client).cursor)

    def move(self, client: ClientId, cursor: Offset) -> None:
        """A subscription has settled what is below its cursor."""
        subscription = self.subscriptions[client]
        self._leaves(subscription.cursor)
        subscription.cursor = cursor
        self._comes(cursor)

    def _comes(self, cursor: Offset) -> None:
        """One stands there now: nobody else has to be looked at, where the lowest is known."""
        if self._slowest and cursor < self._lowest:
            self._lowest, self._slowest = cursor, 1
        elif self._slowest and cursor == self._lowest:
            self._slowest += 1

    def _leaves(self, cursor: Offset) -> None:
        """One stands there no longer: only the last of the slowest makes the lowest unknown."""
        if self._slowest and cursor == self._lowest:
            self._slowest -= 1

    def began(self, generation: Generation) -> None:
        """The log goes on from here: what anyone saw of this topic beyond its end was lost."""
        lower = [each for each in self.ends if each[1] < self.end]  # the others say no more now
        ends = [*lower, (generation, self.end)]
        if len(ends) > ENDS_KEPT:
            ends[:2] = [(ends[1][0], ends[0][1])]  # who comes from so long ago is told too much
        self.ends = tuple(ends)

    def agreed(self, generation: Generation) -> Offset:
        """Below this, offsets mean what they meant to who last knew that generation of this log.

        Of another branch's nothing can be said: see `generations`.
        """
        return min([end for since, end in self.ends if since > generation], default=self.end)

    def lose(self, first: Offset, end: Offset) -> None:
        """These messages are gone: who stands among them goes on behind them."""
        self.lost.add(first, end)
        for subscription in self.subscriptions.values():
            is_new = subscription.began == subscription.cursor
            subscription.cursor = self.lost.over(subscription.cursor)
            if is_new:  # it has settled nothing by that
                subscription.began = subscription.cursor
        self._slowest = 0

    def why_kept(self) -> str:
        """In words: what holds the messages from `low` on."""
        if self.low == self.end:
            return "nothing is kept: every subscription has settled everything"
        if self.settled == self.low and self.subscriptions:
            slowest = min(self.subscriptions.values(), key=lambda each: each.cursor)
            return f"{self.name}/{slowest.client}@{slowest.cursor} has not settled the rest"
        return f"retention keeps it: {describe_retention(self.retention)}"


def describe_retention(retention: Retention) -> str:
    """The retention in words."""
    if retention.forever:
        return "forever"
    parts: list[str] = []
    if retention.keep_ms:
        parts.append(f"{retention.keep_ms / 1000:g} s")
    if retention.keep_bytes:
        parts.append(f"{retention.keep_bytes} bytes")
    return " and ".join(parts) or "until every subscription has settled"


def made(record: TopicCreated, serial: Serial) -> Topic:
    """The topic as it begins."""
    topic = Topic(record.topic_id, record.name, record.retention, record.timestamp)
    topic.last_serial = topic.configured = serial
    clients = record.clients if isinstance(record, TopicAwaited) else ()
    for number, client in enumerate(clients, record.topic_id + 1):
        identity = SubscriptionId(number)
        topic.subscribe(Subscription(identity, client, Offset(0), True, serial))
    return topic


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """A producer entry as a checkpoint keeps it."""

    producer: ProducerId
    anonymous: bool
    last_sequence: Sequence
    seen: Micros
    recent: tuple[Recent, ...]
    seen_before: Micros = Micros(0)


class TopicState(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A topic as a checkpoint keeps it: true as of its `last_serial`."""

    topic_id: TopicId
    name: str
    retention: Retention
    created: Micros
    end: Offset
    trimmed: Offset
    last_serial: Serial
    producers: tuple[ProducerState, ...]
    subscriptions: tuple[tuple[SubscriptionId, ClientId, Offset], ...]
    derived: tuple[ClientId, ...] = ()  # those of them that a pattern made
    configured: Serial = Serial(0)
    lost: tuple[tuple[Offset, Offset], ...] = ()
    ends: tuple[tuple[Generation, Offset], ...] = ()
    began: tuple[Offset, ...] = ()  # of each subscription; none: an older version wrote it


class ProducersState(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """More producers of a topic, as of the same moment as the topic's own value before it."""

    topic_id: TopicId
    producers: tuple[ProducerState, ...]


def capture_topic(topic: Topic) -> Iterator[TopicState | ProducersState]:
    """The topic as values of a bounded size; what is put between two of them is in none."""
    producers = list(topic.producers.items())
    yield _captured(topic, _producers(producers[:PRODUCERS_A_VALUE]))
    for start in range(PRODUCERS_A_VALUE, len(producers), PRODUCERS_A_VALUE):
        yield ProducersState(topic.id, _producers(producers[start : start + PRODUCERS_A_VALUE]))


def _producers(some: Iterable[tuple[ProducerId, Producer]]) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            producer,
            entry.anonymous,
            entry.last_sequence,
            entry.seen,
            entry.recent,
            entry.seen_before,
        )
        for producer, entry in some
    )


def _captured(topic: Topic, producers: tuple[ProducerState, ...]) -> TopicState:
    return TopicState(
        topic_id=topic.id,
        name=topic.name,
        retention=topic.retention,
        created=topic.created,
        end=topic.end,
        trimmed=topic.trimmed,
        last_serial=topic.last_serial,
        producers=producers,
        subscriptions=tuple(
            (each.id, each.client, each.cursor) for each in topic.subscriptions.values()
        ),
        derived=tuple(each.client for each in topic.subscriptions.values() if each.derived),
        configured=topic.configured,
        lost=topic.lost.above(topic.low),
        ends=topic.ends,
        began=tuple(each.began for each in topic.subscriptions.values()),
    )


def restore_producers(state: TopicState | ProducersState) -> dict[ProducerId, Producer]:
    """The producers that a value has."""
    return {
        each.producer: Producer(
            each.anonymous, each.last_sequence, each.seen, each.recent, each.seen_before
        )
        for each in state.producers
    }


def restore_topic(state: TopicState) -> Topic:
    """The topic a checkpoint kept."""
    derived = set(state.derived)
    begins = state.began or (UNKNOWN,) * len(state.subscriptions)
    return Topic(
        id=state.topic_id,
        name=state.name,
        retention=state.retention,
        created=state.created,
        end=state.end,
        trimmed=state.trimmed,
        last_serial=state.last_serial,
        configured=state.configured,
        ends=state.ends,
        producers=restore_producers(state),
        subscriptions={
            client: Subscription(identity, client, cursor, client in derived, began=began)
            for (identity, client, cursor), began in zip(state.subscriptions, begins, strict=True)
        },
        lost=Holes(state.lost),
    )
