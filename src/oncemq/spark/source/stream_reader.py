# pyright: basic
# pyarrow carries no types.
"""`spark.readStream`: plans micro-batches on the driver; copies of it read in the tasks.

Laws: a range that Spark has in its checkpoint is the same rows for ever; what is not committed
is not freed (see `hold`); 'latest' is a place in the checkpoint before anything after it is
read, so rows that race the start of the query are not lost.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from oncemq.client.blocking.client import Client
from oncemq.protocol.replies import TopicEnd
from oncemq.spark.columns.layout import Layout
from oncemq.spark.options.patience import Patience
from oncemq.spark.options.reader import SourceOptions
from oncemq.spark.source import planning
from oncemq.spark.source.data_loss import lost, made_again, no_longer_kept, went_back
from oncemq.spark.source.progress import (
    VERSION,
    ReadPlace,
    ReadProgress,
    first_offset,
    progress_of,
    share,
)
from oncemq.spark.source.ranges import TaskRange, TopicRange, ranges
from oncemq.spark.source.reading import read
from oncemq.spark.source.retention_subscription import Hold

log = logging.getLogger(__name__)

FIRST_HOLD_SECONDS = 3 * 86_400.0
POLL_SECONDS = 0.5  # an idle query asks this often, and is told at once when something comes


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source. On the driver it lives as long as the query runs."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._layout = Layout(options, schema)
        self._initial: ReadProgress | None = None
        self._pin = False  # the first batch is empty: it puts the beginning into the checkpoint
        self._target: dict[str, TopicEnd] | None = None  # of Trigger.AvailableNow
        self._seen: ReadProgress | None = None  # where the topics ended when last looked at
        self._guests: set[str] = set()  # topics kept by this process until the hold keeps them
        self._released = False  # whether topics that were left out are no longer held
        self._told: set[str] = set()  # topics that are not there, as was said
        self._hold: Hold | None = None
        self._patience = Patience(options.trigger_rows_min, options.trigger_delay)
        self._waits = False  # for more rows than there are
        self._mq: Client | None = None  # not shared: the guest's subscriptions are this query's

    # Planning, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins. Spark asks twice, and keeps the second answer."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial.to_spark()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes; waits a moment when there is nothing new."""
        progress = progress_of(start)
        if self._pin and self._initial == progress:
            self._pin = False
            return progress.to_spark()
        self._let_go(progress)
        ends, generation = self._look(progress)
        places = self._judged(progress, ends, generation)
        if self._hold is not None:
            self._hold.keep_on({name: each.offset for name, each in places.items()})
        reached = {name: replace(each, offset=ends[name].end) for name, each in places.items()}
        self._seen = progress.moved(reached, generation)
        backlogs = {name: ends[name].end - each.offset for name, each in places.items()}
        self._waits = self._is_early(progress, places, sum(backlogs.values()))
        if self._waits:
            return progress.to_spark()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        taken = share(backlogs, rows_max)
        moved = {
            name: replace(each, offset=each.offset + taken[name]) for name, each in places.items()
        }
        left = [name for name in progress.topics if not planning.fits(self._options, name)]
        return progress.moved(moved, generation, left).to_spark()

    def _is_early(self, progress: ReadProgress, places: dict[str, ReadPlace], rows: int) -> bool:
        """Whether so few rows are to wait for more; they never do in a run that has an end."""
        if self._target is not None or places != progress.topics:
            return False
        return self._patience.waits(rows, time.monotonic())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What maxOffsetsPerTrigger says."""
        rows_max = self._options.trigger_rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the topics end, for Spark's progress report: the lag. From memory."""
        return None if self._seen is None else self._seen.to_spark()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing new is there: the query ends when it has read up to here."""
        mq = self._client()
        here = [(name, -1) for name in planning.names(mq, self._options)]
        self._target = {each.name: each for each in mq.ends(here)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch whose end is in the checkpoint now."""
        self._pin = False
        first, last = progress_of(start), progress_of(end)
        stretches = [
            TopicRange(name, place.id, first_offset(first, name, place), place.offset)
            for name, place in last.topics.items()
        ]
        stretches = self._kept([each for each in stretches if each.rows >= 0], last.generation)
        self._keep(last, {each.topic: each.start for each in stretches})
        options = self._options
        return list(
            ranges(stretches, tasks_min=options.tasks_min, task_rows_max=options.task_rows_max)
        )

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done for good: the server may free what it held for it."""
        progress = progress_of(end)
        if progress.subscription is not None:
            places = {name: place.offset for name, place in progress.topics.items()}
            self._holding(progress.subscription).settle(places)

    def stop(self) -> None:
        """The query ended; its subscription stays for the next start."""
        for each in (self._hold, self._mq):
            if each is not None:
                each.close()

    # Reading, in the tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, TaskRange)
        return read(self._options, self._layout, partition)

    # Inside

    def _client(self) -> Client:
        if self._mq is None:
            self._mq = Client(self._options.server, timeout=self._options.timeout)
        return self._mq

    def _begin(self) -> ReadProgress:
        options, mq = self._options, self._client()
        keep = options.subscription is not None
        places: dict[str, ReadPlace] = {}
        for name, topic in planning.held(mq, planning.names(mq, options)).items():
            offset = planning.begin(mq, options, topic, keep=keep)
            places[name] = ReadPlace(topic.topic_id, offset, offset)
            if keep:
                self._guests.add(name)
        self._pin = options.start.moves
        name = options.subscription or _own_name(keep=keep)
        return ReadProgress(VERSION, name, places, mq.watch([]).generation)

    def _look(self, progress: ReadProgress) -> tuple[dict[str, TopicEnd], int]:
        """Where the topics end; when all end where the query is, as soon as one does not.

        And the generation of the server's log; each end says how far that agrees with the query's.
        """
        mq = self._client()
        here = {
            name: place.offset
            for name, place in progress.topics.items()
            if planning.fits(self._options, name)
        }
        for name in planning.names(mq, self._options):
            here.setdefault(name, 0)
        if self._waits and self._seen is not None:  # what there is, is known
            here |= {name: place.offset for name, place in self._seen.topics.items()}
        wait = POLL_SECONDS if self._target is None else 0.0
        found = mq.watch(list(here.items()), wait=wait, generation=progress.generation)
        ends = {each.name: each for each in found.topics}
        if self._target is None:
            return ends, found.generation
        agreed = {name: each.agreed for name, each in ends.items()}
        target = {
            name: replace(each, agreed=agreed.get(name, each.agreed))
            for name, each in self._target.items()
        }
        return target, found.generation

    def _judged(
        self, progress: ReadProgress, ends: dict[str, TopicEnd], generation: int
    ) -> dict[str, ReadPlace]:
        """Where the query stands on each topic that is there; what is amiss is said.

        Which topics those are, the options say, now as at the start: the checkpoint says how far.
        """
        fail = self._options.fail_on_data_loss
        places: dict[str, ReadPlace] = {}
        for name, place in progress.topics.items():
            topic = ends.get(name)
            if not planning.fits(self._options, name):
                log.warning("topic left out topic=%s next=%d: not asked for", name, place.offset)
            elif topic is None:
                lost(f"topic {name!r} was deleted", fail=fail)
            elif topic.topic_id != place.id:
                lost(made_again(name), fail=fail)
            elif progress.generation != generation and place.offset > topic.agreed:
                lost(went_back(name, place.offset, agreed=topic.agreed), fail=fail)
                places[name] = ReadPlace(place.id, topic.agreed, topic.agreed, generation)
            elif topic.end < place.offset and self._target is None:
                lost(
                    f"{name!r} ends at {topic.end}, but this query has read up to "
                    f"{place.offset}: the server lost what it once gave out",
                    fail=fail,
                )
            else:
                ends[name] = _no_less(topic, place.offset)
                places[name] = place
        for name in ends.keys() - places.keys():
            places[name] = self._joins(name, ends[name])
        self._look_for(set(self._options.topics) - ends.keys() - progress.topics.keys())
        return places

    def _look_for(self, missing: set[str]) -> None:
        """Topics that the user names and the query never saw: refused, or waited for."""
        if missing and self._options.fail_on_data_loss:
            planning.held(self._client(), sorted(missing))
        for name in missing - self._told:
            log.warning("topic waited for topic=%s: it is subscribed to, and not there", name)
        self._told = missing

    def _joins(self, name: str, topic: TopicEnd) -> ReadPlace:
        """A topic that is new to the query: it is read from what it holds on."""
        level = logging.INFO if self._options.pattern else logging.WARNING
        log.log(level, "topic joined topic=%s first=%d: new to this query", name, topic.low)
        if self._hold is not None:
            self._hold.forget(name)  # one of the same name may have been held
        if self._options.subscription is not None and name not in self._guests:
            self._client().subscribe(name, start="earliest")
            self._guests.add(name)
        return ReadPlace(topic.topic_id, topic.low, topic.low)

    def _let_go(self, progress: ReadProgress) -> None:
        """Topics that the query left out, in a batch that is done now: they are no longer held."""
        left = [name for name in progress.left if not planning.fits(self._options, name)]
        if left and progress.subscription is not None and not self._released:
            self._holding(progress.subscription).release(left)
        self._released = bool(left)

    def _kept(self, stretches: list[TopicRange], generation: int) -> list[TopicRange]:
        """What is still there of what the batch is to read."""
        named = [(stretch.topic, -1) for stretch in stretches]
        ends = self._client().watch(named, generation=generation)
        held = {each.name: each for each in ends.topics}
        fail = self._options.fail_on_data_loss
        found: list[TopicRange] = []
        for each in stretches:
            topic = held.get(each.topic)
            if topic is not None and generation != ends.generation and each.stop > topic.agreed:
                lost(went_back(each.topic, each.stop, agreed=topic.agreed), fail=fail)
                start = min(each.start, topic.agreed)
                each = TopicRange(each.topic, each.topic_id, start, topic.agreed)
            if topic is not None and topic.topic_id == each.topic_id and topic.low > each.start:
                stop = min(topic.low, each.stop)
                if each.start < stop:
                    gone = no_longer_kept(
                        each.topic, each.start, stop, low=topic.low, end=topic.end
                    )
                    lost(gone, fail=self._options.fail_on_data_loss)
                each = TopicRange(each.topic, each.topic_id, stop, each.stop)
            if topic is not None:
                found.append(each)
            elif each.rows:
                lost(f"topic {each.topic!r} was deleted", fail=self._options.fail_on_data_loss)
        return found

    def _keep(self, progress: ReadProgress, places: Mapping[str, int]) -> None:
        """The name is in the checkpoint now: let the subscription under it last."""
        if progress.subscription is None:
            return
        self._holding(progress.subscription).keep(places)
        for name in self._guests & places.keys():
            self._client().unsubscribe(name)
            self._guests.discard(name)

    def _holding(self, name: str) -> Hold:
        if self._hold is None or self._hold.name != name:
            if self._hold is not None:
                self._hold.close()
            options = self._options
            self._hold = Hold(options.server, options.timeout, name, lease=self._lease(name))
        return self._hold

    def _lease(self, name: str) -> float:
        """For how many seconds the hold outlives the query; 0: for good.

        Spark does not tell a source whether its checkpoint is a temporary one, which no query comes
        back to. So a hold that was not named is for some days, until a query has come back to it.
        """
        if self._options.hold_expires is not None:
            return self._options.hold_expires
        came_back = self._initial is None
        return 0 if came_back or name == self._options.subscription else FIRST_HOLD_SECONDS


def _own_name(*, keep: bool) -> str | None:
    """The name of a query that was given none: random, and in its checkpoint from now on."""
    return f"spark-{secrets.token_hex(8)}" if keep else None


def _no_less(topic: TopicEnd, offset: int) -> TopicEnd:
    """A frozen target that the query is beyond already is where the query is."""
    return TopicEnd(topic.name, topic.topic_id, topic.low, max(topic.end, offset))  # type: ignore[arg-type]
