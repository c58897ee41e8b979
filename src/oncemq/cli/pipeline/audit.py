"""`once pipeline audit`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from oncemq.cli.pipeline.running import require_spark, running, spark_options
from oncemq.cli.terminal.audit_report import FOUND, AuditReport, JournalLine, LogLine
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipelines.audits.report import Report

NOTES = "JSON lines, or DATABASE:TABLE:COLUMN of SQLite. May be repeated."


@command("audit")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=topic_names)
@click.option(
    "--archive",
    "archives",
    metavar="PATH",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Audit an archive, too, and compare it with the server. May be repeated.",
)
@click.option(
    "--journal",
    "journals",
    metavar="PATH[:TABLE:COLUMN]",
    multiple=True,
    help=f"Compare with what took effect, in this order: {NOTES}",
)
@click.option(
    "--effects",
    metavar="WHERE",
    multiple=True,
    help="Compare with what took effect, in whatever order: also Parquet, table:NAME of Spark's "
    "catalog, or postgresql://…:TABLE:COLUMN. May be repeated.",
)
@click.option(
    "--receipts",
    metavar="PATH[:TABLE:COLUMN]",
    multiple=True,
    help=f"Look for what a publisher was told is stored: {NOTES}",
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Journals and effects begin here; at the lowest offset by default.",
)
@click.option(
    "--until",
    "end",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Journals and effects need not go further; up to the end by default.",
)
@click.option("--offline", is_flag=True, help="Ask no server: audit the archives alone.")
@click.option(
    "--report",
    "file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write what was found there, as JSON.",
)
@spark_options
def audit_command(
    session: CommandSession,
    topics: tuple[str, ...],
    archives: tuple[str, ...],
    journals: tuple[str, ...],
    effects: tuple[str, ...],
    receipts: tuple[str, ...],
    start: int | None,
    end: int | None,
    offline: bool,
    file: Path | None,
    master: str,
    conf: dict[str, str],
) -> None:
    """Prove on Spark that nothing is missing and nothing is double.

    What `once audit` does, for any number of messages, and over archives: each TOPIC as the
    server has it (all of them by default) and as each --archive has it; without a TOPIC, with
    --archive, the archives alone. Offsets without gap, producers' numbers in order, the same
    bytes everywhere; with --receipts, --journal and --effects also: what was acknowledged is
    there, and took effect once.

    Exit code 6: something was found.
    """
    require_spark()
    from oncemq.spark.pipelines.audits.audit import asked_for, audit_on

    asked = asked_for(
        topics, archives, journals, receipts, effects, start=start, end=end, offline=offline
    )
    with running(session, "audit", asked.name, master, conf, verb="audited") as run:
        found = audit_on(run, asked)
    report = _report(found, journals=bool(journals or effects))
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(report.as_object())) + b"\n")
    session.answer(report.as_object(), report.text())
    if not found.clean:
        click.get_current_context().exit(FOUND)


def _report(found: "Report", *, journals: bool) -> AuditReport:
    logs = [
        LogLine(each.topic, each.messages, each.low, each.end, each.producers, each.holder)
        for each in found.extents
    ]
    lines = [
        JournalLine(each.journal, each.topic, each.effects, each.freed) for each in found.journals
    ]
    return AuditReport(logs, lines if journals else None, found.findings)
