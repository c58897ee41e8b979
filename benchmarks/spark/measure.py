"""Ways to do the same work, measured in turn: by the clock, and by the processors' time.

A way that knows better than the clock how long it took returns its seconds.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

Way = Callable[[], float | None]


@dataclass(frozen=True)
class Results:
    """Of each way: rows a second, and seconds of processors a row. Medians."""

    rates: dict[str, float]
    costs: dict[str, float]

    def compare(self, ours: str, theirs: str, aim: float | None = None) -> None:
        """Say how much faster ours is than theirs."""
        clock = self.rates[ours] / self.rates[theirs]
        cpu = self.costs[theirs] / self.costs[ours]
        wanted = f" (aim: {aim})" if aim is not None else ""
        print(f"  {ours} / {theirs}: {clock:.2f} by the clock, {cpu:.2f} by CPU{wanted}")


def measured(title: str, ways: Mapping[str, Way], rows: int, rounds: int) -> Results:
    """Each way `rounds` times, after one to warm up; in turn, so that noise hits all alike."""
    load = os.getloadavg()[0]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, work in ways.items():
            times[name].append(_timed(work))
    rates = {name: rows / median(clock for clock, _ in took[1:]) for name, took in times.items()}
    costs = {name: median(cpu for _, cpu in took[1:]) / rows for name, took in times.items()}
    print(f"\n{title}: {rows:,} rows, median of {rounds}, load before it {load:.1f}")
    for name in ways:
        rate, cost = rates[name] / 1e6, costs[name] * 1e6
        print(f"  {name:36} {rate:6.2f} M rows/s {cost:6.2f} µs of CPU a row", flush=True)
    return Results(rates, costs)


def _timed(work: Way) -> tuple[float, float]:
    began, used = time.perf_counter(), _cpu_seconds()
    seconds = work()
    clock = time.perf_counter() - began
    return clock if seconds is None else seconds, _cpu_seconds() - used


def _cpu_seconds() -> float:
    """Of this process and all below it: JVMs, workers, servers. On a busy machine it says more
    than the clock does."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        process = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(process)
        ticks[process] = sum(map(int, fields[11:15]))  # its own, and its children's that ended
    total, open_ = 0, [os.getpid()]
    while open_:
        process = open_.pop()
        total += ticks.get(process, 0)
        open_ += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")
