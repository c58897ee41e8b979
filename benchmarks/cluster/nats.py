"""NATS JetStream with three replicas: `make peers` builds it through Go's module proxy.

Its Python client speaks asyncio: a loop in a thread of its own runs it, as a blocking caller would
do it. With `sync_interval: always` each server syncs a message before it says so to the others; the
usual two minutes mean that a put is answered from memory.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Coroutine, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.cluster.servers import ROOT, Missing, answers, free_port, process, until
from benchmarks.lab import Lab

PROGRAM = ROOT / "build" / "nats" / "nats-server"
CLIENTS = ROOT / "build" / "peers"
UNDER_WAY = 4_000  # puts that wait for their answers
CONFIG = """
port: {port}
server_name: {name}
jetstream {{ store_dir: "{store}", sync_interval: {sync} }}
cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


def client_library(name: str) -> Any:
    """A peer's client for Python, which is no part of OnceMQ's own environment."""
    if str(CLIENTS) not in sys.path:
        sys.path.append(str(CLIENTS))
    try:
        return __import__(name)
    except ImportError as error:
        raise Missing(f"nothing beside {name}: `make peers` fetches its client") from error


class Nats:
    """A client, and its consumers."""

    def __init__(self, servers: list[str]) -> None:
        self._nats = client_library("nats")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection = self._run(self._nats.connect(servers, max_reconnect_attempts=-1))
        self._stream = self._connection.jetstream(publish_async_max_pending=UNDER_WAY)

    def create(self, topic: str) -> None:
        """With three replicas, on disk."""
        until(lambda: self._made(topic), "JetStream has a leader")

    def put(self, topic: str, payload: bytes) -> None:
        """And wait for its answer."""
        self._run(self._stream.publish(topic, payload))

    def put_many(self, topic: str, payload: bytes, count: int) -> None:
        """So many, and wait for all of their answers."""

        async def all_of_them() -> None:
            for _ in range(count):
                await self._stream.publish_async(topic, payload, wait_stall=60.0)
            await self._stream.publish_async_completed()

        self._run(all_of_them())

    def get_many(self, topic: str, count: int, batch: int) -> None:
        """All of a topic from its beginning, each batch acknowledged with its last message."""

        async def all_of_them() -> None:
            api = self._nats.js.api
            policy = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL)
            reader = await self._stream.pull_subscribe(topic, config=policy)
            got = 0
            while got < count:
                try:
                    messages = await reader.fetch(min(batch, count - got), timeout=30)
                except self._nats.js.errors.ServiceUnavailableError:
                    continue  # what it reads by has no leader yet
                await messages[-1].ack()
                got += len(messages)
            await reader.unsubscribe()

        self._run(all_of_them())

    def latencies(self, topic: str, count: int, step: float, payload: int) -> list[float]:
        """From a put, so many seconds after the one before, until a subscriber has it."""

        async def all_of_them() -> list[float]:
            times: list[float] = []
            have_all = asyncio.Event()

            async def heard(message: Any) -> None:
                sent = int.from_bytes(message.data[:8], "big")
                times.append((time.monotonic_ns() - sent) / 1e9)
                await message.ack()
                if len(times) == count:
                    have_all.set()

            reader = await self._stream.subscribe(topic, cb=heard, manual_ack=True)
            for _ in range(count):
                stamp = time.monotonic_ns().to_bytes(8, "big")
                await self._stream.publish(topic, stamp + bytes(payload - 8))
                await asyncio.sleep(step)
            await have_all.wait()
            await reader.unsubscribe()
            return times

        return self._run(all_of_them())

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _made(self, topic: str) -> bool:
        try:
            self._run(self._stream.add_stream(name=topic, subjects=[topic], num_replicas=3))
        except (self._nats.errors.Error, TimeoutError):
            return False
        return True

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)


@contextmanager
def nats(lab: Lab, *, synced: bool) -> Generator[Nats]:
    """Three servers, and a client of them."""
    if not PROGRAM.exists():
        raise Missing("nothing beside NATS: `make peers` builds it, with go")
    client_library("nats")
    ports, routes = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
    with ExitStack() as stack:
        path = stack.enter_context(lab.scratch())
        for number in range(3):
            settings = path / f"{number}.conf"
            text = CONFIG.format(
                port=ports[number],
                name=f"n{number}",
                store=path / f"store{number}",
                sync="always" if synced else '"2m"',
                route=routes[number],
                routes=", ".join(f'"nats://127.0.0.1:{each}"' for each in routes),
            )
            settings.write_text(text)
            log = path / f"{number}.log"
            stack.enter_context(process([str(PROGRAM), "-c", str(settings)], log))
        until(lambda: all(map(answers, ports)), "NATS answers")
        client = Nats([f"nats://127.0.0.1:{port}" for port in ports])
        stack.callback(client.close)
        yield client
