"""OnceMQ as its peers are asked: by one server or by three, through a client without an outbox."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from benchmarks.bulk import UNDER_WAY
from oncemq import Client
from oncemq.protocol.records import Retention

BATCH = 1_000  # messages of a put_many, at most
BATCH_BYTES = 512 << 10  # of it, at most: larger ones wait for each other on their way to the disks


class Once:
    """A client of one server, or of all servers of a cluster."""

    def __init__(self, addresses: str | Sequence[str]) -> None:
        self._addresses = addresses
        self.client = Client(addresses)

    def create(self, topic: str) -> None:
        """It keeps everything."""
        self.client.create_topic(topic, Retention(forever=True))

    def put(self, topic: str, payload: bytes) -> None:
        """And wait for its answer."""
        self.client.put(topic, payload, durable=False)

    def put_many(self, topic: str, payload: bytes, count: int) -> None:
        """So many, a few batches under way at a time, and wait for all of their answers."""
        batch = max(1, min(BATCH, BATCH_BYTES // len(payload)))
        under_way: deque[Any] = deque()
        for first in range(0, count, batch):
            payloads = [payload] * min(batch, count - first)
            under_way.append(self.client.put_many(topic, payloads, durable=False, wait=False))
            if len(under_way) >= UNDER_WAY:
                under_way.popleft().result()
        self.client.flush()

    def get_many(self, topic: str, count: int, batch: int) -> None:
        """All of a topic from its beginning; each batch is settled with the next one."""
        with Client(self._addresses) as reader:
            reader.subscribe(topic, start="earliest")
            got = 0
            while got < count:
                got += len(reader.get(topic, limit=min(batch, count - got), wait=5.0))

    def latencies(self, topic: str, count: int, step: float, payload: int) -> list[float]:
        """From a put, so many seconds after the one before, until a get that waits has it."""
        times: list[float] = []
        with Client(self._addresses) as reader:
            reader.subscribe(topic)

            def hear() -> None:
                while len(times) < count:
                    for message in reader.get(topic, wait=30.0):
                        sent = int.from_bytes(message.payload[:8], "big")
                        times.append((time.monotonic_ns() - sent) / 1e9)

            hearing = threading.Thread(target=hear)
            hearing.start()
            for _ in range(count):
                stamp = time.monotonic_ns().to_bytes(8, "big")
                self.put(topic, stamp + bytes(payload - 8))
                time.sleep(step)
            hearing.join()
        return times

    def close(self) -> None:
        """It leaves nothing behind."""
        self.client.close()
