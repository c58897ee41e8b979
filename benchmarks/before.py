"""A server alone beside one of an earlier commit, in turns: what a change costs it.

Only the servers differ: the client is this commit's. `--before COMMIT` says which commit.
"""

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bulk import drain, put_bytes
from benchmarks.lab import Lab, in_turns, quantile
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import ServerChild
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

MICRO = 1_000_000
ROUNDS = 20
NO_MORE = Aim(1.05, at_most=True, unit="x before")


def beside_before(lab: Lab) -> Iterator[Figure]:
    """Puts one at a time, then puts and gets in bulk."""
    if not lab.before:
        lab.steps.show("nothing beside an earlier commit: name one with --before COMMIT")
        return
    with ExitStack() as stack:
        sources = stack.enter_context(lab.scratch())
        archive = subprocess.run(
            ["git", "archive", lab.before, "src"], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(sources, filter="data")
        with running(sources / "src"):
            then = stack.enter_context(lab.server())
        now = stack.enter_context(lab.server())
        clients = [stack.enter_context(Client(each.address)) for each in (then, now)]
        for client in clients:
            client.create_topic("single", Retention(forever=True))
            client.create_topic("bulk", Retention(forever=True))
        yield _singles(lab, clients, (then, now))
        yield from _bulks(lab, clients, (then, now))


@contextmanager
def running(source: Path) -> Generator[None]:
    """Processes that begin in the block run this source."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _singles(lab: Lab, clients: list[Client], servers: tuple[ServerChild, ServerChild]) -> Figure:
    lab.steps.show(f"puts one at a time, beside {lab.before}")
    each, payload = max(1, lab.effort.singles // ROUNDS), bytes(100)
    times: list[list[float]] = [[], []]
    spent = [0.0, 0.0]
    for _ in range(ROUNDS):
        for number, client in enumerate(clients):
            client.put("single", payload, durable=False)
            begun = servers[number].cpu_seconds
            for _ in range(each):
                started = time.perf_counter()
                client.put("single", payload, durable=False)
                times[number].append(time.perf_counter() - started)
            spent[number] += servers[number].cpu_seconds - begun
    then, now = (quantile(taken, 0.5) for taken in times)
    count = each * ROUNDS
    return Figure(
        part=f"a server alone, beside {lab.before}",
        what="put one at a time, p50",
        unit="microseconds",
        values={"now": now * MICRO, "server CPU": spent[1] / count * MICRO},
        size=100,
        limits={"before": then * MICRO, "its CPU": spent[0] / count * MICRO},
        ratios={"before": now / then, "its CPU": spent[1] / max(spent[0], 1e-9)},
        aim=NO_MORE,
        judged=now / then,
    )


def _bulks(
    lab: Lab, clients: list[Client], servers: tuple[ServerChild, ServerChild]
) -> Iterator[Figure]:
    batch, size = 1_000, 100
    total = lab.effort.backlog_bytes // 4

    def put(client: Client) -> Callable[[], float]:
        return lambda: _timed(lambda: put_bytes(client, "bulk", total, size=size, batch=batch))

    def get(server: ServerChild) -> Callable[[], float]:
        count = total // size
        return lambda: count / drain(server.address, None, count, batch)

    for what, measures in (
        ("bulk put", [put(client) for client in clients]),
        ("bulk get", [get(server) for server in servers]),
    ):
        lab.steps.show(f"{what}, beside {lab.before}")
        then, now = in_turns(lab.effort.runs * 3, *measures)
        yield Figure(
            part=f"a server alone, beside {lab.before}",
            what=f"{what} of {total:,} bytes",
            unit="microseconds",
            values={"now": now * MICRO},
            size=size,
            batch=batch,
            limits={"before": then * MICRO},
            ratios={"before": now / then},
            aim=NO_MORE,
            judged=now / then,
        )


def _timed(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started
