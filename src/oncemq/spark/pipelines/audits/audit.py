# pyright: basic
# pyspark's columns are typed loosely.
"""The exactly-once audit at scale: puts against what is stored against effects, counted by Spark.

`once audit` for topics and journals that one process would take too long to walk, and for
archives. Inputs, kinds of findings and exit code are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from oncemq.audit.findings import FINDINGS_KEPT, Finding, Findings
from oncemq.client.settings import DEFAULT_SERVER
from oncemq.errors import ConfigError
from oncemq.spark.options.reader import TIMEOUT_SECONDS
from oncemq.spark.pipelines.audits import rules
from oncemq.spark.pipelines.audits.effects import Effects, told_by, understood
from oncemq.spark.pipelines.audits.inputs import COLUMN, WrittenNotes, notes_of
from oncemq.spark.pipelines.audits.logs import Logs, archived, live
from oncemq.spark.pipelines.audits.report import JournalCourse, Report, collected
from oncemq.spark.pipelines.failures import failed
from oncemq.spark.pipelines.run import MASTER, PipelineRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED = 3  # topics that a run is named after


@dataclass(frozen=True)
class Asked:
    """What is to be looked at."""

    topics: Sequence[str]
    archives: Sequence[str]
    effects: Sequence[tuple[WrittenNotes, bool]]  # and whether their order means anything
    receipts: Sequence[WrittenNotes]
    start: int | None
    end: int | None
    offline: bool

    @property
    def name(self) -> str:
        """What it is about, in short."""
        named = self.topics or self.archives or ("all topics",)
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        return ", ".join(named[:NAMED]) + more

    @property
    def needs_digests(self) -> bool:
        """Whether payloads may have to be compared."""
        return bool(self.compares_holders or self.receipts or self.effects_have_digests)

    @property
    def effects_have_digests(self) -> bool:
        """Whether some of them may say what the payloads were."""
        return any(notes.form != COLUMN for notes, _ in self.effects)

    @property
    def compares_holders(self) -> bool:
        """Whether one message may be in several places."""
        return len(self.archives) + (not self.offline) > 1


def audit(
    topics: str | Sequence[str] = (),
    *,
    archives: Sequence[str] = (),
    journals: Sequence[str] = (),
    receipts: Sequence[str] = (),
    effects: Sequence[str] = (),
    start: int | None = None,
    end: int | None = None,
    offline: bool = False,
    server: str = DEFAULT_SERVER,
    timeout: float = TIMEOUT_SECONDS,
    master: str = MASTER,
    spark: "SparkSession | None" = None,
) -> Report:
    """Is everything that was put there, and did it take effect once? See docs/PIPELINES.md."""
    asked = asked_for(
        topics, archives, journals, receipts, effects, start=start, end=end, offline=offline
    )
    given: dict[str, Any] = {"timeout": timeout, "master": master, "spark": spark}
    with PipelineRun("audit", asked.name, server=server, **given) as run:
        return audit_on(run, asked)


def asked_for(
    topics: str | Sequence[str],
    archives: Sequence[str],
    journals: Sequence[str],
    receipts: Sequence[str],
    effects: Sequence[str],
    *,
    start: int | None = None,
    end: int | None = None,
    offline: bool = False,
) -> Asked:
    """What is to be looked at; ConfigError when that cannot be, before any Spark is started."""
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if offline and not archives:
        raise ConfigError("without the server there are only archives to audit: name one")
    return Asked(
        topics=names,
        archives=tuple(archives),
        effects=[
            *((notes_of(each), True) for each in journals),
            *((notes_of(each), False) for each in effects),
        ],
        receipts=[notes_of(each) for each in receipts],
        start=start,
        end=end,
        offline=offline or bool(archives and not names),
    )


def audit_on(run: PipelineRun, asked: Asked) -> Report:
    """The same, as a part of a run."""
    keeper: list[DataFrame] = []
    try:
        report = _report(run, asked, keeper)
    except (PySparkException, Py4JError) as error:
        raise failed(error) from error
    finally:
        for each in keeper:
            each.unpersist()
    run.facts |= {"clean": report.clean, "findings": sum(report.counts.values())}
    return report


def _report(run: PipelineRun, asked: Asked, keeper: list[DataFrame]) -> Report:
    logs = _logs(run, asked, keeper)
    run.progress(sum(each.messages for each in logs.extents))
    told = logs.gaps()
    frames = [rules.of_logs(logs.rows)]
    if asked.compares_holders:
        frames.append(rules.of_holders(logs.rows))
    held = logs.held(run.spark)
    if asked.receipts:
        notes = [(each, False) for each in asked.receipts]
        receipts = _kept(told_by(run.spark, notes, asked.topics, receipts=True), keeper)
        frames.append(rules.of_receipts(understood(receipts), logs.rows, held))
    courses: Sequence[JournalCourse] = ()
    if asked.effects:
        rows = _kept(told_by(run.spark, asked.effects, asked.topics), keeper)
        effects = Effects(rows, held, logs.whole, [each.name for each, _ in asked.effects])
        effects.expect(asked.topics, asked.start, asked.end)
        told += effects.gaps()
        frames.append(
            rules.of_effects(
                rows, logs.rows, held, effects.bounds(run.spark), digests=asked.effects_have_digests
            )
        )
        courses = effects.courses
    return Report(logs.extents, courses, _findings(rules.union(frames), told))


def _logs(run: PipelineRun, asked: Asked, keeper: list[DataFrame]) -> Logs:
    digests = asked.needs_digests
    infos = []
    if not asked.offline:
        mq, names = run.mq, asked.topics
        infos = [mq.topic(name).topic for name in names] if names else mq.topics()
    frames = [live(run.spark, infos, run.server, digests=digests)] if infos else []
    frames += [
        archived(run.spark, path, rank, asked.topics, digests=digests)
        for rank, path in enumerate(asked.archives, start=1)
    ]
    return Logs.of(_kept(rules.union(frames), keeper), infos)


def _kept(frame: DataFrame, keeper: list[DataFrame]) -> DataFrame:
    """Read once, however many rules look at it."""
    keeper.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
    return keeper[-1]


def _findings(found: DataFrame, told: list[Finding]) -> Findings:
    """Count all, tell the first."""
    counts: dict[str, int] = {}
    for each in told:
        counts[each.kind] = counts.get(each.kind, 0) + each.count
    place, columns = F.struct("topic", "offset", "detail"), ["kind", "topic", "offset", "detail"]
    first = F.min_by(F.struct(*columns, "count"), place, FINDINGS_KEPT)
    for kind, count, examples in found.groupBy("kind").agg(F.sum("count"), first).collect():
        counts[kind] = counts.get(kind, 0) + count
        told = told + [Finding(**row.asDict()) for row in examples]
    return collected(told, counts)
