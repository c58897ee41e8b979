# pyright: basic
# pyspark and pyarrow carry few types.
"""`archive`: topics into Parquet or Delta, each message once.

    from oncemq.spark.pipelines import archive
    archive(["orders"], "/data/orders")

The driver plans ranges, tasks write them into hidden files, the driver lets readers see these in
order and then lets the server free the messages. There is no checkpoint beside the archive: how
far it is, is what readers see of it. Law: a message is let go on the server only when it is
visible in the archive, durably.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncemq.client.settings import DEFAULT_SERVER
from oncemq.errors import ConfigError, Fenced
from oncemq.protocol.replies import TopicEnd
from oncemq.spark.options.reader import ROWS_PER_TASK, TIMEOUT_SECONDS
from oncemq.spark.pipelines.archives.files import ArchivedPiece, directory_of
from oncemq.spark.pipelines.archives.place import ArchivePlace, Begun, make, refused
from oncemq.spark.pipelines.archives.store import require_delta, store_of
from oncemq.spark.pipelines.archives.tasks import ArchiveTask, archive_range
from oncemq.spark.pipelines.run import MASTER, PipelineRun
from oncemq.spark.pipelines.spread import spread
from oncemq.spark.source.data_loss import DataLost, no_longer_kept
from oncemq.spark.source.planning import held
from oncemq.spark.source.progress import share
from oncemq.spark.source.ranges import TopicRange, cut
from oncemq.spark.source.retention_subscription import Hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_SECONDS = 30.0  # between two steps of an archive that follows
TASK_BYTES = 256 << 20  # of messages, at most about, in one task
STEP_TASKS = 8  # after so many, what they wrote becomes visible
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Archived:
    """What a run of an archive did: new messages, and up to which offset each topic is there."""

    messages: int
    ends: dict[str, int]
    subscription: str  # under which the server keeps what comes, until it is archived


def archive(
    topics: str | Sequence[str],
    to: str | Path,
    *,
    delta: bool = False,
    follow: bool = False,
    every: float = EVERY_SECONDS,
    server: str = DEFAULT_SERVER,
    timeout: float = TIMEOUT_SECONDS,
    master: str = MASTER,
    spark: "SparkSession | None" = None,
) -> Archived:
    """Archive what topics hold, from where it ended the last time; see docs/PIPELINES.md."""
    given: dict[str, Any] = {"timeout": timeout, "master": master, "spark": spark}
    with PipelineRun("archive", str(to), server=server, **given) as run:
        return archive_on(run, topics, to, delta=delta, follow=follow, every=every)


def archive_on(
    run: PipelineRun,
    topics: str | Sequence[str],
    to: str | Path,
    *,
    delta: bool = False,
    follow: bool = False,
    every: float = EVERY_SECONDS,
) -> Archived:
    """The same, as a part of a run."""
    wanted = list(dict.fromkeys([topics] if isinstance(topics, str) else topics))
    if not wanted:
        raise ConfigError("name a topic to archive")
    if delta:
        require_delta()
    for name in wanted if not delta else ():
        directory_of(name)  # refuses what cannot be one
    there = held(run.mq, wanted)
    place = make(str(to), "delta" if delta else "parquet")
    try:
        place.lock()
        with closing(Hold(run.server, run.timeout, place.subscription)) as hold:
            work = Archiving(run, place, hold, there)
            return work.follow(every) if follow else work.once()
    except OSError as error:
        raise refused(error, place.path) from error
    finally:
        place.release()


class Archiving:
    """One process at work on one archive."""

    def __init__(
        self, run: PipelineRun, place: ArchivePlace, hold: Hold, topics: dict[str, TopicEnd]
    ) -> None:
        self._run, self._place, self._hold = run, place, hold
        self._topics = list(topics)
        self._ids = self._begin(topics)
        self._store = store_of(place)
        self._ends = {name: self._store.end(name, each) for name, each in self._ids.items()}
        self._count = 0
        run.facts["topics"] = len(self._topics)

    def once(self) -> Archived:
        """Up to where the topics end now."""
        self._up_to(self._look())
        return self._result()

    def follow(self, every: float) -> Archived:
        """On and on, until the run is asked to stop."""
        while not self._run.stopping.is_set():
            found = self._look(wait=POLL_SECONDS)
            if any(each.end > self._ends[name] for name, each in found.items()):
                self._up_to(found)
                self._run.pause(every)
            self._run.tick()
        return self._result()

    def _begin(self, topics: dict[str, TopicEnd]) -> dict[str, Begun]:
        """Which topics these are, and from where on; new ones are held from now on."""
        known = self._place.topics()
        for name, each in topics.items():
            if name in known and known[name].id != each.topic_id:
                raise DataLost(
                    f"topic {name!r} was deleted and made again: it is another one than "
                    f"{self._place.path} has. Archive it to another directory"
                )
        cursors = self._hold.keep_all(topics)
        new = {
            name: Begun(each.topic_id, cursors[name])
            for name, each in topics.items()
            if name not in known
        }
        if new:
            self._place.begin({**known, **new})
        begun = {**known, **new}
        return {name: begun[name] for name in topics}

    def _look(self, *, wait: float = 0.0) -> dict[str, TopicEnd]:
        """What the server holds of the topics; what is amiss is said."""
        here = [(name, self._ends[name]) for name in self._topics]
        found = {each.name: each for each in self._run.mq.ends(here, wait=wait)}
        for name in self._topics:
            topic, at = found.get(name), self._ends[name]
            if topic is None or topic.topic_id != self._ids[name].id:
                raise DataLost(f"topic {name!r} was deleted while it was archived")
            if topic.low > at:
                gone = no_longer_kept(name, at, topic.low, low=topic.low, end=topic.end)
                raise DataLost(
                    f"{gone}, and the archive ends at {at}: somebody ended its subscription "
                    f"{self._place.subscription!r}, or it is an older copy. Go on in another "
                    "directory"
                )
            if topic.end < at:
                raise DataLost(
                    f"{name!r} ends at {topic.end}, but the archive has it up to {at}: the server "
                    "lost what it once gave out"
                )
        return found

    def _up_to(self, targets: dict[str, TopicEnd]) -> None:
        """Step by step, so that a crash costs a step."""
        total = sum(each.end - self._ends[name] for name, each in targets.items())
        begun = self._count
        rows = {name: self._rows_per_task(name) for name in targets}
        while True:
            backlogs = {name: each.end - self._ends[name] for name, each in targets.items()}
            if not any(backlogs.values()) or self._run.stopping.is_set():
                return
            taken = share(backlogs, STEP_TASKS * min(rows.values()))
            self._step([self._stretch(name, taken[name]) for name in targets], rows)
            self._run.progress(self._count, (self._count - begun) / total)

    def _step(self, stretches: list[TopicRange], rows: dict[str, int]) -> None:
        tasks: list[ArchiveTask] = []
        for each in stretches:
            parts = cut([each], tasks_min=1, task_rows_max=rows[each.topic])
            for number, part in enumerate(parts):
                tail = self._store.tail(each.topic) if number == 0 else None
                tasks.append(self._task(part, tail))
        written = spread(self._run.spark, tasks, archive_range, list[ArchivedPiece])
        pieces = [piece for some in written for piece in some]
        self._settle()  # nothing new: right before readers see anything, an older one stops here
        self._store.publish(pieces)
        for each in stretches:
            self._ends[each.topic] = each.stop
            self._count += each.rows
        self._settle()

    def _task(self, stretch: TopicRange, tail: ArchivedPiece | None) -> ArchiveTask:
        run = self._run
        return ArchiveTask(run.server, run.timeout, str(self._place.hidden), stretch, tail)

    def _stretch(self, name: str, rows: int) -> TopicRange:
        start = self._ends[name]
        return TopicRange(name, self._ids[name].id, start, start + rows)

    def _rows_per_task(self, name: str) -> int:
        """Large messages make tasks of fewer."""
        info = self._run.mq.topic(name).topic
        size = info.stored_bytes // max(info.end - info.low, 1)
        return max(1, min(ROWS_PER_TASK, TASK_BYTES // max(size, 1)))

    def _settle(self) -> None:
        """Let the server free what readers see; refused when a newer one has taken over."""
        try:
            self._hold.settle(self._ends)
        except Fenced:
            raise Fenced(
                f"another process archives to {self._place.path}, or to a copy of it, under the "
                f"name {self._place.subscription!r}: this one stops. Nothing is lost"
            ) from None

    def _result(self) -> Archived:
        return Archived(self._count, dict(self._ends), self._place.subscription)
