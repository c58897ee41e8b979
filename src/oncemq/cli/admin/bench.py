"""`once bench`: puts and gets on this machine, beside its own disk and a bare ZeroMQ.

Short on purpose: a server of its own, a few seconds. The project's own benchmarks, with all their
parts, are not installed; `make bench` runs them in a checkout.
"""

import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.client.blocking.client import Client

PAYLOAD_BYTES = 100
FRAME_BYTES = 100  # what the log writes around a single message, about
BATCH = 1_000
SECONDS = 2.0  # of each measurement in batches
TOPIC = "bench"


@command("bench")
@click.option("--quick", is_flag=True, help="A fifth of it.")
@click.option("--data", "beside", metavar="DIR", help="Measure on the disk of this directory.")
def bench(session: CommandSession, quick: bool, beside: str | None) -> None:
    """Measure puts and gets of 100 bytes on this machine.

    Starts a server of its own, which syncs always, and prints each number beside a limit of the
    machine that is measured in the same run: a bare write with fdatasync and, where pyzmq is
    installed, single messages through a bare ZeroMQ. The numbers are this machine's; the ratios
    are what compares.
    """
    from oncemq.cli.demo.process import ended_by_a_signal

    if beside is not None:
        Path(beside).mkdir(parents=True, exist_ok=True)
    with (
        ended_by_a_signal(),
        tempfile.TemporaryDirectory(prefix="oncemq-bench-", dir=beside) as directory,
    ):
        rows = list(_rows(session, Path(directory), share=0.2 if quick else 1.0))
    if session.json:
        session.emit({"payload_bytes": PAYLOAD_BYTES, "batch": BATCH, "figures": rows})
        return
    heads = ["what", "unit", "measured", "limit", "of this", "ratio"]
    cells = [[row["what"], row["unit"], f"{row['value']:,.0f}", *_beside(row)] for row in rows]
    session.say(output.table(heads, cells))


def _beside(row: dict[str, Any]) -> list[str]:
    """The limit of a row, what it is of, and how near it is; without a limit, what lacks."""
    limit = row["limit"]
    if limit is None:
        return ["-", f"{row['limited_by']}: pip install pyzmq", "-"]
    return [f"{limit:,.0f}", row["limited_by"], f"{row['value'] / limit:.2f}x"]


def _rows(session: CommandSession, directory: Path, *, share: float) -> Iterator[dict[str, Any]]:
    from oncemq.cli.demo.process import ServerChild
    from oncemq.client.blocking.client import Client
    from oncemq.protocol.records import Retention

    has_zeromq = importlib.util.find_spec("zmq") is not None
    session.note(f"measuring the bare disk{' and a bare ZeroMQ' if has_zeromq else ''}")
    count = max(50, int(1_000 * share))
    sync = _median(bare_syncs(directory / "bare", PAYLOAD_BYTES + FRAME_BYTES, count))
    piped = _bare_rate(directory, int(200_000 * share)) if has_zeromq else None
    with ExitStack() as stack:
        server = ServerChild(directory / "server", "--sync", "always")
        stack.callback(server.kill)
        server.begin()
        client = stack.enter_context(Client(server.address))
        client.create_topic(TOPIC, Retention(forever=True))
        session.note("measuring puts, one at a time")
        single = _median(_single_puts(client, count))
        yield _row("put, one at a time", "µs", single * 1e6, sync * 1e6, "write + fdatasync")
        client.subscribe(TOPIC)
        session.note("measuring puts and gets in batches")
        put, got = _batches(client, SECONDS * share)
    yield _row("put, batches of 1,000", "messages/s", put, piped, "bare ZeroMQ, singly")
    yield _row("get, batches of 1,000", "messages/s", got, piped, "bare ZeroMQ, singly")


def _row(
    what: str, unit: str, value: float, limit: float | None, limited_by: str
) -> dict[str, Any]:
    return {"what": what, "unit": unit, "value": value, "limit": limit, "limited_by": limited_by}


def bare_syncs(path: Path, raw_bytes: int, count: int) -> list[float]:
    """The seconds of each of `count` writes with fdatasync, in a file allocated before."""
    raw = bytes(raw_bytes)
    # macOS has no fdatasync.
    sync = getattr(os, "fdatasync", os.fsync)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, bytes(raw_bytes * count), 0)
        os.fsync(descriptor)
        times: list[float] = []
        for number in range(count):
            started = time.perf_counter()
            os.pwrite(descriptor, raw, number * raw_bytes)
            sync(descriptor)
            times.append(time.perf_counter() - started)
        return times
    finally:
        os.close(descriptor)


def _bare_rate(directory: Path, count: int) -> float:
    from oncemq.cli.demo.process import Child
    from oncemq.transport.baseline import Pull

    near = Pull()
    words = ["-m", "oncemq.transport.baseline", "push", near.address, str(count)]
    far = Child("push", [*words, str(PAYLOAD_BYTES)], directory)
    try:
        far.start()
        return count / near.seconds(count)
    finally:
        far.kill()
        near.close()


def _single_puts(client: "Client", count: int) -> list[float]:
    times: list[float] = []
    payload = bytes(PAYLOAD_BYTES)
    for _ in range(count + count // 10):
        started = time.perf_counter()
        client.put(TOPIC, payload)
        times.append(time.perf_counter() - started)
    return times[count // 10 :]  # the first ones warm it up


def _batches(client: "Client", seconds: float) -> tuple[float, float]:
    payloads = [bytes(PAYLOAD_BYTES)] * BATCH
    put, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        client.put_many(TOPIC, payloads)
        put += BATCH
    put_seconds = time.perf_counter() - started
    got, started = 0, time.perf_counter()
    while messages := client.get(TOPIC, limit=BATCH):
        got += len(messages)
    return put / put_seconds, got / (time.perf_counter() - started)


def _median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]
