"""`once pipeline check`."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from oncemq.cli import output
from oncemq.cli.command import command
from oncemq.cli.pipeline_run import require_spark
from oncemq.cli.progress import Progress
from oncemq.cli.session import Session

if TYPE_CHECKING:
    from oncemq.spark.pipelines.archive_check import Checked

FOUND = 6


@command("check")
@click.argument("path")
def command_of_it(session: Session, path: str) -> None:
    """Look whether an archive is whole: every offset once, every file readable.

    Reads all of PATH, without a server. Exit code 6: something was found.
    """
    require_spark()
    from oncemq.spark.pipelines.archive_check import check

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
