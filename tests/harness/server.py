"""A server without sockets: the driver over a real log in a directory of the test's own."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from oncemq.broker.broker import Broker
from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, TopicId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.replies import Messages, Reply
from oncemq.protocol.requests import Get, Put, Read, Request, Settled, Start, Subscribe
from oncemq.protocol.step import Body
from oncemq.server.driver import Driver
from oncemq.server.recovery import fold
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.log.checkpoint import CheckpointJob
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.wire import batch, codec
from tests.harness.quick_disk import QuickDisk

GUEST = ClientId("_anonymous-1")
WRITER = ClientId("_anonymous-2")
PRODUCER = ProducerId(b"p" * 16)


class Host:
    """Hands frames to a driver and commits when told to."""

    def __init__(
        self, directory: Path, options: LogOptions | None = None, rules: ServerLimits | None = None
    ) -> None:
        self.directory = directory
        self.disk = QuickDisk()
        self.options = options or LogOptions(segment_bytes=1 << 20, allocate_bytes=1 << 16)
        self.rules = rules or ServerLimits()
        self.now = 1_000_000_000
        self.tokens = count(1)
        self.sequences: dict[tuple[str, bytes], int] = {}
        self.start()

    def start(self) -> None:
        opened = open_log(
            self.disk, str(self.directory), self.options, random_bytes=lambda n: b"\5" * n
        )
        self.log: Log = opened.log
        shard = Shard(opened.log.tag)  # what it keeps is not looked for: tests damage it
        fold(shard, opened.states, opened.checkpoint_end, opened.replay)
        shard.serial = opened.log.last_serial
        self.broker = Broker(shard, self.rules)
        self.broker.recovered(Micros(self.now))
        self.driver = Driver(self.broker, opened.log)

    def restart(self) -> None:
        """What was not committed is gone, and so are the replies that waited for it."""
        self.log.close()
        self.start()

    def send(self, request: Request, body: bytes | None = None) -> int:
        """A request comes in; its token."""
        token = next(self.tokens)
        self.driver.receive(b"route", codec.encode_request(token, request, body), Micros(self.now))
        return token

    def replies(self) -> dict[int, tuple[Reply, Sequence[Body]]]:
        """What left since the last time, by token."""
        outgoing, self.driver.outgoing = self.driver.outgoing, []
        decoded = [codec.decode_reply(frames) for route, frames in outgoing if route == b"route"]
        assert len(decoded) == len(outgoing)
        return {token: (reply, bodies) for token, reply, bodies in decoded}

    def commit(self, *, later: int = 1_000_000) -> None:
        """Make durable what was gathered; `later` is how long it may have gathered."""
        group = self.driver.commit(Micros(self.now + later))
        if group is not None:
            self.log.write(group)
            self.driver.written(group, Micros(self.now))

    def ask(self, request: Request, body: bytes | None = None) -> Reply:
        """The reply to a request, once everything is durable."""
        return self.ask_all(request, body)[0]

    def ask_all(self, request: Request, body: bytes | None = None) -> tuple[Reply, Sequence[Body]]:
        token = self.send(request, body)
        self.commit()
        return self.replies()[token]

    def compact(self) -> int:
        """Checkpoint twice, then compact all that is worth it; how many jobs that took."""
        for _ in range(2):
            self.driver.mark(Micros(self.now))
            self.commit()
            writer = self.log.begin_checkpoint()
            for blob in snapshot.capture(self.broker.shard):
                writer.add(blob)
            self.run(writer.finish())
        jobs = 0
        while (job := self.log.plan(self.live)) is not None:
            self.run(job)
            jobs += 1
        return jobs

    def run(self, job: CheckpointJob | CompactionJob) -> None:
        job.run()
        self.log.complete(job)
        job.clean()

    def live(self, topic_id: int) -> LiveShare | None:
        live = self.broker.shard.live(TopicId(topic_id))
        return None if live is None else LiveShare(*live)

    def putting(
        self, topic: str, *payloads: bytes, producer: bytes = PRODUCER, first: int | None = None
    ) -> tuple[Put, bytes]:
        if first is None:
            first = self.sequences.get((topic, producer), 0) + 1
        body = batch.encode_payloads(payloads)
        seed = batch.seed(topic, producer, first, len(payloads))
        put = Put(
            WRITER, Epoch(0), topic, TopicId(0), ProducerId(producer), True, Number(first),
            len(payloads), 0, batch.checksum(body, seed),
        )  # fmt: skip
        return put, body

    def put(self, topic: str, *payloads: bytes, producer: bytes = PRODUCER) -> Reply:
        put, body = self.putting(topic, *payloads, producer=producer)
        self.sequences[topic, producer] = put.first_sequence + put.count - 1
        self.now += 1
        return self.ask(put, body)

    def subscribe(self, topic: str, start: Start | None = None) -> Reply:
        return self.ask(Subscribe(GUEST, Epoch(0), topic, start or Start()))

    @staticmethod
    def getting(
        topic: str = "", *, settled: tuple[Settled, ...] = (), limit: int = 100,
        bytes_max: int = 1 << 20, wait_ms: int = 0, start: int = -1,
    ) -> Get:  # fmt: skip
        return Get(GUEST, Epoch(0), topic, settled, start, limit, bytes_max, wait_ms)

    def get(self, topic: str = "", **how: int) -> list[str]:
        """What a get brings, each message as topic@offset=payload; every batch verified."""
        reply, bodies = self.ask_all(self.getting(topic, **how))  # type: ignore[arg-type]
        assert isinstance(reply, Messages), reply
        return messages(reply, bodies)

    def read(self, topic: str) -> list[bytes]:
        """Everything a topic holds, read by offset."""
        known = self.broker.shard.by_name[topic]
        found: list[str] = []
        offset = known.low
        while offset < known.visible:
            reply, bodies = self.ask_all(Read(topic, offset, 10**6, 1 << 30))
            assert isinstance(reply, Messages), reply
            found += messages(reply, bodies)
            last = reply.batches[-1]
            offset = Offset(last.first_offset + last.count)
        return [text.partition("=")[2].encode() for text in found]


def messages(reply: Messages, bodies: Sequence[Body]) -> list[str]:
    found: list[str] = []
    for head, body in zip(reply.batches, bodies, strict=True):
        run = head.runs[0]
        seed = batch.seed(head.topic, run.producer, run.first_sequence, head.count)
        assert batch.checksum(body, seed) == head.checksum
        assert sum(run.count for run in head.runs) == head.count
        payloads = batch.payloads_of(body, head.count, head.columns)
        found += [
            f"{head.topic}@{offset}={payload.decode()}"
            for offset, payload in enumerate(payloads, head.first_offset)
        ]
    return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "data")
    yield host
    host.log.close()


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[object]:
    hosts: list[Host] = []

    def make(options: LogOptions | None = None, rules: ServerLimits | None = None) -> Host:
        hosts.append(Host(tmp_path / f"data{len(hosts)}", options, rules))
        return hosts[-1]

    yield make
    for each in hosts:
        each.log.close()
