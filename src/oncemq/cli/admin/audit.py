"""`once audit`: walks what is stored, compares it with what took effect, says what is wrong.

`oncemq.client.admin.topic_facts` reads each topic; the rules are in `oncemq.audit`. A journal is
what a subscriber wrote down of its own effects, receipts are what a publisher was told.
"""

import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import click

from oncemq.audit.checker import Audit
from oncemq.audit.facts import PutFact
from oncemq.audit.findings import Findings
from oncemq.cli.terminal.audit_report import FOUND, AuditReport, JournalLine, LogLine
from oncemq.cli.terminal.command import command, topic_names
from oncemq.cli.terminal.journal import EffectJournal, journals_of, receipts_of
from oncemq.cli.terminal.progress import Progress
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq import Client
    from oncemq.protocol.replies import TopicInfo


@command("audit")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=topic_names)
@click.option(
    "--journal",
    "journals",
    metavar="PATH[:TABLE:COLUMN]",
    multiple=True,
    callback=journals_of,
    help="Compare with what took effect: JSON lines with an id, or a topic, an offset and perhaps "
    "a payload_sha256; or a column of message ids in a SQLite database. May be repeated.",
)
@click.option(
    "--receipts",
    "receipts",
    metavar="PATH[:TABLE:COLUMN]",
    multiple=True,
    callback=receipts_of,
    help="Look for what a publisher was told is stored: the same forms, such as the lines of "
    "`once put --json`. May be repeated.",
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="The journal begins here; at the lowest offset that is stored by default.",
)
@click.option(
    "--until",
    "end",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="The journal need not go further; up to the end of the topic by default.",
)
def audit(
    session: CommandSession,
    topics: tuple[str, ...],
    journals: list[EffectJournal],
    receipts: list[EffectJournal],
    start: int | None,
    end: int | None,
) -> None:
    """Prove that nothing is missing and nothing is double.

    Reads everything that is stored in each TOPIC (all of them by default): offsets without gap,
    each producer's numbers in order, times that never go back, checksums that hold. With
    --journal also: each message took effect once, in order, and nothing else did. With
    --receipts also: what was acknowledged is there.

    Exit code 6: something was found.
    """
    run = Audit()
    with session.visitor() as client:
        infos = [client.topic(name).topic for name in topics] if topics else client.topics()
        digests = any(journal.has_digests for journal in (*journals, *receipts))
        promises = _promises(receipts, topics)
        _look(run, client, infos, promises, digests=digests)
    for journal in journals:
        _compare(run, journal, topics, start, end)
    findings = run.finish()
    report = _report(run, findings, journals=bool(journals))
    session.answer(report.as_object(), report.text())
    if findings.counts:
        click.get_current_context().exit(FOUND)


def _promises(receipts: list[EffectJournal], topics: tuple[str, ...]) -> dict[str, list[PutFact]]:
    """What was acknowledged, by topic: of those named, else of all."""
    found: dict[str, list[PutFact]] = defaultdict(list)
    for put in (put for journal in receipts for put in journal.receipts()):
        if not topics or put.topic in topics:
            found[put.topic].append(put)
    return found


def _look(
    run: Audit,
    client: "Client",
    infos: "list[TopicInfo]",
    promises: dict[str, list[PutFact]],
    *,
    digests: bool,
) -> None:
    from oncemq.client.admin.topic_facts import walk

    total = sum(info.end - info.low for info in infos)
    seen = 0
    with Progress("audited", sys.stderr) as progress:
        for info in infos:
            for fact in walk(client, info, digests=digests):
                run.see(fact)
                for put in promises.pop(info.name, ()):  # the first fact: what the topic holds
                    run.see(put)
                seen += 1
                if seen % 1_000 == 0:
                    progress.update(seen, seen / total if total else None)
    for put in (put for puts in promises.values() for put in puts):
        run.see(put)  # on topics that are not there


def _compare(
    run: Audit, journal: EffectJournal, topics: tuple[str, ...], start: int | None, end: int | None
) -> None:
    """See the effects of a journal: on the topics named, else on those it mentions."""
    mentioned = topics or sorted({effect.topic for effect in journal.effects()})
    if not mentioned:
        raise click.UsageError(f"{journal.name} mentions no message; name the TOPIC it is about")
    for topic in mentioned:
        if topic in run.logs:
            run.expect(journal.name, topic, start=start, end=end)
    for effect in journal.effects():
        if effect.topic in mentioned:
            run.see(effect)


def _report(run: Audit, findings: Findings, *, journals: bool) -> AuditReport:
    logs = [
        LogLine(name, log.messages, log.held.low, log.held.end, log.producers, lost=log.lost)
        for name, log in run.logs.items()
    ]
    lines = [
        JournalLine(each.client, each.topic, each.course.count, each.uncompared)
        for each in run.journals
    ]
    return AuditReport(logs, lines if journals else None, findings)
