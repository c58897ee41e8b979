"""Bulk puts and gets: messages a second, beside a bare PUSH/PULL and a bare disk.

Puts are pipelined: a few batches under way, then a flush, which is part of the time. Every put is
measured without the outbox (`durable=False`) and with it.
"""

import itertools
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, batch_for, in_turns
from benchmarks.limits import disk_bytes_per_second, push_pull_rate
from benchmarks.report import Aim, Figure, size_text
from oncemq.cli.demo.process import ServerChild
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

UNDER_WAY = 8  # as many as a client has on the way to one topic
PUSH_PULL = "push/pull"
DISK = "write+sync"

# (message bytes, batch): what we want of a put without the outbox, and of a get
PUT_AIMS = {(100, 5_000): Aim(3.0), (100, 100): Aim(1.0)}
GET_AIMS = {(100, 5_000): Aim(8.0), (100, 100): Aim(2.5)}


def bulk_puts(lab: Lab) -> Iterator[Figure]:
    """Bulk puts of every size and batch."""
    for size in lab.effort.sizes:
        for asked in lab.effort.batches:
            batch = batch_for(size, asked)
            lab.steps.show(f"a bare write and sync of {batch:,} × {size_text(size)}")
            disk = disk_bytes_per_second(lab, batch * size) / size
            for outbox in (False, True):
                yield _put(lab, size, batch, asked, outbox=outbox, disk=disk)


def _put(lab: Lab, size: int, batch: int, asked: int, *, outbox: bool, disk: float) -> Figure:
    mode = "outbox" if outbox else "durable=False"
    lab.steps.show(f"bulk put of {batch:,} × {size_text(size)}, {mode}")
    with lab.server() as server, _client(server.address, server.data.parent, outbox) as client:
        client.create_topic("bulk", Retention(forever=True))
        payloads = [bytes(size)] * batch
        _fill(client, payloads, seconds=lab.effort.seconds / 4, durable=outbox)
        rate, pipe = in_turns(
            lab.effort.runs,
            lambda: _fill(client, payloads, seconds=lab.effort.seconds, durable=outbox),
            lambda: push_pull_rate(lab, size),
        )
    ratio = rate / pipe
    return Figure(
        part="bulk put",
        what=mode,
        unit="messages/s",
        values={"put": rate},
        size=size,
        batch=batch,
        limits={PUSH_PULL: pipe, DISK: disk},
        ratios={PUSH_PULL: ratio, DISK: rate / disk},
        aim=None if outbox else PUT_AIMS.get((size, asked)),
        judged=ratio,
    )


def _client(address: str, directory: Path, lasting: bool) -> Client:
    return Client(address, id="bench", state=directory / "client") if lasting else Client(address)


def _fill(client: Client, payloads: list[bytes], *, seconds: float, durable: bool) -> float:
    """Put batches for a while, a few under way at a time; messages a second until all is stored."""
    under_way: deque[Any] = deque()
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        under_way.append(client.put_many("bulk", payloads, durable=durable, wait=False))
        count += len(payloads)
        if len(under_way) >= UNDER_WAY:
            under_way.popleft().result()
    client.flush()
    return count / (time.perf_counter() - started)


def put_bytes(client: Client, topic: str, total: int, *, size: int, batch: int) -> int:
    """Put about `total` bytes; how many messages that was."""
    payloads = [bytes(size)] * batch
    under_way: deque[Any] = deque()
    count = 0
    while count * size < total:
        under_way.append(client.put_many(topic, payloads, durable=False, wait=False))
        count += batch
        if len(under_way) >= UNDER_WAY:
            under_way.popleft().result()
    client.flush()
    return count


def bulk_gets(lab: Lab) -> Iterator[Figure]:
    """Bulk gets of every size and batch, stored in batches of the same count."""
    for size in lab.effort.sizes:
        for asked in lab.effort.batches:
            yield from _gets(lab, size, batch_for(size, asked), asked)


def _gets(lab: Lab, size: int, batch: int, asked: int) -> Iterator[Figure]:
    with lab.server() as server:
        with Client(server.address) as client:
            client.create_topic("bulk", Retention(forever=True))
            lab.steps.show(f"bulk get: a backlog of {batch:,} × {size_text(size)}")
            count = put_bytes(client, "bulk", lab.effort.backlog_bytes, size=size, batch=batch)
        for lasting in (False, True):
            what = "with state" if lasting else "without state"
            lab.steps.show(f"bulk get of {batch:,} × {size_text(size)}, {what}")
            states = (state_of(server, f"{what} {run}") for run in itertools.count())

            def all_of_it(states: Iterator[Path] = states, *, lasting: bool = lasting) -> float:
                state = next(states) if lasting else None
                return drain(server.address, state, count, batch)

            all_of_it()  # warms up
            rate, pipe = in_turns(lab.effort.runs, all_of_it, lambda: push_pull_rate(lab, size))
            ratio = rate / pipe
            yield Figure(
                part="bulk get",
                what=what,
                unit="messages/s",
                values={"get": rate},
                size=size,
                batch=batch,
                limits={PUSH_PULL: pipe},
                ratios={PUSH_PULL: ratio},
                aim=None if lasting else GET_AIMS.get((size, asked)),
                judged=ratio,
            )


def state_of(server: ServerChild, name: str) -> Path:
    """Where a client keeps its state, on the disk that is measured."""
    return server.data.parent / name


def drain(address: str, state: Path | None, count: int, batch: int) -> float:
    """Get the whole backlog; messages a second."""
    client = Client(address, id=state.name, state=state) if state else Client(address)
    with client:
        client.subscribe("bulk", start="earliest")
        got = 0
        started = time.perf_counter()
        while got < count:
            got += len(client.get("bulk", limit=batch, wait=5.0))
        return count / (time.perf_counter() - started)
