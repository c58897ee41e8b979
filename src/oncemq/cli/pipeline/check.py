"""`once pipeline check`."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from oncemq.cli.pipeline.running import require_spark
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import command
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipelines.archives.check import Checked

FOUND = 6


@command("check")
@click.argument("path")
def check_command(session: CommandSession, path: str) -> None:
    """Look whether an archive is whole: every offset once, every file readable.

    Reads all of PATH, without a server. Exit code 6: something was found.
    """
    require_spark()
    from oncemq.spark.pipelines.archives.check import check

    with Progress("checked", sys.stderr) as bar:
        checked = check(path, lambda count: bar.update(count, None))
    session.answer(asdict(checked), _report(checked))
    if checked.findings:
        click.get_current_context().exit(FOUND)


def _report(checked: "Checked") -> str:
    facts: list[tuple[str, object]] = [
        ("messages", checked.messages),
        ("files", checked.files),
        ("size", output.about(checked.bytes)),
    ]
    facts += [
        (f"topic {name}", f"{start:,} up to {stop:,}")
        for name, (start, stop) in checked.topics.items()
    ]
    facts += [("found", finding) for finding in checked.findings]
    return output.pairs(facts)
