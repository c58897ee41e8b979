"""One message at a time: how long a put takes, and how long until a waiting get has it.

Latency is open loop: puts are due at fixed moments, and each is timed from the moment it was due,
so that a stall counts for everything it held up.
"""

import time
from collections.abc import Iterator

import msgspec

from benchmarks.lab import LISTENER, Lab, quantile
from benchmarks.limits import round_trip_seconds, sync_file, sync_seconds
from benchmarks.listener import stamped
from benchmarks.report import Aim, Figure, size_text
from oncemq.cli.demo.process import Child
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

MICRO = 1_000_000
OVERHEAD = Aim(150, at_most=True, unit=" µs over the syncs")
AIMED_BYTES = 100
FRAME_BYTES = 100  # what goes around a single message, about
ROUNDS = 10


def single_puts(lab: Lab) -> Iterator[Figure]:
    """Puts one at a time, each waited for."""
    for size in lab.effort.sizes:
        for outbox in (False, True):
            yield _single(lab, size, outbox=outbox)


def _single(lab: Lab, size: int, *, outbox: bool) -> Figure:
    mode = "outbox" if outbox else "durable=False"
    lab.steps.show(f"puts one at a time of {size_text(size)}, {mode}")
    count, payload = lab.effort.singles, bytes(size)
    times: list[float] = []
    syncs: list[float] = []
    with lab.server() as server, sync_file(lab) as bare:
        state = server.data.parent / "client"
        made = Client(server.address, id="bench", state=state) if outbox else Client(server.address)
        with made as client:
            client.create_topic("single", Retention(forever=True))
            for _ in range(count // 10):
                client.put("single", payload, durable=outbox)
            # In turns with the bare disk: what disturbs one disturbs the other.
            spent = server_spent = 0.0
            for _ in range(ROUNDS):
                syncs += [bare.write(bytes(size + FRAME_BYTES)) for _ in range(count // ROUNDS)]
                before, server_before = time.process_time(), server.cpu_seconds
                times += [_timed(client, payload, outbox=outbox) for _ in range(count // ROUNDS)]
                spent += time.process_time() - before
                server_spent += server.cpu_seconds - server_before
    sync = quantile(syncs, 0.5) * (2 if outbox else 1)
    middle = quantile(times, 0.5)
    return Figure(
        part="put one at a time",
        what=mode,
        unit="microseconds",
        values=_quantiles(times)
        | {
            "client CPU": spent / len(times) * MICRO,
            "server CPU": server_spent / len(times) * MICRO,
        },
        size=size,
        limits={"2 × sync" if outbox else "1 × sync": sync * MICRO},
        ratios={"p50 / syncs": middle / sync},
        aim=OVERHEAD if size == AIMED_BYTES else None,
        judged=(middle - sync) * MICRO,
    )


def _timed(client: Client, payload: bytes, *, outbox: bool) -> float:
    started = time.perf_counter()
    client.put("single", payload, durable=outbox)
    return time.perf_counter() - started


def latencies(lab: Lab) -> Iterator[Figure]:
    """From the moment a put is due to the return of a get that waits for it."""
    for size in lab.effort.sizes:
        lab.steps.show(f"a bare sync and a bare round trip of {size_text(size)}")
        sync = sync_seconds(lab, size + FRAME_BYTES)
        trip = round_trip_seconds(lab, size)
        for outbox in (False, True):
            lab.steps.show(
                f"latency at {lab.effort.rate}/s of {size_text(size)}, "
                f"{'outbox' if outbox else 'durable=False'}"
            )
            limit = sync * (2 if outbox else 1) + trip
            yield _latency(lab, size, outbox=outbox, limit=limit)


def _latency(lab: Lab, size: int, *, outbox: bool, limit: float) -> Figure:
    count = lab.effort.latencies
    warm = count // 10
    with lab.server() as server:
        arguments = [str(LISTENER), server.address, "live", str(count + warm)]
        listener = Child("listener", arguments, server.data.parent)
        try:
            listener.start()
            listener.line()
            state = server.data.parent / "client"
            address = server.address
            made = Client(address, id="bench", state=state) if outbox else Client(address)
            with made as client:
                _put_at_a_rate(client, count + warm, lab.effort.rate, size=size, durable=outbox)
            times = msgspec.json.decode(listener.line().encode(), type=list[float])[warm:]
        finally:
            listener.kill()
    return Figure(
        part=f"put to waiting get, {lab.effort.rate}/s, open loop",
        what="outbox" if outbox else "durable=False",
        unit="microseconds",
        values=_quantiles(times),
        size=size,
        limits={"syncs + round trip": limit * MICRO},
        ratios={"p50 / limit": quantile(times, 0.5) / limit},
    )


def _put_at_a_rate(client: Client, count: int, rate: int, *, size: int, durable: bool) -> None:
    step = 1_000_000_000 // rate
    due = time.monotonic_ns() + step
    for _ in range(count):
        pause = due - time.monotonic_ns()
        if pause > 0:
            time.sleep(pause / 1e9)
        client.put("live", stamped(due, size), durable=durable)
        due += step


def _quantiles(times: list[float]) -> dict[str, float]:
    parts = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    return {name: quantile(times, part) * MICRO for name, part in parts.items()}
