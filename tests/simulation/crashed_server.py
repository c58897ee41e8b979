"""A server without sockets and threads on any disk, and a ledger of what its clients were told.

Law: the ledger knows what was asked and what was answered; what was asked and not answered may
have happened or not, everything else is certain. `check` holds a recovered server to that.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from oncemq.broker.broker import Broker
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import (
    Done,
    Messages,
    PutAccepted,
    RefusedReply,
    Reply,
    Subscribed,
    Unsubscribed,
    Welcome,
)
from oncemq.protocol.requests import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Get,
    Hello,
    Put,
    Read,
    Request,
    Resume,
    Settle,
    Settled,
    Subscribe,
    Unsubscribe,
)
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.recovery import recover
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import batch, codec

OPTIONS = LogOptions(
    segment_bytes=8192,
    allocate_bytes=4096,
    reserve_bytes=256,
    checkpoint_records=30,
    checkpoint_idle_ms=1,
)
FOREVER = Micros(1 << 62)


# ------------------------------------------------------------------ what must hold


@dataclass(eq=False)
class Sent:
    """A put that left its client, and its receipt if that came back."""

    put: Put
    body: bytes
    payloads: list[bytes]
    receipt: PutAccepted | None = None


@dataclass(eq=False)
class Seat:
    """A subscription as its client knows it; `ended` is None while that is being asked."""

    asked: Offset = Offset(0)
    settled: Offset = Offset(0)
    made: Subscribed | None = None
    ended: bool | None = False


@dataclass(eq=False)
class Known:
    """A topic as its clients know it; `deleted` is None while that is being asked."""

    name: str
    topic_id: TopicId | None = None
    deleted: bool | None = False
    keeps: bool = False  # forever
    sent: list[Sent] = field(default_factory=list[Sent])
    seats: dict[ClientId, Seat] = field(default_factory=dict[ClientId, Seat])


@dataclass(eq=False)
class Ledger:
    """Everything that was asked and everything that was answered."""

    topics: list[Known] = field(default_factory=list[Known])
    epochs: dict[ClientId, int] = field(default_factory=dict[ClientId, int])

    def topic(self, name: str) -> Known:
        for known in self.topics:
            if known.name == name and known.deleted is False:
                return known
        self.topics.append(Known(name))
        return self.topics[-1]


@dataclass(frozen=True)
class Found:
    """A topic as recovery gave it back."""

    name: str
    messages: dict[int, bytes]
    cursors: Mapping[ClientId, tuple[int, int]]
    producers: Mapping[ProducerId, object]


def check(ledger: Ledger, found: dict[TopicId, Found], epochs: dict[ClientId, int]) -> None:
    """Nothing answered is missing, nothing is there that was not asked."""
    by_name = {each.name: each for each in found.values()}
    for client, client_epoch in ledger.epochs.items():
        assert epochs.get(client, 0) >= client_epoch, client
    for known in ledger.topics:
        there = found.get(known.topic_id) if known.topic_id else by_name.get(known.name)
        if known.deleted is True:
            assert known.topic_id not in found, f"{known.name} came back"
        elif there is None:
            assert known.deleted is None or known.topic_id is None, f"{known.name} is lost"
        else:
            check_topic(known, there)
    names = {known.name for known in ledger.topics if known.deleted is not True}
    assert set(by_name) <= names


def check_topic(known: Known, there: Found) -> None:
    put = {payload: sent for sent in known.sent for payload in sent.payloads}
    assert put.keys() >= set(there.messages.values()), "a message nobody put"
    assert len(set(there.messages.values())) == len(there.messages), "stored twice"
    asked = [seat.asked for seat in known.seats.values() if seat.made and seat.ended is False]
    needed = 0 if known.keeps else min(asked, default=1 << 62)
    for sent in known.sent:
        if sent.receipt and sent.receipt.stored:
            for offset, payload in enumerate(sent.payloads, sent.receipt.first_offset):
                assert there.messages.get(offset, payload) == payload
                assert offset < needed or offset in there.messages, (known.name, offset)
    numbers: dict[bytes, int] = {}
    for payload in there.messages.values():
        _, producer, sequence, _ = payload.split(b" ")
        assert numbers.get(producer, 0) < int(sequence), "reordered"
        numbers[producer] = int(sequence)
    for client, seat in known.seats.items():
        if seat.ended is True:
            assert client not in there.cursors, "unsubscribed, and still there"
        elif seat.made and seat.ended is False:
            subscription_id, cursor = there.cursors[client]
            assert subscription_id == seat.made.subscription_id
            assert seat.settled <= cursor <= seat.asked, (known.name, client, cursor)
    assert there.cursors.keys() <= known.seats.keys()


def copied(ledger: Ledger) -> Ledger:
    return Ledger(
        [
            replace(
                known,
                sent=[replace(sent) for sent in known.sent],
                seats={client: replace(seat) for client, seat in known.seats.items()},
            )
            for known in ledger.topics
        ],
        dict(ledger.epochs),
    )


# ------------------------------------------------------------------ a server, one call at a time


class Janitor:
    """A worker without a thread."""

    idle = True

    def give(self, task: Callable[[], None], then: Callable[[], None]) -> None:
        task()
        then()


class Machine:
    """A server on a disk, driven by hand, and the clients that talk to it."""

    options = OPTIONS

    def __init__(self, disk: FaultyDisk, ledger: Ledger, now: int = 10**9) -> None:
        self.disk, self.ledger, self.now = disk, ledger, now
        self.token = 0
        self.waiting: dict[int, Callable[[Any], None]] = {}
        self.deletions: Counter[str] = Counter()  # of topics, in this life of the server
        self.permits: dict[tuple[str, bytes, int], int] = {}
        self.open()

    def open(self) -> None:
        """What oncemq.assembly.Server does, on this disk."""
        random = Random(1)
        opened = open_log(self.disk, "/data", self.options, random_bytes=random.randbytes)
        self.log, self.report = opened.log, opened.report
        shard, _, missing = recover(opened)
        self.shard = shard
        broker = Broker(shard, ServerLimits())
        broker.recovered(Micros(self.now))
        self.driver = Driver(broker, opened.log)
        self.driver.lose([each.record for each in missing], Micros(self.now))
        self.driver.begin(Micros(self.now))
        self.housekeeping = Housekeeping(self.driver, Micros(self.now))
        self.waiting.clear()
        self.deletions.clear()
        self.permits.clear()

    def ask(self, request: Request, then: Callable[[Any], None], body: bytes | None = None) -> None:
        """Give a request to the driver; the answer leaves with the next `commit`."""
        self.token += 1
        self.now += 1000
        self.waiting[self.token] = then
        frames = codec.encode_request(self.token, request, body)
        self.driver.receive(b"route", frames, Micros(self.now))

    def commit(self) -> None:
        """Make the group durable and let its answers leave."""
        group = self.driver.commit(FOREVER)
        if group is not None:
            self.log.write(group)
            self.driver.written(group, Micros(self.now))
        outgoing, self.driver.outgoing = self.driver.outgoing, []
        for _, frames in outgoing:
            token, reply, bodies = codec.decode_reply(frames)
            then = self.waiting.pop(token)
            then((reply, bodies) if isinstance(reply, Messages) else reply)

    def now_and(self, request: Request, body: bytes | None = None) -> Any:
        """Ask, commit, and the answer."""
        answers: list[Any] = []
        self.ask(request, answers.append, body)
        self.commit()
        return answers[0]

    def housekeep(self, turns: int = 8) -> None:
        for _ in range(turns):
            self.now += 1_100_000
            self.housekeeping.turn(Janitor(), Micros(self.now))  # type: ignore[arg-type]
            self.commit()

    # clients

    def hello(self, client: ClientId) -> None:
        def welcome(reply: Reply) -> None:
            assert isinstance(reply, Welcome)
            self.ledger.epochs[client] = reply.client_epoch

        request = Hello(
            client, Epoch(self.ledger.epochs.get(client, 0)), zlib.crc32(client.encode())
        )
        self.ask(request, welcome)

    def create(self, name: str, retention: Retention) -> None:
        known = self.ledger.topic(name)
        assert self.now_and(CreateTopic(name)) == Done(changed=True)
        assert self.now_and(ConfigureTopic(name, retention)) == Done(changed=True)
        known.keeps = retention.forever

    def put(self, name: str, producer: bytes, count: int = 1, size: int = 120) -> None:
        """Send the producer's next messages on the topic."""
        known = self.ledger.topic(name)
        mine = [sent for sent in known.sent if sent.put.producer == producer * 16]
        first = 1 + sum(sent.put.count for sent in mine)
        salt = b"%d" % self.ledger.topics.index(known)
        filler = Random(first).randbytes(size).hex().encode()[:size]
        payloads = [b"%s %s %d %s" % (salt, producer, first + n, filler) for n in range(count)]
        body = batch.encode_payloads(payloads)
        identity = ProducerId(producer * 16)
        checksum = batch.checksum(body, batch.seed(name, identity, first, count))
        put = Put(
            ClientId("_anonymous-p"), Epoch(0), name, TopicId(0), identity, True,
            Sequence(first), count, 0, checksum, self.permit(name, identity),
        )  # fmt: skip
        sent = Sent(put, body, payloads)
        known.sent.append(sent)
        self.send(known, sent)

    def permit(self, name: str, producer: ProducerId) -> int:
        """After a deletion a producer has to ask where it stands."""
        key = name, producer, self.deletions[name]
        if self.deletions[name] and key not in self.permits:
            reply = self.now_and(Resume(ClientId("_anonymous-p"), Epoch(0), name, producer))
            self.permits[key] = reply.permit
        return self.permits.get(key, 0)

    def group(self, *puts: tuple[str, bytes, int, int]) -> Callable[[], None]:
        """Work: puts that are made durable together."""

        def work() -> None:
            for put in puts:
                self.put(*put)
            self.commit()

        return work

    def send(self, known: Known, sent: Sent) -> None:
        """Send a put, maybe once more; the answer must be the first one again."""

        def accepted(reply: Reply) -> None:
            assert isinstance(reply, PutAccepted), reply
            assert known.topic_id in (None, reply.topic_id)
            if sent.receipt is not None:
                assert reply.duplicate
                assert reply.first_offset == sent.receipt.first_offset
            known.topic_id, sent.receipt = reply.topic_id, reply

        self.ask(sent.put, accepted, sent.body)

    def subscribe(self, client: ClientId, name: str) -> None:
        known = self.ledger.topic(name)
        seat = known.seats[client] = Seat()

        def subscribed(reply: Reply) -> None:
            assert isinstance(reply, Subscribed), reply
            known.topic_id, seat.made = reply.topic_id, reply
            seat.asked = seat.settled = reply.cursor

        self.ask(Subscribe(client, Epoch(self.ledger.epochs[client]), name), subscribed)

    def settle(self, client: ClientId, name: str, cursor: int, *, lazy: bool = False) -> None:
        """Settle, or get and settle by the way, which promises nothing yet."""
        seat = self.ledger.topic(name).seats[client]
        assert seat.made is not None
        seat.asked = Offset(cursor)
        moved = (Settled(name, seat.made.subscription_id, Offset(cursor)),)
        client_epoch = Epoch(self.ledger.epochs[client])
        if lazy:
            self.ask(Get(client, client_epoch, name, moved), lambda _: None)
            return

        def settled(reply: Reply) -> None:
            assert isinstance(reply, Done), reply
            seat.settled = Offset(cursor)

        self.ask(Settle(client, client_epoch, moved), settled)

    def unsubscribe(self, client: ClientId, name: str) -> None:
        seat = self.ledger.topic(name).seats[client]
        seat.ended = None
        reply = self.now_and(Unsubscribe(client, Epoch(self.ledger.epochs[client]), name))
        assert isinstance(reply, Unsubscribed)
        assert reply.ended
        seat.ended = True

    def delete(self, name: str) -> None:
        known = self.ledger.topic(name)
        known.deleted = None
        assert self.now_and(DeleteTopic(name)) == Done(changed=True)
        self.deletions[name] += 1
        known.deleted = True

    # after a crash

    def again(self) -> None:
        """Start again, and let the clients do what they do then."""
        self.open()
        self.repeat()

    def found(self) -> dict[TopicId, Found]:
        """Everything there is, read through the driver."""
        found: dict[TopicId, Found] = {}
        for topic in self.shard.topics.values():
            messages: dict[int, bytes] = {}
            offset = topic.low
            while offset < topic.end:
                answer = self.now_and(Read(topic.name, Offset(offset), 10**6, 1 << 30))
                assert not isinstance(answer, RefusedReply), answer
                for lost in answer[0].lost:
                    offset = lost.end_offset
                for head, body in zip(answer[0].batches, answer[1], strict=True):
                    parts = batch.payloads_of(bytes(body), head.count, head.columns)
                    messages.update(enumerate(parts, head.first_offset))
                    offset = head.first_offset + head.count
            cursors = {c: (s.id, s.cursor) for c, s in topic.subscriptions.items()}
            producers = {p: (e.last_sequence, e.recent) for p, e in topic.producers.items()}
            found[topic.id] = Found(topic.name, messages, cursors, producers)
        return found

    def epochs(self) -> dict[ClientId, int]:
        return {client: e.client_epoch for client, e in self.shard.clients.entries.items()}

    def repeat(self) -> None:
        """What clients do after a crash: ask again for all that was not answered, and go on."""
        found = self.found()
        for known in [each for each in self.ledger.topics if each.deleted is not True]:
            if known.deleted is None:
                known.deleted = known.topic_id not in found
            there = found.get(known.topic_id or TopicId(0))
            for client, seat in known.seats.items():
                if seat.ended is None:
                    seat.ended = there is None or client not in there.cursors
            if known.deleted:
                continue
            for client in [each for each, seat in known.seats.items() if not seat.made]:
                self.subscribe(client, known.name)
            last: dict[ProducerId, Sent] = {s.put.producer: s for s in known.sent if s.receipt}
            for sent in [*last.values(), *(s for s in known.sent if not s.receipt)]:
                self.send(known, sent)
        self.commit()
        assert not self.waiting
