"""Messages a second as the plainest loops reach them, and what each costs the two processors.

The loops that a user would write: puts that nobody waits for, batches of a thousand, gets of five
thousand. The time counts from the first call until everything is stored (`flush`), or handed out.
The processor's time is that of all threads of each process; it is disturbed less by a busy machine
than the clock is.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.bulk import UNDER_WAY, drain, put_bytes, state_of
from benchmarks.lab import Lab
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import ServerChild
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

SIZE = 100
PUTS = 5_000  # of a loop, between two looks at the clock
PUT_BATCH = 1_000
GET_BATCH = 5_000
RATE = " a second"
UNWAITED_AIM = Aim(500_000, unit=RATE)
PUT_MANY_AIM = Aim(1_000_000, unit=RATE)
GET_AIM = Aim(4_000_000, unit=RATE)


@dataclass(frozen=True)
class Pace:
    """How fast something went, and the nanoseconds of processor that a message took."""

    rate: float
    client_nanos: float
    server_nanos: float


def pace_of(server: ServerChild, work: Callable[[], int]) -> Pace:
    """Do it; it says how many messages that was."""
    here, there, started = time.process_time(), server.cpu_seconds, time.perf_counter()
    count = work()
    seconds = time.perf_counter() - started
    client, other = time.process_time() - here, server.cpu_seconds - there
    return Pace(count / seconds, client / count * 1e9, other / count * 1e9)


def put_paces(lab: Lab) -> Iterator[Figure]:
    """Puts that nobody waits for, one by one and in batches, of either kind of client."""
    for what, batch, fill, aim in (
        ("put(wait=False)", 0, _one_by_one, UNWAITED_AIM),
        ("put_many", PUT_BATCH, _batches, PUT_MANY_AIM),
    ):
        for lasting in (False, True):
            lab.steps.show(f"the pace of {what}, {_kind(lasting)}")
            with lab.server() as server:
                state = state_of(server, "client") if lasting else None
                with Client(server.address, id="bench" if lasting else None, state=state) as client:
                    client.create_topic("pace", Retention(forever=True))
                    fill(client, lab.effort.seconds / 4)
                    paces = [
                        pace_of(server, lambda c=client, f=fill: f(c, lab.effort.seconds))
                        for _ in range(lab.effort.runs)
                    ]
            yield _figure(f"{what}, {_kind(lasting)}", batch, paces, aim)


def get_paces(lab: Lab) -> Iterator[Figure]:
    """A backlog, got in batches."""
    with lab.server() as server:
        with Client(server.address) as client:
            client.create_topic("bulk", Retention(forever=True))
            lab.steps.show("the pace of get: a backlog")
            count = put_bytes(client, "bulk", lab.effort.backlog_bytes, size=SIZE, batch=GET_BATCH)
        for lasting in (False, True):
            lab.steps.show(f"the pace of get, {_kind(lasting)}")
            states = (state_of(server, f"{_kind(lasting)} {run}") for run in itertools.count())

            def work(states: Iterator[Any] = states, *, lasting: bool = lasting) -> int:
                drain(server.address, next(states) if lasting else None, count, GET_BATCH)
                return count

            work()  # warms up
            paces = [pace_of(server, work) for _ in range(lab.effort.runs)]
            yield _figure(f"get, {_kind(lasting)}", GET_BATCH, paces, GET_AIM)


def _one_by_one(client: Client, seconds: float) -> int:
    put, payload, count = client.put, bytes(SIZE), 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(PUTS):
            put("pace", payload, wait=False)
        count += PUTS
    client.flush()
    return count


def _batches(client: Client, seconds: float) -> int:
    payloads, count = [bytes(SIZE)] * PUT_BATCH, 0
    under_way: deque[Any] = deque()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        under_way.append(client.put_many("pace", payloads, wait=False))
        count += PUT_BATCH
        if len(under_way) >= 2 * UNDER_WAY:
            under_way.popleft().result()
    client.flush()
    return count


def _kind(lasting: bool) -> str:
    return "with state" if lasting else "without state"


def _figure(what: str, batch: int, paces: list[Pace], aim: Aim) -> Figure:
    middle = sorted(paces, key=lambda each: each.rate)[len(paces) // 2]
    return Figure(
        part="pace",
        what=what,
        unit="messages/s, and the processor's time for each",
        values={
            "pace": middle.rate,
            "client ns": middle.client_nanos,
            "server ns": middle.server_nanos,
        },
        size=SIZE,
        batch=batch,
        aim=aim,
        judged=middle.rate,
    )
