"""A tree of restores: what a server says it shares with a client, both really have in common."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.broker.broker import Broker
from oncemq.broker.comparison import compare
from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.client_requests import Compare
from oncemq.protocol.generations import FIRST, continued
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import (
    ClientId,
    Generation,
    Micros,
    Offset,
    Serial,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import CursorMoved, Record, Retention, SubscriptionMade, TopicCreated
from oncemq.protocol.replies import NO_OFFSET, Ends
from oncemq.protocol.requests import WatchEnds
from oncemq.protocol.step import Caller
from oncemq.protocol.structs import Settled

TOPIC, READER = TopicId(1 << 32 | 1), ClientId("reader")
SUBSCRIPTION = SubscriptionId(1 << 32 | 2)


@dataclass
class Server:
    """One branch: its log's facts, and for each offset of the topic where it was first stored."""

    broker: Broker
    contents: list[int] = field(default_factory=list[int])

    @property
    def shard(self) -> Shard:
        return self.broker.shard

    def apply(self, record: Record) -> None:
        self.shard.apply(record, Serial(self.shard.serial + 1))

    def store(self, messages: list[int]) -> None:
        self.contents += messages
        topic = self.shard.topics[TOPIC]
        topic.end = topic.visible = Offset(len(self.contents))

    def settle(self, cursor: int) -> None:
        if cursor > self.shard.topics[TOPIC].subscriptions[READER].cursor:
            self.apply(CursorMoved(TOPIC, READER, Offset(cursor)))

    def copy(self) -> "Server":
        """As a restored backup is: all of it, by way of a checkpoint."""
        shard = Shard(7, b"log")
        for blob in snapshot.capture(self.shard):
            snapshot.restore(shard, blob)
        shard.serial = self.shard.serial
        shard.topics[TOPIC].visible = shard.topics[TOPIC].end
        return Server(Broker(shard, ServerLimits()), list(self.contents))

    def begin(self, generation: Generation) -> None:
        self.broker.begin_generation(generation, Micros(0))


def first_server() -> Server:
    made = Server(Broker(Shard(7, b"log"), ServerLimits()))
    made.apply(TopicCreated(TOPIC, "t", Retention(forever=True), Micros(1)))
    made.apply(SubscriptionMade(TOPIC, SUBSCRIPTION, READER, Offset(0), Micros(2)))
    return made


@dataclass
class Reader:
    """What a client keeps: a cursor, the generation it is of; and (to judge) what it saw."""

    generation: Generation
    contents: list[int]

    @property
    def cursor(self) -> int:
        return len(self.contents)


def shared(one: list[int], other: list[int]) -> int:
    """How many messages from the beginning on are the same."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


numbers = st.integers(0, 1 << 16)
deeds = st.lists(
    st.tuples(st.sampled_from(["store", "restore", "read", "read"]), numbers, numbers),
    max_size=30,
)


@settings(max_examples=300)
@given(deeds)
def test_nobody_is_told_to_agree_beyond_what_both_have(found: list[tuple[str, int, int]]) -> None:
    servers, readers, stored = [first_server()], list[Reader](), 0
    for number, (deed, which, amount) in enumerate(found):
        server = servers[which % len(servers)]
        if deed == "store":
            server.store(list(range(stored, stored + amount % 7)))
            stored += amount % 7
        elif deed == "restore":
            copy = server.copy()
            # The names are as random as can be, but that no two are the same.
            copy.begin(continued(server.shard.generation, amount << 8 ^ number * 7919))
            servers.append(copy)
        else:
            cursor = amount % (len(server.contents) + 1)
            readers.append(Reader(server.shard.generation, server.contents[:cursor]))
            server.settle(cursor if amount % 2 else 0)  # or it was not told
    for server in servers:
        for reader in readers:
            must_be_safe(server, reader)


def must_be_safe(server: Server, reader: Reader) -> None:
    common = shared(server.contents, reader.contents)
    known = Settled("t", SUBSCRIPTION, Offset(reader.cursor))
    answer = compare(server.shard, Compare(READER, reader.generation, cursors=(known,)))
    own = server.shard.topics[TOPIC].subscriptions[READER].cursor
    if answer.cursors:
        (lost,) = answer.cursors
        assert lost.agreed in (NO_OFFSET, common) or lost.agreed < common
        assert lost.cursor == own  # where it goes on when nobody can say
    else:
        assert reader.cursor in (common, own)
    if server.shard.generation == reader.generation == FIRST:
        assert not answer.parted
    watch = WatchEnds((("t", Offset(-1)),), generation=reader.generation)
    (owed,) = server.broker.handle(Caller(b"", 1), watch, None, Micros(0)).replies
    assert isinstance(owed.answer, Ends)
    assert reader.cursor == common or owed.answer.topics[0].agreed <= common
