"""Kafka with three replicas, `min.insync.replicas=2` and acks=all: through Maven, where it is.

Three brokers, each a controller too (KRaft), with small heaps. A topic with `flush.messages=1`
syncs each message before its answer; by default Kafka syncs nothing.
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster.nats import client_library
from benchmarks.cluster.servers import ROOT, Missing, answers, free_port, process, until
from benchmarks.lab import Lab

JARS = ROOT / "build" / "kafka"
HEAP = ("-Xmx384m", "-Xms384m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
CLUSTER_ID = "b25jZW1xLWJlbmNoLTEyMw"
PROPERTIES = """process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
"""


class Kafka:
    """A client of the brokers; its topics have one partition, as ours have one order."""

    def __init__(self, servers: str, *, synced: bool) -> None:
        self._kafka = client_library("confluent_kafka")
        self._servers, self._synced = servers, synced
        how = {"bootstrap.servers": servers, "log_level": 0}  # its servers end before it does
        how |= {"acks": "all", "enable.idempotence": True}
        large = {"message.max.bytes": 8_000_000, "queue.buffering.max.kbytes": 256 << 10}
        self._one = self._kafka.Producer({**how, "linger.ms": 0})
        self._many = self._kafka.Producer({**how, **large, "batch.size": 1 << 20, "linger.ms": 5})

    def create(self, topic: str) -> None:
        """With three replicas."""
        admin = client_library("confluent_kafka.admin").admin
        config = {"flush.messages": "1"} if self._synced else {}
        made = admin.NewTopic(topic, 1, 3, config={**config, "max.message.bytes": "8000000"})
        client = admin.AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        until(lambda: self._is_made(client, made), "Kafka takes topics")

    def put(self, topic: str, payload: bytes) -> None:
        """And wait for its answer."""
        self._one.produce(topic, payload, on_delivery=_must)
        if self._one.flush(30):
            raise Missing("Kafka did not answer a put")

    def put_many(self, topic: str, payload: bytes, count: int) -> None:
        """So many, and wait for all of their answers."""
        produce, poll = self._many.produce, self._many.poll
        for _ in range(count):
            while True:
                try:
                    produce(topic, payload)
                    break
                except BufferError:
                    poll(0.05)
        if self._many.flush(120):
            raise Missing("Kafka did not answer all puts")

    def get_many(self, topic: str, count: int, batch: int) -> None:
        """All of a topic from its beginning; each batch is committed."""
        reader, got = self._reader(topic), 0
        while got < count:
            messages = reader.consume(min(batch, count - got), 30)
            got += len(messages)
            reader.commit(asynchronous=False)
        reader.close()

    def latencies(self, topic: str, count: int, step: float, payload: int) -> list[float]:
        """From a put, so many seconds after the one before, until a subscriber has it."""
        reader, times = self._reader(topic), list[float]()
        self.put(topic, bytes(payload))
        reader.consume(1, 30)

        def hear() -> None:
            while len(times) < count:
                message = reader.poll(30)
                sent = int.from_bytes(message.value()[:8], "big")
                times.append((time.monotonic_ns() - sent) / 1e9)

        hearing = threading.Thread(target=hear)
        hearing.start()
        for _ in range(count):
            stamp = time.monotonic_ns().to_bytes(8, "big")
            self.put(topic, stamp + bytes(payload - 8))
            time.sleep(step)
        hearing.join()
        reader.close()
        return times

    def close(self) -> None:
        for producer in (self._one, self._many):
            producer.flush(5)

    def _reader(self, topic: str) -> Any:
        reader = self._kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "log_level": 0,
                "group.id": f"{topic}-{time.monotonic_ns()}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        begin = self._kafka.TopicPartition(topic, 0, self._kafka.OFFSET_BEGINNING)
        reader.assign([begin])
        return reader

    def _is_made(self, client: Any, made: Any) -> bool:
        (outcome,) = client.create_topics([made], operation_timeout=30).values()
        error = outcome.exception(60)
        return error is None or error.args[0].code() == self._kafka.KafkaError.TOPIC_ALREADY_EXISTS


def _must(error: Any, _message: Any) -> None:
    if error is not None:
        raise Missing(f"Kafka refused a put: {error}")


@contextmanager
def brokers(lab: Lab) -> Generator[str]:
    """Three, until the block ends; where they are."""
    client_library("confluent_kafka")
    if not (JARS / "server").is_dir():
        raise Missing("nothing beside Kafka: `make peers` fetches it, with mvn and a network")
    java = shutil.which("java")
    if java is None:
        raise Missing("nothing beside Kafka: there is no java on PATH")
    command = [java, *HEAP, "-cp", str(JARS / "server" / "*")]
    ports, controllers = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers))
    with ExitStack() as stack:
        path = stack.enter_context(lab.scratch())
        for number, (port, controller) in enumerate(zip(ports, controllers, strict=True)):
            settings, data = path / f"{number}.properties", path / f"data{number}"
            settings.write_text(
                PROPERTIES.format(
                    number=number, voters=voters, port=port, controller=controller, data=data
                )
            )
            log = path / f"{number}.log"
            _format(command, settings, log)
            start = [*command, "kafka.Kafka", str(settings)]
            stack.enter_context(process(start, log))
        until(lambda: all(map(answers, ports)), "Kafka answers", 120)
        yield ",".join(f"127.0.0.1:{port}" for port in ports)


def _format(command: list[str], settings: Path, log: Path) -> None:
    tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings)]
    with log.open("ab") as words:
        subprocess.run([*command, *tool], stdout=words, stderr=words, check=True)


@contextmanager
def kafka(servers: str, *, synced: bool) -> Generator[Kafka]:
    """A client of brokers that run."""
    client = Kafka(servers, synced=synced)
    try:
        yield client
    finally:
        client.close()
