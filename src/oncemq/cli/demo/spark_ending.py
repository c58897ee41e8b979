"""The end of the demo: the topic archived as Parquet on Spark, and audited there, if it is there.

The audit compares three things: what the server holds, what the archive holds, and what took
effect in the subscriber's database.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.cli.terminal import output
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.spark.pipelines.run import Screen

INSTALL = "pip install 'oncemq[spark]'"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # It lives for seconds: quick to start matters more than quick at last.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Ending:
    """What came of it."""

    archived: int
    files: int
    findings: int
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether nothing is missing and nothing is double."""
        return not self.findings


def there() -> bool:
    """Whether Spark is installed."""
    from oncemq.spark.runtime.environment import require

    try:
        require()
    except ImportError:
        return False
    return True


def archive_and_audit(session: CommandSession, address: str, topic: str, directory: Path) -> Ending:
    """Archive the topic, and audit server, archive and ledger against each other."""
    from oncemq.cli.pipeline.running import Terminal
    from oncemq.cli.terminal.progress import Progress
    from oncemq.spark.pipelines.archives.archive import archive_on
    from oncemq.spark.pipelines.audits.audit import asked_for, audit_on
    from oncemq.spark.pipelines.run import PipelineRun

    began = time.monotonic()
    where = str(directory / "archive")
    effects = f"{directory / 'ledger.db'}:effects:id"
    screen: Screen | None = None if session.json else Terminal(session, Progress("archived", None))
    with PipelineRun(
        "demo", where, server=address, config=SETTINGS, screen=screen, quiet=True
    ) as run:
        archived = archive_on(run, topic, where)
        run.screen.note(f"{archived.messages:,} messages archived; now the audit")
        report = audit_on(run, asked_for([topic], [where], [effects], [], []))
    files = sum(1 for _ in Path(where).glob("topic=*/*/*.parquet"))
    found = sum(report.counts.values())
    return Ending(archived.messages, files, found, time.monotonic() - began)


def line(ending: Ending, *, dot: str) -> str:
    """The whole of it in one line."""
    return dot.join(
        [
            "on Spark",
            f"{ending.archived:,} messages archived in {output.counted(ending.files, 'file')}",
            f"server, archive and SQLite compared: {ending.findings:,} findings",
            f"{ending.seconds:.0f} s",
        ]
    )
