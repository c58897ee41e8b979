"""Beside Redis Streams that sync each write: a put, a get and a push, one at a time, in one run.

Redis is the machine's own `redis-server`, started on a scratch directory with `appendonly yes` and
`appendfsync always`, and spoken to with its Python client: what a user would compare with. Both do
their rounds in turns, so that what disturbs one disturbs the other. Without a redis-server or its
client there is nothing to compare, and a line says what to install.
"""

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.lab import LISTENER, Lab, quantile
from benchmarks.limits import plain_sockets, sync_file
from benchmarks.listener import stamped
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import Child
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

MICRO = 1_000_000
SIZE = 100
FRAME_BYTES = 100  # what goes around a single message, about
ROUNDS = 20
QUANTILES = {"p50": 0.5, "p99": 0.99}
READER = Path(__file__).with_name("redis_reader.py")
NO_WORSE = Aim(1.0, at_most=True, unit="x Redis")
PATIENCE = 10.0


@contextmanager
def redis_server(lab: Lab) -> Generator[int]:
    """A Redis that syncs each write; its port."""
    program = shutil.which("redis-server")
    assert program is not None, "asked before"
    with lab.scratch() as path, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(path), "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"]
        process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield port
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def redis_client(port: int) -> Any:
    """Its Python client, as it comes."""
    import redis

    return redis.Redis(port=port)


def beside_redis(lab: Lab) -> Iterator[Figure]:
    """A put with and without the outbox, a get, and a push."""
    if shutil.which("redis-server") is None or importlib.util.find_spec("redis") is None:
        lab.steps.show("nothing beside Redis: install redis-server, and redis for Python")
        return
    for outbox in (False, True):
        yield _puts(lab, outbox=outbox)
    yield _gets(lab)
    yield _pushes(lab)


def _puts(lab: Lab, *, outbox: bool) -> Figure:
    what = "outbox" if outbox else "durable=False"
    lab.steps.show(f"puts one at a time beside XADD, {what}")
    payload = bytes(SIZE)
    with (
        lab.server() as server, redis_server(lab) as port, sync_file(lab) as bare,
        plain_sockets(lab) as plain,
    ):  # fmt: skip
        state = server.data.parent / "client"
        made = Client(server.address, id="bench", state=state) if outbox else Client(server.address)
        peer = redis_client(port)
        with made as client:
            client.create_topic("single", Retention(forever=True))
            ours, theirs, syncs, plainest = _in_turns(
                lab.effort.singles,
                lambda: client.put("single", payload, durable=outbox),
                lambda: peer.xadd("single", {"payload": payload}),
                lambda: bare.write(bytes(SIZE + FRAME_BYTES)),
                plain,
            )
    # With the outbox a put may take one sync more than Redis's, and no more than that.
    own_sync = quantile(syncs, 0.5) if outbox else 0.0
    part = "put one at a time, beside XADD that is synced"
    figure = _figure(part, what, ours, theirs, own_sync=own_sync)
    figure.limits["two plain sockets p50"] = quantile(plainest, 0.5) * MICRO
    return figure


def _gets(lab: Lab) -> Figure:
    lab.steps.show("gets one at a time beside XREAD")
    count, payload = lab.effort.singles, bytes(SIZE)
    with lab.server() as server, redis_server(lab) as port:
        peer = redis_client(port)
        with Client(server.address) as client:
            client.subscribe("backlog")
            pipe = peer.pipeline(transaction=False)
            for _ in range(count + ROUNDS):
                pipe.xadd("backlog", {"payload": payload})
            pipe.execute()
            client.put_many("backlog", [payload] * (count + ROUNDS), durable=False)
            last = [b"0"]

            def read() -> None:
                last[0] = peer.xread({"backlog": last[0]}, count=1)[0][1][0][0]

            ours, theirs = _in_turns(count, lambda: client.get("backlog"), read)
    return _figure("get one at a time, beside XREAD", "anonymous", ours, theirs)


def _in_turns(count: int, *does: Callable[[], object]) -> list[list[float]]:
    """How long each took, so many times, a round of each after the other."""
    each = max(1, count // ROUNDS)
    times: list[list[float]] = [[] for _ in does]
    for _ in range(ROUNDS):
        for taken, do in zip(times, does, strict=True):
            do()  # after the others' turn the first is cold: one of a hundred, it would be the p99
            for _ in range(each):
                started = time.perf_counter()
                do()
                taken.append(time.perf_counter() - started)
    return times


def _pushes(lab: Lab) -> Figure:
    lab.steps.show(f"push at {lab.effort.rate}/s beside XREAD BLOCK")
    count = lab.effort.latencies
    with lab.server() as server, redis_server(lab) as port, Client(server.address) as client:
        listener = Child(
            "listener", [str(LISTENER), server.address, "live", str(count), "push"], lab.directory
        )
        reader = Child("reader", [str(READER), str(port), "live", str(count)], lab.directory)
        peer = redis_client(port)
        ours, theirs = _at_a_rate(
            lab,
            (listener, lambda payload: client.put("live", payload, durable=False)),
            (reader, lambda payload: peer.xadd("live", {"payload": payload})),
        )
    return _figure(
        f"put to listener, {lab.effort.rate}/s, beside XADD to XREAD BLOCK", "durable", ours, theirs
    )


def _at_a_rate(lab: Lab, *ends: tuple[Child, Callable[[bytes], object]]) -> list[list[float]]:
    """The latencies at each far end; each gets its message in turn, half a step apart."""
    count, step = lab.effort.latencies, 1_000_000_000 // lab.effort.rate
    try:
        for far_end, _ in ends:
            far_end.start()
            far_end.line()
        due = time.monotonic_ns() + step
        for _ in range(count):
            for _, send in ends:
                if (pause := due - time.monotonic_ns()) > 0:
                    time.sleep(pause / 1e9)
                send(stamped(due, SIZE))
                due += step // len(ends)
        said = [
            msgspec.json.decode(far_end.line().encode(), type=list[float]) for far_end, _ in ends
        ]
        return [each[count // 10 :] for each in said]
    finally:
        for far_end, _ in ends:
            far_end.kill()


def _figure(
    part: str, what: str, ours: list[float], theirs: list[float], *, own_sync: float = 0.0
) -> Figure:
    """Judged by the medians; `own_sync` is what ours may take longer."""
    return Figure(
        part=part,
        what=what,
        unit="microseconds",
        values={name: quantile(ours, share) * MICRO for name, share in QUANTILES.items()},
        size=SIZE,
        limits={
            f"Redis {name}": quantile(theirs, share) * MICRO for name, share in QUANTILES.items()
        },
        ratios={
            f"Redis {name}": quantile(ours, share) / quantile(theirs, share)
            for name, share in QUANTILES.items()
        },
        aim=NO_WORSE,
        judged=(quantile(ours, 0.5) - own_sync) / quantile(theirs, 0.5),
    )
