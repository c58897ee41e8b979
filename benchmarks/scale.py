"""What must not grow: the cost of a put with the topics, the memory with the log, the restart."""

import asyncio
import random
import time
from collections.abc import Iterator

from benchmarks.bulk import put_bytes
from benchmarks.lab import Lab, forget_cached, quantile
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import ServerChild
from oncemq.client.aio.client import AsyncClient
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

MICRO = 1_000_000
MEBIBYTE = 1 << 20
AT_ONCE = 64  # requests under way while topics are made
SIZE, BATCH = 1_000, 1_000  # what fills a log
ROUNDS = 10

FLAT = Aim(1.25, at_most=True)
TOPIC_BYTES = Aim(2_048, at_most=True, unit=" B")
FLAT_MEMORY = Aim(1.25, at_most=True)
RESTART = Aim(5.0, at_most=True, unit=" s")


# ------------------------------------------------------------------ topics


def topics(lab: Lab) -> Iterator[Figure]:
    """The cost of a put, and the memory of an idle topic, from one topic to very many."""
    stages = [each for each in (100, 10_000) if each < lab.effort.topics] + [lab.effort.topics]
    with lab.server() as lone, lab.server() as server:
        state = server.data.parent / "subscriber"
        asyncio.run(_subscribe(lone.address, lone.data.parent / "subscriber", range(1)))
        asyncio.run(_subscribe(server.address, state, range(1)))
        base = resident = _settled_memory(server)
        made = 1
        for stage in stages:
            lab.steps.show(f"the making of {stage:,} topics with a subscription")
            asyncio.run(_subscribe(server.address, state, range(made, stage)))
            made = stage
            resident = _settled_memory(server)
            lab.steps.show(f"puts to {stage:,} topics, in turns with puts to 1")
            yield _cost(lab, lone, server, stage)
        each = (resident - base) / (made - 1)
        yield Figure(
            part="memory of an idle topic with a subscription",
            what=f"{made:,} topics",
            unit="B",
            values={"RSS per topic": each},
            aim=TOPIC_BYTES,
            judged=each,
        )


def _cost(lab: Lab, lone: ServerChild, server: ServerChild, stage: int) -> Figure:
    """Puts to topics chosen at random, in turns with puts to a server that has only one."""
    few, many = TimedPuts(lone, 1), TimedPuts(server, stage)
    try:
        for puts in (few, many):
            puts.make(lab.effort.singles // 10)
            puts.begin()
        for _ in range(ROUNDS):
            few.make(lab.effort.singles // ROUNDS)
            many.make(lab.effort.singles // ROUNDS)
        ratio = many.middle / few.middle
        return Figure(
            part="put, by number of topics",
            what=f"{stage:,} topics",
            unit="microseconds",
            values={
                "p50": many.middle * MICRO,
                "p99": quantile(many.times, 0.99) * MICRO,
                "server CPU": many.cpu_seconds * MICRO,
            },
            limits={"p50, 1 topic": few.middle * MICRO, "CPU, 1 topic": few.cpu_seconds * MICRO},
            ratios={"p50, 1 topic": ratio},
            aim=FLAT,
            judged=ratio,
        )
    finally:
        few.client.close()
        many.client.close()


class TimedPuts:
    """Single puts to the first so many topics of a server, timed."""

    def __init__(self, server: ServerChild, topic_count: int) -> None:
        self.client = Client(server.address)
        self.times: list[float] = []
        self._server = server
        self._topic_count = topic_count
        self._chance = random.Random(topic_count)
        self._cpu = 0.0

    def begin(self) -> None:
        """What was put so far was to warm up."""
        self.times.clear()
        self._cpu = self._server.cpu_seconds

    def make(self, count: int) -> None:
        """Put, and note how long each one took."""
        payload = bytes(100)
        for _ in range(count):
            name = _name(self._chance.randrange(self._topic_count))
            started = time.perf_counter()
            self.client.put(name, payload)
            self.times.append(time.perf_counter() - started)

    @property
    def middle(self) -> float:
        """The median seconds of a put."""
        return quantile(self.times, 0.5)

    @property
    def cpu_seconds(self) -> float:
        """The server's processor time for one."""
        return (self._server.cpu_seconds - self._cpu) / len(self.times)


async def _subscribe(address: str, state: object, numbers: range) -> None:
    """Subscribe to many topics, many at a time."""
    remaining = iter(numbers)

    async def work(client: AsyncClient) -> None:
        for number in remaining:
            await client.subscribe(_name(number))

    async with AsyncClient(address, id="idle", state=str(state)) as client:
        await asyncio.gather(*(work(client) for _ in range(AT_ONCE)))


def _name(number: int) -> str:
    return f"topic-{number:06}"


def _settled_memory(server: ServerChild, *, seconds: float = 10.0) -> int:
    """RSS once it no longer grows: a checkpoint may be under way."""
    deadline = time.monotonic() + seconds
    last = 0
    while time.monotonic() < deadline and (now := server.resident_bytes) > last:
        last = now
        time.sleep(1.1)
    return server.resident_bytes


# ------------------------------------------------------------------ memory and restart


def memory(lab: Lab) -> Iterator[Figure]:
    """The server's memory after a tenth and after four tenths of the log size, kept and settled."""
    marks = [lab.effort.log_bytes // 10, lab.effort.log_bytes * 4 // 10]
    for settled in (False, True):
        what = "settled" if settled else "retained"
        sizes: list[float] = []
        with lab.server() as server, Client(server.address) as client:
            client.subscribe("long") if settled else client.create_topic(
                "long", Retention(forever=True)
            )
            written = 0
            for mark in marks:
                lab.steps.show(f"memory with {mark // MEBIBYTE:,} MiB written, {what}")
                while written < mark:
                    step = min(64 * MEBIBYTE, mark - written)
                    count = put_bytes(client, "long", step, size=SIZE, batch=BATCH)
                    written += count * SIZE
                    if settled:
                        _get_all(client, count)
                sizes.append(_settled_memory(server) / MEBIBYTE)
        ratio = sizes[1] / sizes[0] if sizes[0] else 0.0
        names = [f"after {mark / MEBIBYTE:,.0f} MiB" for mark in marks]
        yield Figure(
            part="memory of the server, by length of the log",
            what=what,
            unit="MiB",
            values=dict(zip(names, sizes, strict=True)),
            ratios={"growth": ratio},
            aim=FLAT_MEMORY,
            judged=ratio,
        )


def _get_all(client: Client, count: int) -> None:
    while count > 0:
        count -= len(client.get("long", limit=5 * BATCH, wait=5.0))


def restart(lab: Lab) -> Iterator[Figure]:
    """How long a server takes to come back after SIGKILL, its log on the disk and not in memory."""
    room = lab.free_bytes // 2
    total = min(lab.effort.log_bytes, room)
    lab.steps.show(f"restart: a log of {total // MEBIBYTE:,} MiB")
    with lab.server() as server:
        with Client(server.address) as client:
            client.create_topic("long", Retention(forever=True))
            started = time.perf_counter()
            put_bytes(client, "long", total, size=SIZE, batch=BATCH)
            filling = time.perf_counter() - started
        seconds: list[float] = []
        for cold in (True, False):
            lab.steps.show(f"restart with a log of {total // MEBIBYTE:,} MiB")
            server.kill()
            if cold:
                forget_cached(server.data)
            seconds.append(server.begin())
    values = {"log GB": total / 1e9, "cold": seconds[0], "warm": seconds[1], "filling it": filling}
    yield Figure(
        part="restart after SIGKILL",
        what="the whole" if total == lab.effort.log_bytes else "as much as there is room for",
        unit="s",
        values=values,
        aim=RESTART,
        judged=seconds[0],
    )
