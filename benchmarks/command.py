"""`python -m benchmarks`: every benchmark, each beside the machine's own limit in the same run."""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession
from oncemq.config.quantities import parse_size
from oncemq.errors import ConfigError

if TYPE_CHECKING:
    from benchmarks.lab import Lab
    from benchmarks.report import Figure

PARTS = (
    *("put", "get", "latency", "push", "inbox", "outbox", "transactions"),
    *("redis", "cluster", "before", "attacks", "topics", "restart", "memory"),
)
USUAL = ("put", "get", "latency")
# Shares of `cluster`, to look at one thing alone.
SHARES = ("cluster-put", "cluster-latency", "cluster-bulk", "cluster-failover", "cluster-catch-up")
WHOLE_LOG_BYTES = 10_000_000_000


def size_of(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """A size such as 10GB."""
    try:
        return None if text is None else parse_size(text)
    except ConfigError as error:
        raise click.BadParameter(error.detail) from error


@command("benchmarks")
@click.argument("parts", metavar="[PART]...", nargs=-1, type=click.Choice(PARTS + SHARES))
@click.option("--all", "everything", is_flag=True, help="Every part, the long ones too.")
@click.option("--aims", is_flag=True, help="Judge by what the project aims at (for its makers).")
@click.option("--quick", is_flag=True, help="Less of it: 100 B only, one run each.")
@click.option("--data", "beside", metavar="DIR", help="Measure on the disk of this directory.")
@click.option("--runs", type=click.IntRange(1), help="The middle of so many runs counts; 3.")
@click.option("--topics", type=click.IntRange(2), help="How many at most; 100,000.")
@click.option(
    "--log-bytes",
    metavar="SIZE",
    callback=size_of,
    help="Size of the log for restart and memory; 1GiB, with --all 10GB.",
)
@click.option("--database", metavar="URL", default="", help="A PostgreSQL for the outbox, too.")
@click.option("--before", metavar="COMMIT", default="", help="A server of this commit beside ours.")
def benchmarks(
    session: CommandSession,
    parts: tuple[str, ...],
    everything: bool,
    aims: bool,
    quick: bool,
    beside: str | None,
    runs: int | None,
    topics: int | None,
    log_bytes: int | None,
    database: str,
    before: str,
) -> None:
    """Measure this machine: PART is put, get, latency, push, inbox, outbox, transactions,
    redis, cluster, before, attacks, topics, restart or memory; or a share of cluster:
    cluster-put, cluster-latency, cluster-bulk, cluster-failover or cluster-catch-up.

    Starts a server of its own, which syncs always, and prints each number beside the machine's
    own limit, measured in the same run: ZeroMQ alone, and a bare write with fdatasync. Without
    a PART: put, get and latency. What counts is the ratios; the numbers are this machine's.
    """
    from benchmarks.lab import QUICK, Effort, lab
    from oncemq.cli.demo.process import ended_by_a_signal

    effort = QUICK if quick else Effort()
    if everything and not quick:
        effort = replace(effort, log_bytes=WHOLE_LOG_BYTES)
    given = {"runs": runs, "topics": topics, "log_bytes": log_bytes}
    effort = replace(effort, **{name: value for name, value in given.items() if value is not None})
    chosen = PARTS if everything else parts or USUAL
    started = time.monotonic()
    figures: list[Figure] = []
    where = Path(beside) if beside else None
    with ended_by_a_signal(), lab(where, effort, shown=True, database=database) as place:
        place.before = before
        for part in PARTS + SHARES:
            if part in chosen:
                figures += [each for measure in measures(part) for each in measure(place)]
    _answer(session, figures, time.monotonic() - started, aims=aims)


def measures(part: str) -> "list[Callable[[Lab], Iterator[Figure]]]":
    """What belongs to a part."""
    from benchmarks import (
        attacks,
        before,
        bulk,
        inbox,
        outbox,
        pace,
        push,
        redis_peer,
        scale,
        single,
        stopped,
        transactions,
    )
    from benchmarks.cluster import beside, faults

    return {
        "put": [pace.put_paces, bulk.bulk_puts, single.single_puts],
        "get": [pace.get_paces, bulk.bulk_gets],
        "latency": [single.latencies],
        "push": [
            push.fan_out,
            push.latencies,
            push.connected,
            stopped.stopped,
        ],
        "inbox": [inbox.consumed],
        "outbox": [outbox.relayed],
        "transactions": [transactions.transacted],
        "redis": [redis_peer.beside_redis],
        "cluster": [beside.beside_peers, faults.failovers, faults.catch_ups],
        "cluster-put": [beside.single_puts],
        "cluster-latency": [beside.latencies],
        "cluster-bulk": [beside.bulks],
        "cluster-failover": [faults.failovers],
        "cluster-catch-up": [faults.catch_ups],
        "before": [before.beside_before],
        "attacks": [attacks.attacked],
        "topics": [scale.topics],
        "restart": [scale.restart],
        "memory": [scale.memory],
    }[part]


def _answer(
    session: CommandSession, figures: "list[Figure]", seconds: float, *, aims: bool
) -> None:
    from benchmarks.report import tables
    from oncemq import __version__

    aimed = [figure for figure in figures if figure.aim]
    met = sum(bool(figure.met) for figure in aimed)
    machine = {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
    }
    if session.json:
        objects = [figure.as_object() for figure in figures]
        session.emit({"machine": machine, "seconds": seconds, "figures": objects})
        return
    session.say(tables(figures, aims=aims))
    place = ", ".join(f"{name} {value}" for name, value in machine.items())
    verdict = "measured"
    if aims:
        colour = 32 if met == len(aimed) else 33
        verdict = output.painted(f"{met} of {len(aimed)} aims met", sys.stdout, colour)
    session.say(f"\n{verdict} in {seconds:,.0f} s ({place})")
