"""`once demo`."""

import random
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from oncemq.cli.demo import spark_ending
from oncemq.cli.demo.spark_ending import Ending, archive_and_audit
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.cli.demo.demo import DemoOutcome, DemoPlan, DemoProgress

FOUND = 6
REDRAW_SECONDS = 0.1
BAR_CELLS = 20


class Ticker:
    """One line that is redrawn on a terminal; elsewhere a plain line for each crash."""

    def __init__(self, stream: TextIO, messages: int, kills: int) -> None:
        self._stream = stream
        self._messages = messages
        self._kills = kills
        self._live = stream.isatty()
        self._next = 0.0
        self._crashes = 0

    def show(self, progress: "DemoProgress") -> None:
        """Draw it, if it is time."""
        if self._live:
            self._redraw(progress)
        elif progress.crashes > self._crashes:
            self._crashes = progress.crashes
            at = f"{progress.put:,} of {self._messages:,} messages"
            self._write(f"once: killed {progress.victim} at {at}, started it again\n")

    def clear(self) -> None:
        """Remove the line."""
        if self._live:
            self._write("\r\x1b[K")

    def _redraw(self, progress: "DemoProgress") -> None:
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + REDRAW_SECONDS
        full = BAR_CELLS * progress.put // self._messages
        bar = f"[{'#' * full}{'.' * (BAR_CELLS - full)}]"
        victim = f": kill -9 {progress.victim}" if progress.victim else ""
        line = (
            f"{bar} {progress.put:,} of {self._messages:,} put, {progress.rows:,} rows, "
            f"{progress.crashes} of {self._kills} crashes{victim}"
        )
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r\x1b[K{line[:width]}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@command("demo")
@click.option("--messages", type=click.IntRange(1), default=6_000, help="How many to put; 6,000.")
@click.option("--publishers", type=click.IntRange(1, 50), default=3, help="How many put them; 3.")
@click.option("--kills", type=click.IntRange(0), default=12, help="How often one is killed; 12.")
@click.option("--seed", type=int, help="Who is killed, and when; random by default.")
@click.option("--no-spark", is_flag=True, help="Leave out the end, on Spark.")
@click.option("--keep", is_flag=True, help="Leave the log, the state and the database there.")
def demo(
    session: CommandSession,
    messages: int,
    publishers: int,
    kills: int,
    seed: int | None,
    no_spark: bool,
    keep: bool,
) -> None:
    """See exactly-once survive crashes.

    Starts a server, publishers and a subscriber that writes into SQLite, kills them at random
    with SIGKILL while they work, and starts them again. Then reads everything back: each message
    must be in the database once. Exit code 6: it is not so. At the end, where PySpark is
    installed, the topic is archived as Parquet and audited on Spark.
    """
    from oncemq.cli.demo.demo import DemoPlan
    from oncemq.cli.demo.process import ended_by_a_signal

    if seed is None:
        seed = random.randrange(1_000_000)
    plan = DemoPlan(max(messages, publishers), publishers, kills, seed)
    directory = Path(tempfile.mkdtemp(prefix="oncemq-demo-"))
    try:
        with ended_by_a_signal():
            exactly_once = perform(session, plan, directory, spark=not no_spark)
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
    if keep:
        session.note(f"once: kept {directory}; look into it with\n{_look_again(directory)}")
    if not exactly_once:
        click.get_current_context().exit(FOUND)


def perform(session: CommandSession, plan: "DemoPlan", directory: Path, *, spark: bool) -> bool:
    """Run the plan, show it, and answer with what came of it; whether it was exactly once."""
    from oncemq.cli.demo.demo import Demo
    from oncemq.cli.demo.publisher import TOPIC

    ticker = Ticker(sys.stderr, plan.messages, plan.kills)
    if not session.json:
        session.note(
            f"once: a server, {output.counted(plan.publishers, 'publisher')}, a subscriber with "
            f"SQLite, and {output.counted(plan.kills, 'SIGKILL')} to come (--seed {plan.seed})"
        )
    endings: list[Ending] = []

    def then(outcome: "DemoOutcome", address: str) -> None:
        ticker.clear()
        if not session.json:
            session.say(_report(outcome))
            sys.stdout.flush()
        if spark and spark_is_there(session):
            endings.append(archive_and_audit(session, address, TOPIC, directory))

    try:
        outcome = Demo(plan, directory).run(ticker.show, then)
    finally:
        ticker.clear()
    ending = endings[0] if endings else None
    if session.json:
        facts = asdict(outcome) | {"seed": plan.seed, "exactly_once": outcome.exactly_once}
        session.emit(facts | {"spark": None if ending is None else asdict(ending)})
    elif ending is not None:
        session.say(_verdict(spark_ending.line(ending, dot=_dot()), ending.clean))
    return outcome.exactly_once and (ending is None or ending.clean)


def spark_is_there(session: CommandSession) -> bool:
    """Whether the end can be shown; what is to come is said, or what to install."""
    if spark_ending.there():
        if not session.json:
            session.note(
                "once: now on Spark: the topic archived as Parquet, and audited; about half a "
                "minute (--no-spark leaves it out)"
            )
        return True
    if not session.json:
        session.note(
            f"once: with Spark ({spark_ending.INSTALL}) the demo archives and audits there"
        )
    return False


def _report(outcome: "DemoOutcome") -> str:
    crashes = sum(outcome.crashes.values())
    victims = ", ".join(f"{name} {count}" for name, count in outcome.crashes.items())
    facts: list[tuple[str, object]] = [
        ("crashes", f"{crashes} ({victims})" if crashes else 0),
        ("redeliveries dropped", outcome.redeliveries_dropped),
        ("out of order", outcome.out_of_order),
        ("seconds", f"{outcome.seconds:.1f}"),
    ]
    facts += [("found", finding) for finding in outcome.findings]
    return f"{output.pairs(facts)}\n\n{pitch(outcome)}"


def pitch(outcome: "DemoOutcome") -> str:
    """The whole of it in one line."""
    crashes = sum(outcome.crashes.values())
    line = _dot().join(
        [
            f"{outcome.messages:,} messages put",
            f"{outcome.sends:,} sends on the wire",
            f"{outcome.duplicates_absorbed:,} duplicates absorbed",
            f"{crashes:,} crashes",
            f"{outcome.rows:,} rows in SQLite",
            f"gaps {outcome.gaps:,}",
            f"duplicates {outcome.duplicates:,}",
        ]
    )
    return _verdict(line, outcome.exactly_once)


def _verdict(line: str, exactly_once: bool) -> str:
    if exactly_once:
        return output.painted(f"{line} {'✔ ' if _unicode() else ': '}exactly once", sys.stdout, 32)
    return output.painted(f"{line} {'✘ ' if _unicode() else ': '}NOT exactly once", sys.stdout, 31)


def _dot() -> str:
    return " · " if _unicode() else ", "


def _unicode() -> bool:
    return sys.stdout.encoding.lower().startswith("utf")


def _look_again(directory: Path) -> str:
    return (
        f"      once serve --data {directory}/server/data &\n"
        f"      once audit orders --journal {directory}/ledger.db:effects:id"
    )
