"""Transcripts: what a broker writes and answers, step by step, as text one can read.

Each file beside this one is a conversation. A line that begins with `>` is asked; the lines below
it are what must follow, word for word: `w` a record written, `r` a reply to a caller (`after n`:
it leaves once the log is durable up to serial n). Epochs, subscription ids and producers are kept
by the runner, as clients keep them. REWRITE=1 writes the files anew: read the difference.
"""

import os
import re
from itertools import count
from pathlib import Path

import pytest

from oncemq.core.broker import Broker
from oncemq.core.client_requests import Compare
from oncemq.core.names import (
    ClientId,
    Epoch,
    Generation,
    Micros,
    Offset,
    ProducerId,
    Sequence,
    Serial,
    TopicId,
)
from oncemq.core.records import Record, Retention
from oncemq.core.replies import Messages, PutAccepted, Refused, Reply, Resumed, Subscribed, Welcome
from oncemq.core.requests import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Get,
    Hello,
    Put,
    Request,
    Resume,
    Settle,
    Settled,
    Start,
    Subscribe,
    Unsubscribe,
)
from oncemq.core.shard import Shard
from oncemq.core.step import Caller, Deliver, Step
from oncemq.wire import batch

FILES = sorted(Path(__file__).parent.glob("*.txt"))
RETENTIONS = {
    "nothing": Retention(),
    "forever": Retention(forever=True),
    "1s": Retention(keep_ms=1000),
}


class Conversation:
    """A broker and everyone who talks to it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.durable = 0
        self.now = 1_000_000
        self.tokens = count(1)
        self.callers: dict[int, str] = {}
        self.epochs: dict[str, int] = {}
        self.sequences: dict[tuple[str, str], int] = {}
        self.topic_ids: dict[tuple[str, str], int] = {}
        self.permits: dict[tuple[str, str], int] = {}
        self.subscriptions: dict[tuple[str, str], int] = {}
        self.start()

    def start(self) -> None:
        self.shard = Shard(0)
        del self.records[self.durable :]
        for serial, record in enumerate(self.records, start=1):
            self.shard.apply(record, Serial(serial))
        self.broker = Broker(self.shard)
        self.broker.recovered(Micros(self.now))

    def do(self, line: str) -> list[str]:
        who, verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if who == "server":
            return self.tell(getattr(self, verb)(*plain))
        request, body = getattr(self, verb)(who, *plain, **options)
        token = next(self.tokens)
        self.callers[token] = who
        self.now += 1
        step = self.broker.handle(Caller(b"", token), request, body, Micros(self.now))
        self.remember(who, request, step)
        return self.tell(step)

    # the server's own

    def sync(self, upto: str = "") -> Step:
        self.durable = int(upto) if upto else len(self.records)
        return self.broker.synced(Serial(self.durable))

    def crash(self) -> Step:
        self.start()
        return Step()

    def back(self, generation: str) -> Step:
        """The server starts on an earlier state of its log, whose generation was raised."""
        self.start()
        return self.broker.begin_generation(Generation(int(generation)), Micros(self.now))

    def time(self, seconds: str) -> Step:
        self.now += int(float(seconds) * 1_000_000)
        return self.broker.tick(Micros(self.now))

    # what clients say

    def epoch(self, who: str) -> Epoch:
        return Epoch(self.epochs.get(who, 0))

    def hello(self, who: str, nonce: str = "", last: str = "") -> tuple[Request, None]:
        last_epoch = Epoch(int(last)) if last else self.epoch(who)
        number = int(nonce or len(self.records) + 100)
        return Hello(ClientId(who), last_epoch, number, compares=True), None

    def compare(self, who: str, *places: str, generation: str) -> tuple[Request, None]:
        cursors = self.settled(who, *places)
        return Compare(ClientId(who), Generation(int(generation)), cursors=cursors), None

    def resume(self, who: str, topic: str) -> tuple[Request, None]:
        number = self.permits.get((who, topic), 0) + 1
        return Resume(ClientId(who), self.epoch(who), topic, self.producer(who), number), None

    @staticmethod
    def producer(who: str) -> ProducerId:
        return ProducerId(who.encode().ljust(16, b".")[:16])

    def put(self, who: str, topic: str, *payloads: str, first: str = "") -> tuple[Request, bytes]:
        number = int(first) if first else self.sequences.get((who, topic), 0) + 1
        items = [payload.encode() for payload in payloads]
        body = batch.encode_payloads(items)
        seed = batch.seed(topic, self.producer(who), number, len(items))
        put = Put(
            ClientId(who), self.epoch(who), topic, TopicId(self.topic_ids.get((who, topic), 0)),
            self.producer(who), True, Sequence(number), len(items), 0, batch.checksum(body, seed),
            self.permits.get((who, topic), 0),
        )  # fmt: skip
        return put, body

    def subscribe(self, who: str, topic: str, **how: str) -> tuple[Request, None]:
        mode, _, value = how.get("from", "new").partition(":")
        start = Start(mode, int(value or 0))
        return Subscribe(ClientId(who), self.epoch(who), topic, start), None

    def unsubscribe(self, who: str, topic: str) -> tuple[Request, None]:
        return Unsubscribe(ClientId(who), self.epoch(who), topic), None

    def settled(self, who: str, *places: str) -> tuple[Settled, ...]:
        found = [place.split("@") for place in places]
        return tuple(
            Settled(topic, self.subscriptions[who, topic], Offset(int(cursor)))  # type: ignore[arg-type]
            for topic, cursor in found
        )

    def settle(self, who: str, *places: str) -> tuple[Request, None]:
        return Settle(ClientId(who), self.epoch(who), self.settled(who, *places)), None

    def get(
        self, who: str, topic: str, settled: str = "", wait: str = "0", epoch: str = ""
    ) -> tuple[Request, None]:
        places = self.settled(who, *settled.split(",")) if settled else ()
        name = "" if topic == "any" else topic
        granted = Epoch(int(epoch)) if epoch else self.epoch(who)
        wait_ms = int(float(wait) * 1000)
        return Get(ClientId(who), granted, name, places, limit=10, wait_ms=wait_ms), None

    def create(self, _: str, topic: str, keep: str = "nothing") -> tuple[Request, None]:
        return CreateTopic(topic, RETENTIONS[keep]), None

    def configure(self, _: str, topic: str, keep: str) -> tuple[Request, None]:
        return ConfigureTopic(topic, RETENTIONS[keep]), None

    def delete(self, _: str, topic: str) -> tuple[Request, None]:
        return DeleteTopic(topic), None

    def remember(self, who: str, request: Request, step: Step) -> None:
        for owed in step.replies:
            match owed.answer:
                case Welcome(client_epoch=granted):
                    self.epochs[who] = granted
                case Subscribed(subscription_id=subscription):
                    self.subscriptions[who, request.topic] = subscription  # type: ignore[attr-defined]
                case PutAccepted(topic_id=topic_id):
                    assert isinstance(request, Put)
                    self.topic_ids[who, request.topic] = topic_id
                    last = request.first_sequence + request.count - 1
                    key = (who, request.topic)
                    self.sequences[key] = max(self.sequences.get(key, 0), last)
                case Resumed():
                    assert isinstance(request, Resume)
                    self.topic_ids[who, request.topic] = owed.answer.topic_id
                    self.sequences[who, request.topic] = owed.answer.last_sequence
                    self.permits[who, request.topic] = owed.answer.permit
                case _:
                    pass

    # as text

    def tell(self, step: Step) -> list[str]:
        lines = []
        for write in step.writes:
            self.records.append(write.record)
            lines.append(f"  w {len(self.records)} {record_text(write.record)}")
        for owed in step.replies:
            caller = self.callers[owed.caller.token]
            after = f" after {owed.after}" if owed.after > self.durable else ""
            lines.append(f"  r {caller}{after}: {answer_text(owed.answer)}")
        return lines or ["  -"]


def record_text(record: Record) -> str:
    """The record without what differs from run to run: checksums and timestamps."""
    text = re.sub(r"(checksum|timestamp|created)=\d+,? ?", "", repr(record))
    text = text.replace(f", retention={Retention()!r}", "").replace(", )", ")")
    return re.sub(r"b'(\w+)\.*'", r"\1", text.replace("producer_epoch", "epoch"))


def answer_text(answer: Reply | Deliver) -> str:
    match answer:
        case Deliver(spans=spans):
            return "messages " + " ".join(
                f"{span.topic}@{span.start}..{span.end - 1}" for span in spans
            )
        case Messages(batches=()):
            return "nothing new"
        case Refused(code=code):
            return f"refused {code}"
        case Welcome(client_epoch=granted):
            return f"welcome, epoch {granted}"
        case _:
            return re.sub(r", sync_ms=0", "", repr(answer))


def played(script: str) -> str:
    """The script with what really followed each step."""
    conversation = Conversation()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("> "):
            lines += [line, *conversation.do(line[2:])]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path) -> None:
    script = path.read_text("utf-8")
    found = played(script)
    if os.environ.get("REWRITE"):
        path.write_text(found, "utf-8")
    assert found == script


def test_there_are_conversations() -> None:
    assert len(FILES) >= 8
