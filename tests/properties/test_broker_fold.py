"""The fold: the state that was live is the state any recovery arrives at, wherever it begins."""

from collections.abc import Iterator

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncemq.broker.broker import Broker
from oncemq.broker.expiry import Calendar
from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.client_requests import ForgetClient
from oncemq.protocol.generations import continued
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    Serial,
    TopicId,
    key_producer,
)
from oncemq.protocol.records import Record, Retention, StageMade, SubscriptionMade, TopicCreated
from oncemq.protocol.replies import (
    CommitDone,
    PutAccepted,
    RefusedReply,
    Resumed,
    StagedReply,
    Subscribed,
    Welcome,
)
from oncemq.protocol.requests import (
    CommitRequest,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DropStage,
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
from oncemq.protocol.step import Caller, Step

STAGES = st.sampled_from(["s", "t"])
KEY_MICROS = 85_000_000_000  # a `forget` passes more time than that

TOPICS = st.sampled_from(["a", "a", "a", "b"])
CLIENTS = st.sampled_from(["one", "one", "two", "_anonymous-x"])
RETENTIONS = st.sampled_from([Retention(), Retention(forever=True), Retention(keep_ms=1)])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), TOPICS, CLIENTS, st.sampled_from(["new", "earliest"])),
        st.tuples(st.just("unsubscribe"), TOPICS, CLIENTS),
        st.tuples(st.just("put"), TOPICS, CLIENTS, st.integers(1, 3), st.booleans()),
        st.tuples(st.just("put_keyed"), TOPICS, st.sampled_from(["k", "l"])),
        st.tuples(st.just("stage"), STAGES, CLIENTS, st.integers(1, 3)),
        st.tuples(
            st.just("commit"),
            st.sampled_from(["job", "_p"]),
            CLIENTS,
            st.lists(st.tuples(TOPICS, STAGES), max_size=4),
            st.integers(0, 2),
            st.booleans(),
        ),
        st.tuples(st.just("drop"), STAGES),
        st.tuples(st.just("settle"), TOPICS, CLIENTS, st.integers(0, 9)),
        st.tuples(st.just("hello"), st.sampled_from(["one", "two"])),
        st.tuples(st.just("create"), TOPICS, RETENTIONS),
        st.tuples(st.just("configure"), TOPICS, RETENTIONS),
        st.tuples(st.just("delete"), TOPICS),
        st.tuples(st.just("retain"), TOPICS, st.integers(0, 9)),
        st.tuples(st.just("forget")),
        st.tuples(st.just("forget_client"), CLIENTS),
        st.tuples(st.just("set_forward"), st.sampled_from((9, 3_000_000, 8 * 86_400_000_000))),
        st.tuples(st.just("mark")),
        st.tuples(st.just("begin")),
        st.tuples(st.just("capture"), st.integers(0, 4)),
    ),
    min_size=10,
    max_size=80,
)


def fold(
    records: list[Record], blobs: tuple[bytes, ...] = (), *, begin: int = 0, end: int = 0
) -> Shard:
    """What a recovery makes of a checkpoint (begun and ended there) and the records after it."""
    shard = Shard(7)
    for blob in blobs:
        snapshot.restore(shard, blob)
    shard.checkpointed = Serial(end)
    for serial, record in enumerate(records[begin:], start=begin + 1):
        shard.apply(record, Serial(serial))
    shard.serial = Serial(len(records))
    shard.recovered()
    return shard


def everything(shard: Shard) -> object:
    """All that a shard knows, ready to compare."""
    shard.stages.release(shard.low_of, len(shard.stages))  # needs no record: it is so for good
    return (
        sorted(snapshot.capture(shard)),
        shard.serial,
        shard.next_identity(),
        shard.last_timestamp,
        sorted(shard.guests.items()),
        set(shard.keys),
        {name: topic.id for name, topic in shard.by_name.items()},
        {client: set(topics) for client, topics in shard.by_client.items()},
        {topic.id: topic.low for topic in shard.topics.values()},
        sorted(shard.stages.by_name),
        [stage.id for stage in shard.stages.silent_since(Micros(1 << 62), 99)],
        list(shard.owners.guests),
    )


def _identities(record: Record) -> list[int]:
    if isinstance(record, TopicCreated):
        return [record.topic_id]
    if isinstance(record, StageMade):
        return [record.stage_id]
    return [record.subscription_id] if isinstance(record, SubscriptionMade) else []


class Live:
    """A broker at work, with its log, and the checkpoints taken beside the work."""

    def __init__(self) -> None:
        self.shard = Shard(7)
        self.broker = Broker(self.shard, ServerLimits(idempotency_ms=KEY_MICROS // 1000))
        self.records: list[Record] = []
        self.now = 10**12
        self.ahead = 0
        self.epochs: dict[str, int] = {}
        self.sequences: dict[tuple[int, str, bool], int] = {}
        self.permits: dict[tuple[str, bytes], int] = {}
        self.numbers: dict[str, int] = {}
        self.keyed: dict[tuple[int, str], int] = {}  # when each key was last used afresh
        self.subscriptions: dict[tuple[str, str], int] = {}
        self.lows: dict[int, int] = {}
        self.identities: set[int] = set()
        self.capture: Iterator[bytes] | None = None
        self.blobs: list[bytes] = []
        self.begun = 0
        self.checkpoints: list[tuple[tuple[bytes, ...], int, int]] = []
        self.snapshots: list[tuple[int, object]] = []

    def note(self, step: Step) -> None:
        for record in (write.record for write in step.writes):
            self.records.append(record)
            for identity in _identities(record):
                assert identity not in self.identities, "given twice"
                self.identities.add(identity)

    def ask(self, request: Request, body: bytes | None = None) -> object:
        step = self.broker.handle(Caller(b"", 1), request, body, Micros(self.now))
        self.note(step)
        return step.replies[-1].answer

    def do(self, step: tuple) -> None:
        getattr(self, step[0])(*step[1:])
        self.now += 1000
        for topic in self.shard.topics.values():
            assert topic.low >= self.lows.get(topic.id, 0), "what was let go came back"
            assert topic.trimmed <= topic.end
            assert topic.low <= topic.settled <= topic.end
            cursors = (each.cursor for each in topic.subscriptions.values())
            assert topic.settled == min(cursors, default=topic.end)
            self.lows[topic.id] = topic.low

    def epoch(self, client: str) -> Epoch:
        if client not in self.epochs and not client.startswith("_"):
            self.hello(client)
        return Epoch(self.epochs.get(client, 0))

    def hello(self, client: str) -> None:
        last = Epoch(self.epochs.get(client, 0))
        welcome = self.ask(Hello(ClientId(client), last, self.now, compares=True))
        assert isinstance(welcome, Welcome)
        self.epochs[client] = welcome.client_epoch

    def subscribe(self, topic: str, client: str, start: str) -> None:
        reply = self.ask(Subscribe(ClientId(client), self.epoch(client), topic, Start(start)))
        assert isinstance(reply, Subscribed)
        self.subscriptions[topic, client] = reply.subscription_id

    def unsubscribe(self, topic: str, client: str) -> None:
        self.ask(Unsubscribe(ClientId(client), self.epoch(client), topic))

    def put(self, topic: str, client: str, count: int, lasting: bool) -> None:
        known = self.shard.by_name.get(topic)
        key = (known.id if known else 0, client, lasting)
        first = self.sequences.get(key, 0) + 1
        producer = ProducerId(f"{client}{lasting}".encode().ljust(16, b".")[:16])
        put = Put(
            ClientId(client), self.epoch(client), topic, TopicId(0), producer, lasting,
            Sequence(first), count, 0, first, self.permits.get((topic, producer), 0),
        )  # fmt: skip
        reply = self.ask(put, b"body")
        if isinstance(reply, RefusedReply):  # a topic of this name was deleted
            assert reply.code == "outdated"
            resumed = self.ask(Resume(put.client, put.client_epoch, topic, producer))
            assert isinstance(resumed, Resumed)
            self.permits[topic, producer] = resumed.permit
            reply = self.ask(msgspec.structs.replace(put, permit=resumed.permit), b"body")
        self.sequences[self.shard.by_name[topic].id, client, lasting] = first + count - 1
        assert reply.count == count  # type: ignore[attr-defined]

    def put_keyed(self, topic: str, key: str) -> None:
        reply = self.ask(
            Put(
                ClientId("_anonymous-x"), Epoch(0), topic, TopicId(0), key_producer(key), False,
                Sequence(1), 2, 0, 77, idempotency_key=key,
            ),
            b"body",
        )  # fmt: skip
        assert isinstance(reply, PutAccepted)
        known = self.shard.by_name[topic].id
        assert reply.duplicate == (self.keyed.get((known, key), 0) + KEY_MICROS > self.now)
        if not reply.duplicate:
            self.keyed[known, key] = self.now

    def stage(self, stage: str, client: str, count: int) -> None:
        name = ProducerId(stage.encode() * 16)
        known = self.shard.stages.by_name.get(name)
        first = known.end + 1 if known else 1
        put = StagePut(ClientId(client), self.epoch(client), name, Sequence(first), count, 0, first)
        assert isinstance(self.ask(put, b"body" * count), StagedReply)

    def commit(
        self, owner: str, client: str, pieces: list[tuple[str, str]], step: int, closing: bool
    ) -> None:
        """Publish all that is staged, and settle all that there is of "a"."""
        named: list[Piece] = []
        for topic, stage in pieces:
            known = self.shard.stages.by_name.get(ProducerId(stage.encode() * 16))
            if known is not None and known.end > known.published:
                size = known.end - known.published
                named.append(Piece(topic, known.name, known.published, size))
        inputs: list[Input] = []
        topic = self.shard.by_name.get("a")
        if topic is not None and ClientId(client) in topic.subscriptions:
            each = topic.subscriptions[ClientId(client)]
            inputs.append(Input("a", each.id, each.cursor, topic.end))
        number = self.numbers.get(owner, 0) + step
        lasting = not owner.startswith("_")
        unique = tuple(dict.fromkeys(named))
        reply = self.ask(
            CommitRequest(
                ClientId(client), self.epoch(client), owner, max(1, number), lasting, unique,
                tuple(inputs), closing,
            )
        )  # fmt: skip
        assert isinstance(reply, CommitDone)
        self.numbers[owner] = max(1, number)

    def drop(self, stage: str) -> None:
        self.ask(DropStage(ClientId("_anonymous-x"), Epoch(0), ProducerId(stage.encode() * 16)))

    def settle(self, topic: str, client: str, cursor: int) -> None:
        subscription = self.subscriptions.get((topic, client), 0)
        known = self.shard.by_name.get(topic)
        cursor = min(cursor, known.end if known else 0)
        settled = (Settled(topic, subscription, Offset(cursor)),)  # type: ignore[arg-type]
        self.ask(Settle(ClientId(client), self.epoch(client), settled))

    def create(self, topic: str, retention: Retention) -> None:
        self.ask(CreateTopic(topic, retention))

    def configure(self, topic: str, retention: Retention) -> None:
        self.ask(ConfigureTopic(topic, retention))

    def delete(self, topic: str) -> None:
        self.ask(DeleteTopic(topic))

    def retain(self, name: str, end: int) -> None:
        topic = self.shard.by_name.get(name)
        if topic is not None:
            extents = [(Offset(0), Offset(min(end, topic.end)), Micros(0), 1)]
            self.note(self.broker.retain(topic, extents, Micros(self.now)))

    def forget(self) -> None:
        self.now += 90_000_000_000
        self.note(self.broker.forget_guests(Micros(self.now)))
        self.sequences = {key: last for key, last in self.sequences.items() if self._known(*key)}

    def _known(self, topic_id: int, client: str, lasting: bool) -> bool:
        producer = ProducerId(f"{client}{lasting}".encode().ljust(16, b".")[:16])
        topic = self.shard.topics.get(TopicId(topic_id))
        return topic is not None and producer in topic.producers

    def forget_client(self, client: str) -> None:
        self.ask(ForgetClient(ClientId(client), ending=True))
        self.epochs.pop(client, None)

    def set_forward(self, micros: int) -> None:
        """The wall's clock is set, and believed; no time passes."""
        self.ahead += micros
        self.note(self.broker.keep_time(Calendar(self.ahead, self.ahead), Micros(self.now)))

    def mark(self) -> None:
        self.note(self.broker.mark())

    def begin(self) -> None:
        """The server starts on a log whose generation was raised; everyone says hello again."""
        generation = continued(self.shard.generation, self.now)
        self.note(self.broker.begin_generation(generation, Micros(self.now)))
        for client in self.shard.clients.entries:
            self.hello(client)

    def capture_some(self, count: int) -> None:
        """Begin a checkpoint, or go on with it, a few values at a time."""
        if self.capture is None:
            self.capture, self.blobs = snapshot.capture(self.shard), []
            self.begun = len(self.records)
            self.snapshots.append((len(self.records), everything(self.shard)))
        for _ in range(count):
            blob = next(self.capture, None)
            if blob is None:
                self.checkpoints.append((tuple(self.blobs), self.begun, len(self.records)))
                self.capture = None
                return
            self.blobs.append(blob)


@given(STEPS)
@example(
    [
        *(("create", "a", Retention()), ("put", "a", "two", 1, False), ("capture", 2)),
        *(("delete", "a"), ("put", "a", "two", 1, False), ("delete", "a"), ("forget",)),
        *(("put", "a", "one", 1, False), ("delete", "a")),
    ]
)
@settings(max_examples=1_000)
def test_every_recovery_arrives_at_the_state_that_was_live(steps: list[tuple]) -> None:
    live = Live()
    for step in steps:
        if step[0] == "capture":
            live.capture_some(step[1])
        else:
            live.do(step)
    while live.capture is not None:
        live.capture_some(1)
    live.snapshots.append((len(live.records), everything(live.shard)))

    for serial, as_it_was in live.snapshots:  # a crash that lost the rest
        assert everything(fold(live.records[:serial])) == as_it_was
    for blobs, begin, end in live.checkpoints:
        assert everything(fold(live.records, blobs, begin=begin, end=end)) == as_it_was
