"""What the live feed costs: its rate by the number of listeners, its latency, its connections."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import msgspec

from benchmarks.audience import BareFeed, BarePush
from benchmarks.lab import AUDIENCE, LISTENER, Lab, quantile
from benchmarks.listener import stamped
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import Child, ServerChild
from oncemq.client.blocking.client import Client
from oncemq.wire import codec

MICRO = 1_000_000
SIZE, BATCH = 100, 1_000  # bytes of a message, messages of a batch: one message of the feed each
FRAME_BYTES = (SIZE + 4) * BATCH
AIMED_LISTENERS = 100  # from here on the fan-out is what takes the time
NEAR_BARE = Aim(0.7)
CONNECTION_BYTES = Aim(60_000, at_most=True, unit=" B")
UNCHANGED = Aim(1.5, at_most=True)
PUTS = 100
REST_SECONDS = 0.3
IDLE_SHARE = 0.03  # of a processor: who takes less has nothing to do
UNDER_WAY = 4  # puts at a time
QUANTILES = {"p50": 0.5, "p99": 0.99}


def fan_out(lab: Lab) -> Iterator[Figure]:
    """Bytes of the feed received by all listeners a second, beside a bare XPUB of as many."""
    for listeners in lab.effort.listeners:
        lab.steps.show(f"a bare XPUB to {listeners:,} listeners")
        with lab.server() as server:
            bare = _bare(lab, server, listeners, FRAME_BYTES)
            single = _bare(lab, server, listeners, SIZE)
            lab.steps.show(f"batches pushed to {listeners:,} listeners")
            # Offered is what the bare one carries: more would only be put, and not be received.
            ours = _pushed(lab, server, listeners, bare * 1e6 / listeners / FRAME_BYTES)
        yield Figure(
            part=f"received from the feed by all listeners, {BATCH} x {SIZE} B each",
            what=f"{listeners:,} listeners",
            unit="MB/s",
            values={"OnceMQ, durable": ours},
            size=SIZE,
            batch=BATCH,
            limits={"bare XPUB, batches": bare, "bare XPUB, single": single},
            ratios={
                "bare XPUB, batches": ours / bare if bare else 0.0,
                "bare XPUB, single": ours / single if single else 0.0,
            },
            aim=NEAR_BARE if listeners >= AIMED_LISTENERS else None,
            judged=ours / bare if bare else 0.0,
        )


def _subject(client: Client, topic: str) -> bytes:
    """What those ask for who listen to a topic, which is subscribed to."""
    client.subscribe(topic)
    return codec.subject(client.topic(topic).topic.topic_id)


def _audience(lab: Lab, server: ServerChild, feed: str, subject: bytes, listeners: int) -> Child:
    words = [str(AUDIENCE), "many", feed, subject.hex()]
    words += [str(listeners), str(lab.effort.heard)]
    audience = Child(f"audience-{time.monotonic_ns()}", words, server.data.parent)
    audience.start()
    audience.line()
    return audience


def _rate(audience: Child, send: Callable[[Callable[[], bool]], None]) -> float:
    """Send until the audience has counted enough."""
    over = threading.Event()
    sending = threading.Thread(target=send, args=(over.is_set,), daemon=True)
    sending.start()
    try:
        found = msgspec.json.decode(audience.line().encode())
    finally:
        over.set()
        sending.join()
        audience.kill()
    return found["bytes"] / found["seconds"] / 1e6


def _pushed(lab: Lab, server: ServerChild, listeners: int, rate: float) -> float:
    """Put so many batches a second, or as many as can be put."""
    step = 1 / max(rate, 1.0)
    payloads = [bytes(SIZE)] * BATCH
    with Client(server.address) as client, Client(server.address) as owner:
        subject = _subject(owner, "live")
        feed = str(client.status()["feed"])
        audience = _audience(lab, server, feed, subject, listeners)

        def put(over: Callable[[], bool]) -> None:
            due = time.monotonic()
            while not over():
                client.put_many("live", payloads, durable=False)
                due = max(due + UNDER_WAY * step, time.monotonic() - step)
                time.sleep(max(0.0, due - time.monotonic()))

        def send(over: Callable[[], bool]) -> None:
            with ThreadPoolExecutor(UNDER_WAY) as pool:
                for _ in range(UNDER_WAY):
                    pool.submit(put, over)

        return _rate(audience, send)


def _bare(lab: Lab, server: ServerChild, listeners: int, frame_bytes: int) -> float:
    bare = BareFeed()
    try:
        subject = bytes(8)
        audience = _audience(lab, server, bare.address, subject, listeners)
        frames = [subject, bytes(frame_bytes)]
        return _rate(audience, lambda over: bare.send(frames, over))
    finally:
        bare.close()


def latencies(lab: Lab) -> Iterator[Figure]:
    """From the moment a put is due to a listener's hands, beside a bare PUSH/PULL."""
    count = lab.effort.latencies
    lab.steps.show(f"push latency at {lab.effort.rate}/s")
    with lab.server() as server:
        words = [str(LISTENER), server.address, "live", str(count), "push"]
        listener = Child("listener", words, server.data.parent)
        with Client(server.address) as client:
            times = _timed(
                lab, listener, lambda payload: client.put("live", payload, durable=False)
            )
        bare = BarePush()
        words = [str(AUDIENCE), "pull", bare.address, str(count)]
        limit = _timed(lab, Child("puller", words, server.data.parent), bare.send)
        bare.close()
    yield Figure(
        part=f"put to listener, {lab.effort.rate}/s, open loop",
        what="pushed, durable",
        unit="microseconds",
        values={name: quantile(times, part) * MICRO for name, part in QUANTILES.items()},
        size=SIZE,
        limits={
            f"bare PUSH/PULL {name}": quantile(limit, part) * MICRO
            for name, part in QUANTILES.items()
        },
        ratios={"p50 / bare": quantile(times, 0.5) / quantile(limit, 0.5)},
    )


def _timed(lab: Lab, far_end: Child, send: Callable[[bytes], object]) -> list[float]:
    """The latencies that the far end has seen; the first tenth warmed it up."""
    count, step = lab.effort.latencies, 1_000_000_000 // lab.effort.rate
    try:
        far_end.start()
        far_end.line()
        due = time.monotonic_ns() + step
        for _ in range(count):
            if (pause := due - time.monotonic_ns()) > 0:
                time.sleep(pause / 1e9)
            send(stamped(due, SIZE))
            due += step
        return msgspec.json.decode(far_end.line().encode(), type=list[float])[count // 10 :]
    finally:
        far_end.kill()


def connected(lab: Lab) -> Iterator[Figure]:
    """Many connected listeners that hear nothing: their memory, and a put beside them."""
    count = lab.effort.connected
    lab.steps.show(f"{count:,} connected listeners")
    with lab.server() as server, Client(server.address) as client:
        quiet = _subject(client, "quiet")
        feed = str(client.status()["feed"])
        client.subscribe("live")
        alone = _put_seconds(client)
        before = server.resident_bytes
        words = [str(AUDIENCE), "stay", feed]
        words += [quiet.hex(), str(count)]
        audience = Child("audience", words, server.data.parent)
        try:
            audience.start()
            there = int(audience.line())
            each = (server.resident_bytes - before) / max(1, there)
            _rests(server)  # it answers ten thousand who have just come
            beside = _put_seconds(client)
        finally:
            audience.kill()
    yield Figure(
        part="memory of a connected listener",
        what=f"{there:,} connected",
        unit="B",
        values={"RSS per connection": each},
        aim=CONNECTION_BYTES,
        judged=each,
    )
    yield Figure(
        part="a put beside connected listeners",
        what=f"{there:,} connected",
        unit="microseconds",
        values={"p50": beside * MICRO},
        limits={"p50 without them": alone * MICRO},
        ratios={"of alone": beside / alone},
        aim=UNCHANGED,
        judged=beside / alone,
    )


def _rests(server: ServerChild) -> None:
    """Wait until it has nothing to do."""
    before = -1.0
    while (now := server.cpu_seconds) - before > IDLE_SHARE * REST_SECONDS or before < 0:
        before = now
        time.sleep(REST_SECONDS)


def _put_seconds(client: Client) -> float:
    times: list[float] = []
    for _ in range(PUTS):
        started = time.perf_counter()
        client.put("live", bytes(SIZE), durable=False)
        times.append(time.perf_counter() - started)
    return median(times)
