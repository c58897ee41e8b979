"""A desk: one broker, what it wrote, and the words to ask it with."""

from itertools import count

import msgspec
import pytest

from oncemq.broker.broker import Broker
from oncemq.broker.state.shard import Shard
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    Serial,
    SubscriptionId,
    TopicId,
    key_producer,
)
from oncemq.protocol.records import Record, Retention
from oncemq.protocol.replies import Reply, Resumed, Subscribed, Welcome
from oncemq.protocol.requests import (
    CommitRequest,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Get,
    Hello,
    Input,
    Piece,
    Put,
    Request,
    Resume,
    Settle,
    Settled,
    StagePut,
    Start,
    Subscribe,
    Unsubscribe,
)
from oncemq.protocol.step import Caller, Deliver, Owed, Step
from oncemq.wire import batch

SECOND = 1_000_000


class Desk:
    """Asks a broker as clients do, and remembers the log it would have."""

    def __init__(self, rules: ServerLimits | None = None, records: tuple[Record, ...] = ()) -> None:
        self.shard = Shard(7)
        self.records: list[Record] = list(records)
        for serial, record in enumerate(records, start=1):
            self.shard.apply(record, Serial(serial))
        self.broker = Broker(self.shard, rules)
        self.broker.recovered(Micros(0))
        self.durable = len(records)
        self.now = 1_000 * SECOND
        self.epochs: dict[str, int] = {}
        self.sequences: dict[tuple[str, bytes], int] = {}
        self.permits: dict[tuple[str, bytes], int] = {}
        self.tokens = count(1)

    # asking

    def step(self, request: Request, body: bytes | None = None) -> Step:
        """What the broker decides about a request."""
        caller = Caller(b"route", next(self.tokens))
        return self.note(self.broker.handle(caller, request, body, Micros(self.now)))

    def note(self, step: Step) -> Step:
        self.records += [write.record for write in step.writes]
        assert self.shard.serial == len(self.records)
        return step

    def owed(self, request: Request, body: bytes | None = None) -> Owed:
        """The one reply to a request."""
        (owed,) = self.step(request, body).replies
        return owed

    def ask(self, request: Request, body: bytes | None = None) -> Reply | Deliver:
        return self.owed(request, body).answer

    # time

    def sync(self) -> list[Owed]:
        """Everything written is durable now."""
        self.durable = len(self.records)
        return self.note(self.broker.synced(Serial(self.durable))).replies

    def pass_time(self, seconds: float) -> list[Owed]:
        self.now += int(seconds * SECOND)
        return self.note(self.broker.tick(Micros(self.now))).replies

    def crash(self) -> "Desk":
        """A server that starts again from what was durable."""
        after = Desk(self.broker.rules, tuple(self.records[: self.durable]))
        after.now, after.epochs = self.now, self.epochs
        after.sequences = self.sequences
        return after

    # words

    def hello(self, client: str, *, last: int = 0, nonce: int | None = None) -> Reply | Deliver:
        nonce = next(self.tokens) + 1_000_000 if nonce is None else nonce
        answer = self.ask(Hello(ClientId(client), Epoch(last), nonce, compares=True))
        if isinstance(answer, Welcome):
            self.epochs[client] = answer.client_epoch
        return answer

    def epoch(self, client: str) -> Epoch:
        if client not in self.epochs and not client.startswith("_"):
            self.hello(client)
        return Epoch(self.epochs.get(client, 0))

    def putting(
        self,
        topic: str,
        *payloads: bytes,
        first: int | None = None,
        client: str = "publisher",
        producer: bytes = b"p",
        topic_id: int = 0,
        lasting: bool = True,
        required: bool = False,
    ) -> tuple[Put, bytes]:
        """A put with the producer's next numbers, or with the ones given."""
        producer = ProducerId(producer.ljust(16, b"."))
        if first is None:
            first = self.sequences.get((topic, producer), 0) + 1
            self.sequences[topic, producer] = first + len(payloads) - 1
        body = batch.encode_payloads(payloads)
        put = Put(
            client=ClientId(client),
            client_epoch=self.epoch(client),
            topic=topic,
            topic_id=TopicId(topic_id),
            producer=producer,
            lasting=lasting,
            first_sequence=Sequence(first),
            count=len(payloads),
            columns=0,
            checksum=batch.checksum(body, batch.seed(topic, producer, first, len(payloads))),
            permit=self.permits.get((topic, producer), 0),
            required=required,
        )
        return put, body

    def put(self, topic: str, *payloads: bytes, **how: object) -> Reply | Deliver:
        return self.ask(*self.putting(topic, *payloads, **how))  # type: ignore[arg-type]

    def put_keyed(
        self, topic: str, key: str, *payloads: bytes, client: str = "_anonymous-1", **how: object
    ) -> Reply | Deliver:
        """A put under an idempotency key, as any process would make it."""
        producer = key_producer(key)
        body = batch.encode_payloads(payloads)
        checksum = batch.checksum(body, batch.seed(topic, producer, 1, len(payloads)))
        put = Put(
            ClientId(client), self.epoch(client), topic, TopicId(0), producer, False, Sequence(1),
            len(payloads), 0, checksum, idempotency_key=key,
        )  # fmt: skip
        return self.ask(msgspec.structs.replace(put, **how), body)

    def stage(
        self, name: bytes, *payloads: bytes, first: int | None = None, client: str = "publisher"
    ) -> Reply | Deliver:
        """Put into a stage, under its next numbers or the ones given."""
        stage = ProducerId(name.ljust(16, b"."))
        if first is None:
            first = self.sequences.get(("", stage), 0) + 1
            self.sequences["", stage] = first + len(payloads) - 1
        body = batch.encode_payloads(payloads)
        checksum = batch.checksum(body, batch.seed("", stage, first, len(payloads)))
        return self.ask(
            StagePut(
                ClientId(client), self.epoch(client), stage, Sequence(first), len(payloads), 0,
                checksum,
            ),
            body,
        )  # fmt: skip

    def committing(
        self,
        *pieces: tuple[str, bytes, int, int],
        owner: str = "job",
        number: int = 1,
        inputs: tuple[tuple[str, int, int], ...] = (),
        client: str = "publisher",
        closing: bool = True,
        required: bool = False,
    ) -> CommitRequest:
        """A commit of (topic, stage, start, count), settling (topic, first, cursor)."""
        settled: list[Input] = []
        for topic, first, cursor in inputs:
            subscription = self.shard.by_name[topic].subscriptions[ClientId(client)].id
            settled.append(Input(topic, subscription, Offset(first), Offset(cursor)))
        named = [
            Piece(topic, ProducerId(stage.ljust(16, b".")), Offset(start), count)
            for topic, stage, start, count in pieces
        ]
        return CommitRequest(
            ClientId(client), self.epoch(client), owner, number, not owner.startswith("_"),
            tuple(named), tuple(settled), closing, required=required,
        )  # fmt: skip

    def commit(self, *pieces: tuple[str, bytes, int, int], **how: object) -> Reply | Deliver:
        return self.ask(self.committing(*pieces, **how))  # type: ignore[arg-type]

    def resume(self, topic: str, client: str = "publisher") -> Reply | Deliver:
        producer = ProducerId(b"p".ljust(16, b"."))
        number = next(self.tokens)
        answer = self.ask(Resume(ClientId(client), self.epoch(client), topic, producer, number))
        if isinstance(answer, Resumed):
            self.permits[topic, producer] = answer.permit
        return answer

    def subscribe(
        self, topic: str, client: str = "billing", start: Start | None = None
    ) -> Reply | Deliver:
        begin = start or Start()
        return self.ask(Subscribe(ClientId(client), self.epoch(client), topic, begin))

    def subscription(self, topic: str, client: str = "billing", start: Start | None = None) -> int:
        """Subscribe; the new subscription's id."""
        reply = self.subscribe(topic, client, start)
        assert isinstance(reply, Subscribed)
        assert reply.made
        return reply.subscription_id

    def unsubscribe(self, topic: str, client: str = "billing") -> Reply | Deliver:
        return self.ask(Unsubscribe(ClientId(client), self.epoch(client), topic))

    def getting(
        self,
        topic: str = "",
        client: str = "billing",
        *,
        settled: tuple[Settled, ...] = (),
        start: int = -1,
        limit: int = 100,
        wait: float = 0,
        only: tuple[str, ...] = (),
    ) -> Get:
        return Get(
            ClientId(client), self.epoch(client), topic, settled, start, limit,
            wait_ms=int(wait * 1000), only=only,
        )  # fmt: skip

    def get(self, topic: str = "", client: str = "billing", **how: object) -> Reply | Deliver:
        return self.ask(self.getting(topic, client, **how))  # type: ignore[arg-type]

    def spans(self, topic: str = "", client: str = "billing", **how: object) -> dict[str, range]:
        """What a get is owed: offsets by topic."""
        answer = self.get(topic, client, **how)
        assert isinstance(answer, Deliver), answer
        return {span.topic: range(span.start, span.end) for span in answer.spans}

    def settle(self, *settled: Settled, client: str = "billing") -> Reply | Deliver:
        return self.ask(Settle(ClientId(client), self.epoch(client), settled))

    def cursor(self, topic: str, client: str = "billing") -> int:
        return self.shard.by_name[topic].subscriptions[ClientId(client)].cursor

    def create(self, topic: str, retention: Retention | None = None) -> Reply | Deliver:
        return self.ask(CreateTopic(topic, retention or Retention()))

    def configure(self, topic: str, retention: Retention) -> Reply | Deliver:
        return self.ask(ConfigureTopic(topic, retention))

    def delete(self, topic: str) -> Reply | Deliver:
        return self.ask(DeleteTopic(topic))

    @staticmethod
    def settled(topic: str, subscription_id: int, cursor: int) -> Settled:
        return Settled(topic, SubscriptionId(subscription_id), Offset(cursor))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def make_desk() -> type[Desk]:
    return Desk
