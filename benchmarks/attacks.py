"""What honest clients notice of an attack: puts one at a time with it and without, in turns."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.attacker import ATTACKS, BIG_TOPIC, MEBIBYTE
from benchmarks.lab import Lab, quantile
from benchmarks.report import Aim, Figure
from oncemq.cli.demo.process import Child, ServerChild
from oncemq.client.blocking.client import Client
from oncemq.protocol.records import Retention

ATTACKER = Path(__file__).with_name("attacker.py")
MICRO = 1_000_000
SIZE = 100
ROUNDS = 3
QUANTILES = {"p50": 0.5, "p99": 0.99}
BEARABLE = Aim(5, at_most=True)


def attacked(lab: Lab) -> Iterator[Figure]:
    """Each attack on a server of its own."""
    for name in ATTACKS:
        lab.steps.show(f"honest puts beside an attacker: {name}")
        yield _attacked(lab, name)


def _attacked(lab: Lab, name: str) -> Figure:
    seconds = lab.effort.attacked / (2 * ROUNDS)
    calm: list[list[float]] = []
    beside: list[list[float]] = []
    with lab.server() as server, Client(server.address) as honest:
        honest.create_topic("single", Retention(forever=True))
        honest.create_topic(BIG_TOPIC, Retention(forever=True))
        for _ in range(8):
            honest.put(BIG_TOPIC, bytes(MEBIBYTE))
        _puts(honest, seconds / 2)
        for _ in range(ROUNDS):
            calm.append(_puts(honest, seconds))
            with _attacker(server, str(honest.status()["feed"]), name):
                beside.append(_puts(honest, seconds))
    ratios = {part: _middle(beside, at) / _middle(calm, at) for part, at in QUANTILES.items()}
    return Figure(
        part="an honest client's puts beside an attacker",
        what=name,
        unit="microseconds",
        values={part: _middle(beside, at) * MICRO for part, at in QUANTILES.items()},
        size=SIZE,
        limits={f"{part} alone": _middle(calm, at) * MICRO for part, at in QUANTILES.items()},
        ratios=ratios,
        aim=BEARABLE,
        judged=ratios["p99"],
    )


def _middle(rounds: list[list[float]], at: float) -> float:
    """Of the rounds' own quantiles: what the disk did in one of them counts for that one."""
    return median(quantile(times, at) for times in rounds)


def _puts(client: Client, seconds: float) -> list[float]:
    times: list[float] = []
    payload, end = bytes(SIZE), time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        client.put("single", payload)
        times.append(time.perf_counter() - started)
    return times


@contextmanager
def _attacker(server: ServerChild, feed: str, name: str) -> Generator[None]:
    host, port = server.address.removeprefix("tcp://").rsplit(":", 1)
    words = [str(ATTACKER), name, host, port, feed.rsplit(":", 1)[1]]
    attacker = Child("attacker", words, server.data.parent)
    try:
        attacker.start()
        attacker.line()
        yield
        if not attacker.running:
            raise attacker.failed("ended")
    finally:
        attacker.kill()
