"""Puts, gets and latency of three servers, beside one server and beside NATS and Kafka with three.

All run at the same time on this machine, over loopback, and are asked in turns, so that what
disturbs one disturbs the others; each is asked through its Python client as it comes. Who answers
from memory is measured as well, and is no measure for who syncs first. A peer that is not here is
said, and left out.

Payloads in bulk are random bytes: NATS compresses what it replicates of more than 8 KB, and of
zeros nothing is left to be sent.
"""

import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from benchmarks.cluster.kafka import brokers, kafka
from benchmarks.cluster.nats import nats
from benchmarks.cluster.once import Once
from benchmarks.cluster.servers import Missing, cluster
from benchmarks.lab import Lab, in_turns, quantile
from benchmarks.report import Aim, Figure

MICRO = 1_000_000
ROUNDS = 20
LATENCY_STEP = 0.01
BULKS = ((100, 1_000), (64_000, 100))  # bytes of a message, messages of a get
ALONE, OURS = "OnceMQ, one server", "OnceMQ, three servers"
NO_LATER = Aim(1.0, at_most=True, unit="x the best that syncs")
NO_LESS = Aim(1.0, unit="x the best")


class Asked(Protocol):
    """A service, through its client."""

    def create(self, topic: str) -> None: ...
    def put(self, topic: str, payload: bytes) -> None: ...
    def put_many(self, topic: str, payload: bytes, count: int) -> None: ...
    def get_many(self, topic: str, count: int, batch: int) -> None: ...
    def latencies(self, topic: str, count: int, step: float, payload: int) -> list[float]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Service:
    """One of those that are compared."""

    name: str
    asked: Asked
    syncs: bool  # before it answers a put

    @property
    def is_peer(self) -> bool:
        """Whether it is none of ours."""
        return self.name not in (ALONE, OURS)

    def topic(self, name: str) -> str:
        """Of its own: some of them share servers."""
        return f"{name}-{'synced' if self.syncs else 'unsynced'}"


Measure = Callable[[Lab, list[Service]], Iterator[Figure]]


def beside_peers(lab: Lab) -> Iterator[Figure]:
    """Every measurement, of all that are here."""
    yield from _of_all(lab, _singles, _end_to_end, _bulks)


def single_puts(lab: Lab) -> Iterator[Figure]:
    """Puts one at a time alone."""
    yield from _of_all(lab, _singles)


def latencies(lab: Lab) -> Iterator[Figure]:
    """From the put to the subscriber alone."""
    yield from _of_all(lab, _end_to_end)


def bulks(lab: Lab) -> Iterator[Figure]:
    """Puts and gets in bulk alone."""
    yield from _of_all(lab, _bulks)


def _of_all(lab: Lab, *measures: Measure) -> Iterator[Figure]:
    with services(lab) as found:
        if OURS in [each.name for each in found]:
            for measure in measures:
                yield from measure(lab, found)


@contextmanager
def services(lab: Lab) -> Generator[list[Service]]:
    """All that can be had here, running; what cannot is said."""
    found: list[Service] = []
    with ExitStack() as stack:

        def have(name: str, asked: Asked, *, syncs: bool) -> None:
            found.append(Service(name, asked, syncs))

        lab.steps.show("OnceMQ, NATS and Kafka: their servers start")
        alone = Once(stack.enter_context(lab.server()).address)
        stack.callback(alone.close)
        have(ALONE, alone, syncs=True)
        try:
            ours = Once(stack.enter_context(cluster(lab)).addresses)
            stack.callback(ours.close)
            have(OURS, ours, syncs=True)
            for synced in (False, True):
                name = f"NATS JetStream, 3 replicas{', sync_interval always' * synced}"
                have(name, stack.enter_context(nats(lab, synced=synced)), syncs=synced)
            addresses = stack.enter_context(brokers(lab))
            for synced in (False, True):
                name = f"Kafka, 3 replicas, acks=all{', flush.messages 1' * synced}"
                have(name, stack.enter_context(kafka(addresses, synced=synced)), syncs=synced)
        except Missing as missing:
            lab.steps.show(str(missing))
        yield found


def _singles(lab: Lab, found: list[Service]) -> Iterator[Figure]:
    """Puts one at a time."""
    lab.steps.show("puts one at a time, of all in turns")
    times: dict[str, list[float]] = {each.name: [] for each in found}
    for service in found:
        service.asked.create(service.topic("single"))
    for _ in range(ROUNDS):
        for service in found:
            put, topic, payload = service.asked.put, service.topic("single"), bytes(100)
            put(topic, payload)  # after the others' turn the first one is cold
            for _ in range(max(1, lab.effort.singles // ROUNDS // 2)):
                started = time.perf_counter()
                put(topic, payload)
                times[service.name].append(time.perf_counter() - started)
    yield from _quantiles("put one at a time, replicated", found, times)


def _end_to_end(lab: Lab, found: list[Service]) -> Iterator[Figure]:
    """From the put until a subscriber that waits has it."""
    times: dict[str, list[float]] = {}
    for service in found:
        lab.steps.show(f"latency of {service.name}")
        topic, count = service.topic("live"), max(50, lab.effort.latencies // 5)
        service.asked.create(topic)
        times[service.name] = service.asked.latencies(topic, count, LATENCY_STEP, 100)
    yield from _quantiles("put to subscriber, replicated", found, times)


def _quantiles(part: str, found: list[Service], times: dict[str, list[float]]) -> Iterator[Figure]:
    middle = {each.name: quantile(times[each.name], 0.5) for each in found}
    best = min((middle[each.name] for each in found if each.is_peer and each.syncs), default=None)
    for service in found:
        name = service.name
        is_judged = name == OURS and best is not None
        yield Figure(
            part=part,
            what=name,
            unit="microseconds",
            values={
                "p50": middle[name] * MICRO,
                "p99": quantile(times[name], 0.99) * MICRO,
            },
            size=100,
            ratios={"p50 / ours": middle[name] / middle[OURS]},
            aim=NO_LATER if is_judged else None,
            judged=middle[name] / best if is_judged and best else 0.0,
        )


def _bulks(lab: Lab, found: list[Service]) -> Iterator[Figure]:
    for size, batch in BULKS:
        yield from _bulk(lab, found, size, batch)


def _bulk(lab: Lab, found: list[Service], size: int, batch: int) -> Iterator[Figure]:
    """Puts that nobody waits for one by one, and gets of all that they stored."""
    counts: dict[str, int] = {}
    for service in found:
        topic = service.topic(f"bulk-{size}")
        service.asked.create(topic)
        lab.steps.show(f"how fast {service.name} goes")
        warm, payload = lab.effort.singles // 4, _payload(size)
        service.asked.put_many(topic, payload, warm)
        rate = warm / _seconds(service.asked.put_many, topic, payload, warm)
        counts[service.name] = max(warm, int(rate * lab.effort.seconds))
    for what, do in (("put", _put), ("get", _get)):
        lab.steps.show(f"bulk {what} of {size:,} bytes, of all in turns")
        doing = [do(service, size, batch, counts[service.name]) for service in found]
        rates = dict(zip(counts, in_turns(lab.effort.runs, *doing), strict=True))
        best = max((rates[each.name] for each in found if each.is_peer), default=None)
        for name, rate in rates.items():
            is_judged = name == OURS and best is not None
            yield Figure(
                part=f"bulk {what}, replicated",
                what=name,
                unit="messages/s",
                values={what: rate},
                size=size,
                batch=batch,
                ratios={"of ours": rate / rates[OURS]},
                aim=NO_LESS if is_judged else None,
                judged=rate / best if is_judged and best else 0.0,
            )


def _put(service: Service, size: int, _batch: int, count: int) -> Callable[[], float]:
    topic, payload = service.topic(f"bulk-{size}"), _payload(size)
    return lambda: count / _seconds(service.asked.put_many, topic, payload, count)


def _get(service: Service, size: int, batch: int, count: int) -> Callable[[], float]:
    topic = service.topic(f"bulk-{size}")
    return lambda: count / _seconds(service.asked.get_many, topic, count, batch)


def _payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def _seconds(do: Callable[..., None], *given: object) -> float:
    started = time.perf_counter()
    do(*given)
    return time.perf_counter() - started
