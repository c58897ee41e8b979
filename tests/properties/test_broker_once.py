"""G1 to G4 and G6 at once: whatever is put, repeated, lost, crashed and read in whatever order,
each subscription sees each message once, in order, and nothing acknowledged is missing.

The very state machines that ship meet here: Broker, Publisher and Subscriber. Replies leave only
when the log is durable up to their `after`; any of them may be lost, and so may, in a crash of the
server, everything that was not durable.
"""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from oncemq.broker.broker import Broker
from oncemq.broker.state.shard import Shard
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, Serial
from oncemq.protocol.names import SubscriptionId as Id
from oncemq.protocol.records import MessagesStored, Record, SubscriptionMade
from oncemq.protocol.replies import Messages, PutAccepted, RefusedReply, Reply, Resumed, Subscribed
from oncemq.protocol.requests import Get, Put, Request, Resume, Start, Subscribe, Unsubscribe
from oncemq.protocol.step import Caller, Deliver, Step
from oncemq.session.publisher import ProducerNumbers, Publisher, PutBatch, WhereNumbersStand
from oncemq.session.subscriber import Subscriber
from oncemq.wire import batch

TOPICS = ["a", "b"]
GUEST = ClientId("_anonymous-reader")
WRITER = ClientId("_anonymous-writer")
MINE, QUICK = ProducerId(b"m" * 16), ProducerId(b"q" * 16)

Handler = Callable[[Reply | Deliver], None]


class Note(NamedTuple):
    topic: str
    offset: int
    subscription_id: Id
    payload: bytes


@dataclass
class Batch:
    """What a reply brings of one topic."""

    notes: list[Note]
    taken: int = 0

    @property
    def topic(self) -> str:
        return self.notes[0].topic

    @property
    def subscription_id(self) -> Id:
        return Id(self.notes[0].subscription_id)

    @property
    def first(self) -> Offset:
        return Offset(self.notes[0].offset + self.taken)

    @property
    def left(self) -> int:
        return len(self.notes) - self.taken

    @property
    def size(self) -> int:
        return len(self.notes)

    def skip(self, count: int) -> None:
        self.taken += count

    def take(self, count: int) -> list[Note]:
        start, self.taken = self.taken, self.taken + count
        return self.notes[start : self.taken]


class Server:
    """A broker over a log of which a crash leaves only what was durable."""

    def __init__(self) -> None:
        self.log: list[tuple[Record, bytes]] = []
        self.durable = 0
        self.start()

    def start(self) -> None:
        self.shard = Shard(7)
        del self.log[self.durable :]
        for serial, (record, _) in enumerate(self.log, start=1):
            self.shard.apply(record, Serial(serial))
        self.broker = Broker(self.shard)
        self.broker.recovered(Micros(0))
        self.owed: list[tuple[int, int, Reply | Deliver]] = []  # after, token, answer

    def handle(self, token: int, request: Request, body: bytes, now: int) -> None:
        self.take(self.broker.handle(Caller(b"", token), request, body, Micros(now)))

    def take(self, step: Step) -> None:
        self.log += [(write.record, bytes(write.body or b"")) for write in step.writes]
        self.owed += [(each.after, each.caller.token, each.answer) for each in step.replies]

    def sync(self, behind: int = 0) -> None:
        self.durable = max(self.durable, len(self.log) - behind)
        self.take(self.broker.synced(Serial(self.durable)))

    def leaving(self) -> list[tuple[int, Reply | Deliver]]:
        """The replies that may leave now, in order."""
        out = [(token, answer) for after, token, answer in self.owed if after <= self.durable]
        self.owed = [each for each in self.owed if each[0] > self.durable]
        return out

    def stored(self, *, durable: bool = True) -> dict[str, list[bytes]]:
        """Every message kept, by topic."""
        found: dict[str, list[bytes]] = defaultdict(list)
        for record, body in self.log[: self.durable if durable else None]:
            if isinstance(record, MessagesStored):
                name = self.shard.topics[record.topic_id].name
                assert record.first_offset == len(found[name]), "offsets are dense"
                found[name] += batch.payloads_of(body, record.count, 0)
        return found

    def resolve(self, deliver: Deliver) -> list[Batch]:
        """The messages of a reply, as the log gives them."""
        spans = {span.topic_id: span for span in deliver.spans}
        kept = self.stored()
        assert all(span.end <= len(kept[span.topic]) for span in deliver.spans), "not durable"
        batches, left = [], deliver.limit
        for record, body in self.log[: self.durable]:
            span = spans.get(getattr(record, "topic_id", None))
            if span is None or not isinstance(record, MessagesStored):
                continue
            numbered = enumerate(batch.payloads_of(body, record.count, 0), record.first_offset)
            notes = [
                Note(span.topic, offset, span.subscription_id, payload)
                for offset, payload in numbered
                if span.start <= offset < span.end
            ][:left]
            left -= len(notes)
            batches += [Batch(notes)] if notes else []
        return batches


class OnceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.now = 1_000_000
        self.tokens = 0
        self.open: dict[int, tuple[Request, bytes, Handler]] = {}
        self.publisher = Publisher()
        self.payloads: dict[int, list[bytes]] = {}  # of each parcel
        self.given: dict[str, list[bytes]] = defaultdict(list)
        self.receipts: dict[bytes, PutAccepted] = {}
        self.places: dict[bytes, int] = {}
        self.subscriber: Subscriber[Note] = Subscriber()
        self.cursors: dict[str, tuple[Id, Offset]] = {}  # on the reader's disk
        self.fetching: dict[str, int] = {}
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.known: set[str] = set()  # topics the reader was told it subscribes to
        self.keep: list[PutBatch] = []  # so that the id of each stays its own
        for topic in TOPICS:
            self.subscribe(topic)
            self.server.sync()
            self.replies_leave()

    # the network

    def ask(self, request: Request, handler: Handler, body: bytes = b"") -> int:
        self.tokens += 1
        self.open[self.tokens] = (request, body, handler)
        self.send(self.tokens)
        return self.tokens

    def send(self, token: int) -> None:
        self.now += 1
        request, body, _ = self.open[token]
        self.server.handle(token, request, body, self.now)

    @rule(lost=st.sets(st.integers(0, 5), max_size=3))
    def replies_leave(self, lost: set[int] | frozenset[int] = frozenset()) -> None:
        for number, (token, answer) in enumerate(self.server.leaving()):
            if number not in lost and token in self.open:
                _, _, handler = self.open.pop(token)
                handler(answer)

    @rule()
    def everything_is_sent_again(self) -> None:
        for token in list(self.open):
            if token in self.open:
                self.send(token)

    # the server

    @rule(behind=st.integers(0, 2))
    def sync(self, behind: int) -> None:
        self.server.sync(behind)

    @rule()
    def the_server_crashes(self) -> None:
        self.server.start()
        self.everything_is_sent_again()

    # the publisher

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 3), lasting=st.booleans())
    def put(self, topic: str, count: int, lasting: bool) -> None:
        payloads = [b"%d.%d" % (len(self.payloads), n) for n in range(count)]
        body = batch.encode_payloads(payloads)
        parcel = PutBatch(topic, MINE if lasting else QUICK, lasting, count, 0, body)
        numbers = self.publisher.numbers(parcel.topic, parcel.producer)
        parcel.first_sequence = numbers.take(parcel.count)
        parcel.checksum = batch.checksum(body, 0)
        self.publisher.add(parcel)
        self.payloads[id(parcel)] = payloads
        self.given[topic] += payloads
        self.keep.append(parcel)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 3))
    def put_with_a_receipt(self, topic: str, count: int) -> None:
        self.put(topic, count, lasting=True)
        self.puts_leave()
        self.server.sync()
        self.replies_leave()

    @rule()
    def puts_leave(self) -> None:
        for lane in list(self.publisher.busy.values()):
            if lane.is_lost:
                producer = lane.parcels[0].producer
                resume = Resume(WRITER, Epoch(0), lane.topic, producer, self.tokens)
                if lane.resume is None:
                    lane.resume = WhereNumbersStand(lane, producer, self.tokens)
                    self.ask(resume, partial(self.resumed, lane, producer))
            for parcel in list(self.publisher.ready(lane)):
                numbers = lane.numbers[parcel.producer]
                put = Put(
                    WRITER, Epoch(0), parcel.topic, numbers.topic_id, parcel.producer,
                    parcel.lasting, parcel.first_sequence, parcel.count, 0, parcel.checksum,
                    numbers.permit,
                )  # fmt: skip
                parcel.under_way = True
                self.ask(put, lambda reply, p=parcel: self.answered(p, reply), bytes(parcel.body))

    def resumed(self, lane, producer, reply) -> None:
        assert isinstance(reply, Resumed)
        plan = self.publisher.plan(lane, producer, reply)
        self.publisher.carry_out(lane, producer, plan)

    def answered(self, parcel: PutBatch, reply: Reply | Deliver) -> None:
        if isinstance(reply, RefusedReply):
            assert reply.code in ("sequence_gap", "outdated"), reply
            assert self.publisher.refused(parcel, reply) is False
            cancelled = {(each.producer, each.topic) for each in self.publisher.cancelled}
            for token, (request, _, _) in list(self.open.items()):
                if isinstance(request, Put) and (request.producer, request.topic) in cancelled:
                    del self.open[token]
            self.publisher.cancelled.clear()
            return
        assert isinstance(reply, PutAccepted)
        self.publisher.accepted(parcel, reply)
        for place, payload in enumerate(self.payloads[id(parcel)]):
            assert payload not in self.receipts
            self.receipts[payload] = reply
            if reply.stored:
                self.places[payload] = reply.first_offset + place

    @rule()
    def the_publisher_starts_again(self) -> None:
        """Its outbox holds the numbers and what has no answer."""
        before, self.publisher = self.publisher, Publisher()
        self.publisher.from_disk |= {MINE, QUICK}  # so that it asks where it stands
        for token, (request, _, _) in list(self.open.items()):
            if isinstance(request, Put | Resume):
                del self.open[token]
        for old in before.all_lanes():
            lane = self.publisher.lane(old.topic)
            for producer, numbers in old.numbers.items():
                lane.numbers[producer] = ProducerNumbers(numbers.topic_id, numbers.next, sure=False)
            for parcel in old.parcels:
                parcel.under_way, parcel.tried = False, True
                self.publisher.add(parcel)

    # the subscriber

    @property
    def joining(self) -> bool:
        asked = (request for request, _, _ in self.open.values())
        return any(isinstance(each, Subscribe | Unsubscribe) for each in asked)

    @rule(topic=st.sampled_from(TOPICS), start=st.sampled_from(["new", "earliest"]))
    def subscribe(self, topic: str, start: str = "new") -> None:
        def handle(reply: Reply | Deliver) -> None:
            assert isinstance(reply, Subscribed)
            self.subscriber.subscribed(topic, reply.subscription_id, reply.cursor)
            self.known.add(topic)

        if not self.joining:
            self.ask(Subscribe(GUEST, Epoch(0), topic, Start(start)), handle)

    @rule(topic=st.sampled_from(TOPICS))
    def unsubscribe(self, topic: str) -> None:
        def handle(_: Reply | Deliver) -> None:
            self.subscriber.forget(topic)
            self.cursors.pop(topic, None)
            self.known.discard(topic)

        if not self.joining:
            self.ask(Unsubscribe(GUEST, Epoch(0), topic), handle)

    @rule(topic=st.sampled_from(["", *TOPICS]), limit=st.integers(1, 4))
    def fetch(self, topic: str, limit: int) -> None:
        if topic and topic not in self.known:
            return
        if self.fetching.get(topic) in self.open:
            return  # one at a time, as in the client
        if not topic and not self.subscriber.prefetched.drained(topic):
            return  # from any topic only when nothing is left, as in the client
        feed = self.subscriber.prefetched.feed(topic)
        count = self.subscriber.prefetched.want(topic, limit)
        settled = self.subscriber.told.untold()
        start = feed.ahead if topic else Offset(-1)
        get = Get(GUEST, Epoch(0), topic, settled, start, count)

        def handle(reply: Reply | Deliver) -> None:
            if isinstance(reply, RefusedReply):
                assert reply.code == "not_subscribed"
                self.subscriber.prefetched.put_back(topic)
                return
            self.subscriber.told.answered(settled)
            batches = [] if isinstance(reply, Messages) else self.server.resolve(reply)
            self.subscriber.came(topic, batches, more=True)

        self.fetching[topic] = self.ask(get, handle)

    @rule(topic=st.sampled_from(["", *TOPICS]), limit=st.integers(1, 5), fails=st.booleans())
    def consume(self, topic: str, limit: int, fails: bool = False) -> None:
        notes = self.subscriber.prefetched.take(topic, limit)
        if fails:
            self.subscriber.prefetched.put_back(topic)
            return
        moved = self.subscriber.cursors.moves(notes)
        self.subscriber.move(moved)
        for name, subscription, cursor in moved:
            self.cursors[name] = (subscription, cursor)
        for note in notes:
            self.seen[note.subscription_id].append(note.offset)
            assert self.server.stored()[note.topic][note.offset] == note.payload

    @rule(
        topic=st.sampled_from(["", *TOPICS]), limit=st.integers(1, 4), ahead=st.booleans(),
        fails=st.booleans(),
    )  # fmt: skip
    def get(self, topic: str, limit: int, ahead: bool, fails: bool) -> None:
        """A whole get, with the next fetch on its way when `ahead`."""
        self.fetch(topic, limit)
        self.replies_leave()
        taken = limit if not ahead else limit // 2 + 1
        if ahead:
            self.fetch(topic, limit)
        self.consume(topic, taken, fails)

    @rule()
    def the_subscriber_starts_again(self) -> None:
        self.subscriber = Subscriber(self.cursors)
        for token, (request, _, _) in list(self.open.items()):
            if isinstance(request, Get):
                del self.open[token]

    # the laws

    def teardown(self) -> None:
        for _ in range(4 * len(self.payloads) + 8):
            self.puts_leave()
            self.everything_is_sent_again()
            self.server.sync()
            self.replies_leave()
        assert self.publisher.unacknowledged == 0
        self.each_put_is_stored_once_and_in_order()
        for topic in sorted(self.known):
            for _ in range(1 + len(self.payloads)):
                self.fetch(topic, 4)
                self.replies_leave()
                self.consume(topic, 1000)
        self.each_subscription_saw_each_message_once()

    def each_put_is_stored_once_and_in_order(self) -> None:
        for topic, payloads in self.server.stored().items():
            assert len(set(payloads)) == len(payloads), "stored twice"
            order = {payload: number for number, payload in enumerate(self.given[topic])}
            assert sorted(payloads, key=order.__getitem__) == payloads, "out of order"
            kept = {payload: place for place, payload in enumerate(payloads)}
            for payload in self.given[topic]:
                assert self.receipts[payload].stored == (payload in kept)
                if payload in kept and self.receipts[payload].first_offset >= 0:
                    assert self.places[payload] == kept[payload]

    def each_subscription_saw_each_message_once(self) -> None:
        made = {
            record.subscription_id: record
            for record, _ in self.server.log
            if isinstance(record, SubscriptionMade)
        }
        for subscription, offsets in self.seen.items():
            begin = made[subscription].cursor
            assert offsets == list(range(begin, begin + len(offsets)))
        for topic in self.known:
            shard_topic = self.server.shard.by_name[topic]
            subscription = shard_topic.subscriptions[GUEST]
            begin = made[subscription.id].cursor
            assert self.seen[subscription.id] == list(range(begin, shard_topic.end))


OnceMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestOnce = OnceMachine.TestCase
