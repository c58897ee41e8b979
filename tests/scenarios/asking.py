"""What clients say in a transcript: words on a line become a request and its body.

Each verb is a method here. What clients keep on their disks (epochs, numbers, permits,
subscription ids) is kept here, and named by nobody unless the line says otherwise: a word
`field=value` that the verb does not know by itself replaces that field of the request.
"""

from collections.abc import Callable
from inspect import signature

import msgspec

from oncemq.protocol.client_requests import (
    Compare,
    ForgetClient,
    KnownCommits,
    KnownNumbers,
    ListClients,
)
from oncemq.protocol.names import (
    STAGE_NAME,
    ClientId,
    Epoch,
    Generation,
    Offset,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicId,
    key_producer,
)
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import (
    ListeningAnswer,
    PutAccepted,
    Reply,
    Resumed,
    Subscribed,
    Welcome,
)
from oncemq.protocol.requests import (
    CommitRequest,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DropStage,
    Get,
    Hello,
    Input,
    Lease,
    Leave,
    Listen,
    ListSubscriptions,
    ListTopics,
    Piece,
    Put,
    Read,
    Request,
    Resume,
    Settle,
    Settled,
    ShowTopic,
    StagePut,
    Start,
    StatusRequest,
    Subscribe,
    Unsubscribe,
    WatchEnds,
)
from oncemq.protocol.step import Deliver
from oncemq.wire import batch

RETENTIONS = {
    "nothing": Retention(),
    "forever": Retention(forever=True),
    "1s": Retention(keep_ms=1000),
    "less": Retention(keep_ms=-1),
}

Asked = tuple[Request, bytes | None]


def identity(name: str) -> ProducerId:
    """A producer, or a stage, by a name that can be read in the transcript."""
    return ProducerId(name.encode().ljust(16, b".")[:16])


def span(text: str) -> tuple[str, int, int]:
    """`orders@2..4` is orders, 2 and 5: from where, up to where."""
    name, _, places = text.rpartition("@")
    first, _, last = places.partition("..")
    return name, int(first), int(last) + 1


def replaced(request: Request, fields: dict[str, str]) -> Request:
    """The request with other values in some of its fields."""
    kinds = {each.name: each.type for each in msgspec.structs.fields(type(request))}
    values: dict[str, object] = {}
    for name, value in fields.items():
        is_bytes = isinstance(getattr(request, name), bytes)
        kind = kinds[name]
        values[name] = value.encode() if is_bytes else msgspec.convert(value, kind, strict=False)
    return msgspec.structs.replace(request, **values)


class Asking:
    """The clients of one conversation, as far as they remember something."""

    def __init__(self, nonce: Callable[[], int]) -> None:
        self._epochs: dict[str, int] = {}
        self._sequences: dict[tuple[str, str], int] = {}
        self._topic_ids: dict[tuple[str, str], int] = {}
        self._permits: dict[tuple[str, str], int] = {}
        self._subscriptions: dict[tuple[str, str], int] = {}
        self._known: dict[str, int] = {}
        self._nonce = nonce  # of a hello that names none

    def ask(self, who: str, verb: str, words: list[str]) -> Asked:
        """The request that a line stands for."""
        words = [word.replace("from=", "begin=") for word in words]  # `from` is Python's
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        method = getattr(self, verb)
        own = {each for each in signature(method).parameters if each in options}
        request, body = method(who, *plain, **{name: options.pop(name) for name in own})
        if "epoch" in options:
            options["client_epoch"] = options.pop("epoch")
        return replaced(request, options) if options else request, body

    def remember(self, who: str, request: Request, answer: Reply | Deliver) -> None:
        """What a client keeps of an answer."""
        topic = str(getattr(request, "topic", ""))
        match answer:
            case Welcome(client_epoch=granted):
                self._epochs[who] = granted
            case Subscribed(subscription_id=subscription):
                self._subscriptions[who, topic] = subscription
            case PutAccepted(topic_id=topic_id):
                assert isinstance(request, Put)
                self._topic_ids[who, topic] = topic_id
                last = request.first_sequence + request.count - 1
                if not request.idempotency_key:
                    key = who, topic
                    self._sequences[key] = max(self._sequences.get(key, 0), last)
            case Resumed():
                self._topic_ids[who, topic] = answer.topic_id
                self._sequences[who, topic] = answer.last_sequence
                self._permits[who, topic] = answer.permit
            case ListeningAnswer(known=known):
                self._known[who] = known
            case _:
                pass

    def _epoch(self, who: str) -> Epoch:
        return Epoch(self._epochs.get(who, 0))

    def _of(self, who: str) -> tuple[ClientId, Epoch]:
        return ClientId(who), self._epoch(who)

    def _settled(self, who: str, places: str) -> tuple[Settled, ...]:
        found = [place.split("@") for place in places.split(",") if place]
        return tuple(
            Settled(topic, SubscriptionId(self._subscriptions[who, topic]), Offset(int(cursor)))
            for topic, cursor in found
        )

    # a client's start

    def hello(self, who: str, nonce: str = "", last: str = "") -> Asked:
        last_epoch = Epoch(int(last)) if last else self._epoch(who)
        return Hello(ClientId(who), last_epoch, int(nonce or self._nonce()), compares=True), None

    def compare(
        self,
        who: str,
        *places: str,
        generation: str,
        numbers: str = "",
        commits: str = "",
        ended: str = "",
    ) -> Asked:
        known = [each.split("#") for each in numbers.split(",") if each]
        committed = [each.split("#") for each in commits.split(",") if each]
        acknowledged = tuple(
            KnownNumbers(
                name, TopicId(self._topic_ids[who, name]), identity(who), Sequence(int(last))
            )
            for name, last in known
        )
        question = Compare(
            ClientId(who),
            Generation(int(generation)),
            self._epoch(who),
            self._settled(who, ",".join(places)),
            acknowledged,
            tuple(KnownCommits(owner, int(number)) for owner, number in committed),
            self._settled(who, ended),
        )
        return question, None

    def forget(self, _: str, client: str) -> Asked:
        return ForgetClient(ClientId(client)), None

    # puts

    def resume(self, who: str, topic: str) -> Asked:
        number = self._permits.get((who, topic), 0) + 1
        return Resume(*self._of(who), topic, identity(who), number), None

    def put(self, who: str, topic: str, *payloads: str, first: str = "", key: str = "") -> Asked:
        producer, last = identity(who), self._sequences.get((who, topic), 0)
        if key:
            producer, last = key_producer(key), 0
        number = int(first or last + 1)
        items = [payload.encode() for payload in payloads]
        body = batch.encode_payloads(items)
        seed = batch.seed(topic, producer, number, len(items))
        put = Put(
            *self._of(who), topic, TopicId(self._topic_ids.get((who, topic), 0)), producer, True,
            Sequence(number), len(items), 0, batch.checksum(body, seed),
            self._permits.get((who, topic), 0), key,
        )  # fmt: skip
        return put, body

    def stage(self, who: str, name: str, *payloads: str, first: str = "1") -> Asked:
        items = [payload.encode() for payload in payloads]
        body = batch.encode_payloads(items)
        seed = batch.seed(STAGE_NAME, identity(name), int(first), len(items))
        checksum, number = batch.checksum(body, seed), Sequence(int(first))
        return StagePut(*self._of(who), identity(name), number, len(items), 0, checksum), body

    def drop(self, who: str, name: str) -> Asked:
        return DropStage(*self._of(who), identity(name)), None

    def commit(self, who: str, name: str, *pieces: str, inputs: str = "") -> Asked:
        """`nightly#1 orders:rows@0..1`: number 1 of nightly gives orders two rows of a stage."""
        owner, _, number = name.partition("#")
        given: list[Piece] = []
        for piece in pieces:
            place, first, end = span(piece)
            topic, _, stage = place.partition(":")
            given.append(Piece(topic, identity(stage), Offset(first), end - first))
        settled: list[Input] = []
        for each in filter(None, inputs.split(",")):
            topic, first, end = span(each)
            subscription = SubscriptionId(self._subscriptions.get((who, topic), 0))
            settled.append(Input(topic, subscription, Offset(first), Offset(end)))
        lasting = not owner.startswith("_")
        named = owner, int(number), lasting
        return CommitRequest(*self._of(who), *named, tuple(given), tuple(settled)), None

    # subscriptions, and what they get

    def subscribe(self, who: str, topic: str, begin: str = "new") -> Asked:
        mode, _, value = begin.partition(":")
        return Subscribe(*self._of(who), topic, Start(mode, int(value or 0))), None

    def unsubscribe(self, who: str, topic: str) -> Asked:
        return Unsubscribe(*self._of(who), topic), None

    def lease(self, who: str, seconds: str) -> Asked:
        return Lease(*self._of(who), int(seconds) * 1000), None

    def settle(self, who: str, *places: str) -> Asked:
        return Settle(*self._of(who), self._settled(who, ",".join(places))), None

    def get(
        self, who: str, topic: str, settled: str = "", wait: str = "0", only: str = ""
    ) -> Asked:
        name = "" if topic == "any" else topic
        wait_ms = int(float(wait) * 1000)
        names = tuple(only.split(",")) if only else ()
        places = self._settled(who, settled)
        return Get(*self._of(who), name, places, limit=10, wait_ms=wait_ms, only=names), None

    def listen(self, who: str, *topics: str, settled: str = "", wait: str = "0") -> Asked:
        wait_ms, known = int(float(wait) * 1000), self._known.get(who, 0)
        return Listen(*self._of(who), topics, self._settled(who, settled), known, wait_ms), None

    def leave(self, who: str) -> Asked:
        return Leave(*self._of(who)), None

    # topics, and what there is

    def create(self, _: str, topic: str, keep: str = "nothing") -> Asked:
        return CreateTopic(topic, RETENTIONS[keep]), None

    def configure(self, _: str, topic: str, keep: str = "nothing") -> Asked:
        return ConfigureTopic(topic, RETENTIONS[keep]), None

    def delete(self, _: str, topic: str) -> Asked:
        return DeleteTopic(topic), None

    def topics(self, _: str) -> Asked:
        return ListTopics(), None

    def show(self, _: str, topic: str) -> Asked:
        return ShowTopic(topic), None

    def subscriptions(self, _: str, after: str = "") -> Asked:
        topic, _, client = after.partition("/")
        return ListSubscriptions(after=(topic, client)), None

    def clients(self, _: str) -> Asked:
        return ListClients(), None

    def status(self, _: str) -> Asked:
        return StatusRequest(), None

    def read(self, _: str, place: str) -> Asked:
        topic, _, offset = place.rpartition("@")
        return Read(topic, Offset(int(offset))), None

    def watch(self, _: str, *places: str, wait: str = "0") -> Asked:
        ends = [place.split("@") for place in places]
        topics = tuple((topic, Offset(int(end))) for topic, end in ends)
        return WatchEnds(topics, int(float(wait) * 1000)), None
