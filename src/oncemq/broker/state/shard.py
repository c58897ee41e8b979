"""The state of a shard, and the fold that makes it: `apply` is shared by live work and recovery.

Laws: `apply` decides nothing, it only remembers; a record that a checkpoint already contains
changes nothing when it is replayed; identities are never given twice.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable
from typing import assert_never

from oncemq.broker.state.ages import Ages
from oncemq.broker.state.clients import Clients
from oncemq.broker.state.deleted_topics import DeletedTopics
from oncemq.broker.state.identities import Identities
from oncemq.broker.state.keys import ABOUT_KEYS, AllKeys
from oncemq.broker.state.leases import Leases
from oncemq.broker.state.owners import Owners
from oncemq.broker.state.producers import UNHEARD
from oncemq.broker.state.stages import Stages
from oncemq.broker.state.topic import Subscription, Topic, made
from oncemq.protocol.generations import Generations
from oncemq.protocol.names import (
    STAGE_NAME,
    ClientId,
    Generation,
    Micros,
    Offset,
    ProducerId,
    Serial,
    TopicId,
)
from oncemq.protocol.patterns import Patterns, is_pattern, matches
from oncemq.protocol.records import (
    ClientForgotten,
    ClientLeased,
    ClientOpened,
    ClockNoted,
    Committed,
    CursorMoved,
    EpochBegan,
    GenerationBegan,
    KeyedDiscarded,
    KeysForgotten,
    Marked,
    MessagesDiscarded,
    MessagesKeyed,
    MessagesLost,
    MessagesStaged,
    MessagesStored,
    OwnerBound,
    OwnersForgotten,
    PartKept,
    PatternSubscribed,
    PatternUnsubscribed,
    ProducersForgotten,
    Record,
    Run,
    StageDropped,
    StageMade,
    StagesEnded,
    SubscriptionDerived,
    SubscriptionEnded,
    SubscriptionMade,
    TopicAwaited,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicRecord,
    TopicTrimmed,
)
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replies import NO_OFFSET


class Shard:
    """Topics, subscriptions, producers, clients: everything the log says."""

    def __init__(self, tag: int, log_id: bytes = b"") -> None:
        self.log_id = log_id
        self.generations = Generations()
        self.leader_epochs = LeaderEpochs()
        self.identities = Identities(tag)
        self.serial = Serial(0)  # of the last record applied
        self.checkpointed = Serial(0)  # below this, replay may meet topics that are gone
        self.last_timestamp = Micros(0)
        self.ages = Ages()
        self.deleted_topics = DeletedTopics()
        self.deleted = Serial(0)  # the newest record that deleted a topic
        self.clients = Clients()
        self.topics: dict[TopicId, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self.names: list[str] = []  # of `by_name`, sorted: a page of them costs no sorting
        self.by_client: dict[ClientId, dict[TopicId, Topic]] = {}
        self.stages = Stages()
        self.owners = Owners()
        self.leases = Leases()
        self.keys = AllKeys()
        self.guests: OrderedDict[tuple[TopicId, ProducerId], Micros] = OrderedDict()
        self.patterns = Patterns()
        self._changes: dict[ClientId, Serial] = {}  # newest change to its subscriptions
        self._began = Serial(0)  # where recovery ended: changes before are not told apart

    @property
    def generation(self) -> Generation:
        """Of the log, as its records say."""
        return self.generations.newest

    def next_identity(self) -> int:
        """A number no topic, no stage and no subscription of any log ever had."""
        return self.identities.next()

    def next_timestamp(self, now: Micros) -> Micros:
        """`now`, but after every timestamp given before, so that time orders all topics."""
        return Micros(max(now, self.last_timestamp + 1))

    def subscribed(self, client: ClientId, names: Iterable[str] = ()) -> list[Topic]:
        """The topics a client subscribes to: those of these names and patterns, or all of them."""
        mine = self.by_client.get(client, {})
        if not names:
            return list(mine.values())
        found: dict[TopicId, Topic] = {}
        for name in names:
            if is_pattern(name):
                found |= {each.id: each for each in mine.values() if matches(name, each.name)}
            elif (topic := self.by_name.get(name)) and client in topic.subscriptions:
                found[topic.id] = topic
        return list(found.values())

    def subscribes(self, client: ClientId) -> bool:
        """Whether a client has a subscription, or a pattern that may make one."""
        return client in self.by_client or client in self.patterns.by_client

    def change_of(self, client: ClientId) -> Serial:
        """Stands for how a client's subscriptions are now: another one once they change."""
        if client not in self.by_client:
            return Serial(0)
        return self._changes.get(client, self._began)

    def apply(self, record: Record, serial: Serial) -> None:
        """Remember one fact."""
        self.serial = serial
        match record:
            case MessagesStored() | CursorMoved() if not isinstance(record, MessagesStaged):
                self._apply_about(record, serial)  # most of all records
            case MessagesStaged() | StageMade() | StageDropped() | Committed():
                known = self._apply_together(record, serial)
                assert known or serial <= self.checkpointed, f"record {serial} is about nothing"
            case MessagesLost() if record.topic_id in self.stages.by_id:
                self.stages.lost(record, serial)
            case TopicCreated():
                self._topic_created(record, serial)
            case PatternSubscribed():
                self.seen_identity(record.subscription_id)
                self.patterns.add(record.client, record.pattern, record.subscription_id)
            case PatternUnsubscribed():
                self.patterns.remove(record.client, record.pattern)
            case ClientOpened():
                self.clients.apply(record)
            case ClientForgotten():
                self.clients.apply(record)
                self.leases.forget(record.client)
            case GenerationBegan():
                self._generation_began(record, serial)
            case EpochBegan():
                self.leader_epochs.began(EpochStart(record.leader_epoch, serial))
            case Marked():
                pass
            case OwnersForgotten() | OwnerBound():
                self.owners.note(record, serial)
            case StagesEnded():
                self.stages.ended(record, serial)
            case ClockNoted():
                self._seen_time(record.timestamp)
                self.ages.apply(record)
            case ClientLeased():
                self._seen_time(record.timestamp)
                self.leases.apply(record)
            case PartKept():  # compaction made it of records that checkpoints cover
                raise AssertionError(f"record {serial} is a copy, and never replayed")
            case _:
                self._apply_about(record, serial)

    def _apply_about(self, record: TopicRecord, serial: Serial) -> None:
        """What is about one topic; it knows by itself whether it has seen this."""
        topic = self.topics.get(record.topic_id)
        if isinstance(record, ABOUT_KEYS):
            self.keys.apply(record, gone=topic is None)
            if isinstance(record, TopicDeleted):
                self.deleted = max(self.deleted, serial)
        if topic is None:
            assert serial <= self.checkpointed, f"record {serial} is about no topic"
            return
        if serial <= topic.last_serial:
            return
        topic.last_serial = serial
        match record:
            case MessagesStored():
                topic.end = Offset(record.first_offset + record.count)
                if isinstance(record, MessagesKeyed):
                    self._seen_time(record.runs[0].timestamp)
                else:
                    self._accept(topic, record.runs[0], record.first_offset, record.checksum)
            case KeyedDiscarded():
                self._seen_time(record.run.timestamp)
            case MessagesDiscarded():
                self._accept(topic, record.run, NO_OFFSET, record.checksum)
            case KeysForgotten():
                pass
            case CursorMoved():
                topic.move(record.client, record.cursor)
            case SubscriptionMade() | SubscriptionDerived():
                self.seen_identity(record.subscription_id)
                derived = isinstance(record, SubscriptionDerived)
                at = record.client, record.cursor, derived, topic.last_serial
                topic.subscribe(Subscription(record.subscription_id, *at))
                self.by_client.setdefault(record.client, {})[topic.id] = topic
                self._changes[record.client] = self.serial
            case SubscriptionEnded():
                topic.unsubscribe(record.client)
                self._drop_from_client(record.client, topic)
            case TopicConfigured():
                # What was let go before stays gone, whatever is kept from now on.
                topic.trimmed = topic.low
                topic.retention = record.retention
                topic.configured = topic.last_serial
            case MessagesLost():
                topic.lose(record.first_offset, record.end_offset)
            case TopicTrimmed():
                topic.trimmed = record.low
            case ProducersForgotten():
                for producer in record.producers:
                    del topic.producers[producer]
                    self.guests.pop((topic.id, producer), None)
            case TopicDeleted():
                self._remove(topic)
            case _:
                assert_never(record)

    def _apply_together(
        self,
        record: StageMade | MessagesStaged | StageDropped | Committed,
        serial: Serial,
    ) -> bool:
        """What stages and commits do; False when it is about something that is gone."""
        match record:
            case StageMade():
                self.seen_identity(record.stage_id)
                self._seen_time(record.timestamp)
                self.stages.made(record, serial)
            case MessagesStaged():
                self._seen_time(record.runs[0].timestamp)
                return self.stages.stored(record, serial)
            case StageDropped():
                return self.stages.dropped(record, serial)
            case Committed():
                return self._committed(record, serial)
        return True

    def _committed(self, record: Committed, serial: Serial) -> bool:
        """Every topic, stage and owner knows by itself whether it has seen this."""
        self._seen_time(record.timestamp)
        self.owners.apply(record, serial)
        known = self.stages.committed(record, serial)
        fresh: dict[TopicId, Topic] = {}
        for topic_id in [each.topic_id for each in (*record.parts, *record.cursors)]:
            topic = self.topics.get(topic_id)
            known = known and topic is not None
            if topic is not None and serial > topic.last_serial:
                fresh[topic_id] = topic
        for part in record.parts:
            if topic := fresh.get(part.topic_id):
                self._accept(topic, record.run(part), part.first_offset, 0)
                if part.first_offset != NO_OFFSET:
                    topic.end = Offset(part.first_offset + part.count)
        for each in record.cursors:
            if topic := fresh.get(each.topic_id):
                topic.move(each.client, each.cursor)
        for topic in fresh.values():
            topic.last_serial = serial
        return known

    def low_of(self, topic_id: TopicId) -> Offset | None:
        """The lowest offset that a topic keeps; None when there is no such topic."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.low

    def name_of(self, topic_id: TopicId) -> str:
        """The name in the checksums of a topic's or a stage's batches."""
        topic = self.topics.get(topic_id)
        return STAGE_NAME if topic is None else topic.name

    def live(self, topic_id: TopicId) -> tuple[str, Offset, Offset, Serial] | None:
        """The name in the checksums of a topic's or a stage's batches, and from where it lives.

        Of a stage of which nothing more will be published also where it ends, and the last record
        that published some of it; else 0.
        """
        if topic := self.topics.get(topic_id):
            return topic.name, topic.low, Offset(0), Serial(0)
        stage = self.stages.needed(topic_id)
        if stage is None:
            return None
        movable = not (stage.is_open or stage.lost) and stage.given <= stage.end
        published = stage.published_at if movable else Serial(0)
        return STAGE_NAME, stage.low(self.low_of), stage.end, published

    def _generation_began(self, record: GenerationBegan, serial: Serial) -> None:
        self.generations.began(record.generation, self.last_timestamp)
        self._seen_time(record.timestamp)
        self.clients.began(record.generation)
        for topic in self.topics.values():
            if serial > topic.last_serial:
                topic.last_serial = serial
                topic.began(record.generation)

    def _topic_created(self, record: TopicCreated, serial: Serial) -> None:
        awaited = len(record.clients) if isinstance(record, TopicAwaited) else 0
        self.seen_identity(record.topic_id + awaited)
        self._seen_time(record.timestamp)
        if record.topic_id not in self.topics:
            self.add(made(record, serial))

    def _accept(self, topic: Topic, run: Run, first_offset: Offset, checksum: int) -> None:
        """A producer's put is in the log, as a batch or discarded."""
        self.last_timestamp = max(self.last_timestamp, run.timestamp)
        entry = topic.producers.get(run.producer, UNHEARD).after(run, first_offset, checksum)
        topic.producers[run.producer] = entry
        guest = topic.id, run.producer
        if entry.anonymous:
            self.guests[guest] = run.timestamp
            self.guests.move_to_end(guest)
        elif self.guests:
            self.guests.pop(guest, None)

    def _seen_time(self, timestamp: Micros) -> None:
        self.last_timestamp = max(self.last_timestamp, timestamp)

    def seen_identity(self, identity: int) -> None:
        """The log has given this one."""
        self.identities.seen(identity)

    def add(self, topic: Topic) -> None:
        """A topic is there from now on: made, or kept by a checkpoint."""
        self.topics[topic.id] = topic
        namesake = self.by_name.get(topic.name)
        if namesake is None:
            insort(self.names, topic.name)
        if namesake is None or namesake.created <= topic.created:
            self.by_name[topic.name] = topic
        for client in topic.subscriptions:
            self.by_client.setdefault(client, {})[topic.id] = topic
            self._changes[client] = self.serial

    def _remove(self, topic: Topic) -> None:
        numbers = ((each, entry.last_sequence) for each, entry in topic.producers.items())
        self.deleted_topics.deleted(topic.name, topic.id, numbers, topic.last_serial)
        del self.topics[topic.id]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            del self.names[bisect_left(self.names, topic.name)]
        for client in topic.subscriptions:
            self._drop_from_client(client, topic)
        for producer in topic.producers:
            self.guests.pop((topic.id, producer), None)

    def _drop_from_client(self, client: ClientId, topic: Topic) -> None:
        topics = self.by_client[client]
        del topics[topic.id]
        self._changes[client] = self.serial
        if not topics:
            del self.by_client[client]
            del self._changes[client]

    def recovered(self) -> None:
        """Recovery is over and what it read is durable: readers may see all of it."""
        self.guests = OrderedDict(sorted(self.guests.items(), key=lambda item: item[1]))
        self._changes.clear()
        self._began = self.serial
        self.keys.recovered()
        self.stages.recovered()
        self.owners.recovered()
        self.stages.release(self.low_of, len(self.stages))
        for topic in self.topics.values():
            topic.visible = topic.end
