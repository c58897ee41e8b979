"""`once cluster demo`."""

import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.cli.cluster.demo.run import ClusterDemoOutcome

FOUND = 6


@settings(
    setting("etcd_program", "PATH", "The program etcd; else on PATH, else the wheel's."),
)
@command("demo")
@click.option("--kills", type=click.IntRange(0, 50), default=3, help="How many leaders; 3.")
@click.option("--publishers", type=click.IntRange(1, 20), default=3, help="How many put; 3.")
@click.option("--keep", is_flag=True, help="Leave the logs, the state and the database there.")
def demo_command(session: CommandSession, kills: int, publishers: int, keep: bool) -> None:
    """See exactly-once survive the leaders' crashes, in less than a minute.

    Starts three members of etcd and three servers, publishers, and a subscriber that writes into
    SQLite with consume(into=); kills whoever leads with SIGKILL, again and again, while they work.
    Then reads everything back: each acknowledged message must be in the database once. Exit code
    6: it is not so.
    """
    from oncemq.cli.cluster.demo.run import ClusterDemo, ClusterDemoPlan
    from oncemq.cli.cluster.etcd_program import find_etcd
    from oncemq.cli.demo.process import ended_by_a_signal

    etcd = find_etcd(session.config.etcd_program)
    directory = Path(tempfile.mkdtemp(prefix="oncemq-cluster-demo-"))

    def tell_of(words: str) -> None:
        if not session.json:
            session.note(f"once: {words}")

    tell_of(
        f"3 servers, 3 members of {etcd.shown}, {output.counted(publishers, 'publisher')}, a "
        "subscriber with SQLite"
    )
    try:
        with ended_by_a_signal():
            plan = ClusterDemoPlan(kills, publishers)
            outcome = ClusterDemo(plan, directory, etcd, tell_of).run()
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
    if keep:
        session.note(f"once: kept {directory}")
    tell(session, outcome)


def tell(session: CommandSession, outcome: "ClusterDemoOutcome") -> None:
    """What came of it, in one line; and the exit code."""
    found = outcome.read_back
    assert found is not None
    facts = asdict(outcome) | {"exactly_once": outcome.exactly_once}
    findings = "".join(f"found  {each}\n" for each in found.findings)
    session.answer(facts, f"{findings}{pitch(outcome)}")
    if not outcome.exactly_once:
        click.get_current_context().exit(FOUND)


def pitch(outcome: "ClusterDemoOutcome") -> str:
    """The whole of it in one line."""
    found = outcome.read_back
    assert found is not None
    dot = " · " if sys.stdout.encoding.lower().startswith("utf") else ", "
    line = dot.join(
        [
            output.counted(len(outcome.kills), "leader") + " killed",
            f"longest pause {max(outcome.pauses, default=0.0):.1f} s",
            f"{outcome.acknowledged:,} messages acknowledged",
            f"{found.rows:,} rows in SQLite",
            f"gaps {found.gaps:,}",
            f"duplicates {found.duplicates:,}",
            f"{outcome.seconds:.0f} s",
        ]
    )
    if outcome.exactly_once:
        return output.painted(f"{line}: exactly once", sys.stdout, 32)
    return output.painted(f"{line}: NOT exactly once", sys.stdout, 31)
