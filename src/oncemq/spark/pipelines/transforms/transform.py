# pyright: basic
# pyspark's queries are typed loosely.
"""`transform`: topics into a topic or a table, by SQL or a function, each row once.

    from oncemq.spark.pipelines import transform
    transform("revenue.toml")

It is one streaming query of Spark. Law: what it wrote, and how far it read, is remembered under
the pipeline's name: run again after any crash it goes on, and a checkpoint that is not the one
is refused.
"""

import io
import re
import threading
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from oncemq.client.blocking.client import Client
from oncemq.client.settings import DEFAULT_SERVER
from oncemq.client.state.paths import pipeline_directory
from oncemq.errors import OnceMQError
from oncemq.protocol.records import Retention
from oncemq.spark.options.reader import TIMEOUT_SECONDS
from oncemq.spark.pipelines.failures import failed
from oncemq.spark.pipelines.run import MASTER, PipelineRun
from oncemq.spark.pipelines.transforms.dead_letters import Letters
from oncemq.spark.pipelines.transforms.definition import Definition
from oncemq.spark.pipelines.transforms.faults import FaultyRows, is_of_the_data, is_row_by_row
from oncemq.spark.pipelines.transforms.files import load
from oncemq.spark.pipelines.transforms.frames import messages, rows
from oncemq.spark.pipelines.transforms.targets import (
    Directory,
    Write,
    to_topic,
    whole_path,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_SECONDS = 0.2
LAST_BATCH_SECONDS = 30.0  # for a batch at work when it is asked to stop
ATTEMPTS = 3
MISFIT = "does not fit"  # as a read says of a value
RAISED = re.compile(r"Spark failed: [\w.]+(Error|Exception): ")  # of a function
BUSY = "Python worker failed to connect back"  # Spark gives it ten seconds, and no setting


@dataclass(frozen=True)
class Transformed:
    """What a run did: messages read and batches written; and where its checkpoint is."""

    name: str
    messages: int
    batches: int
    checkpoint: str


@dataclass(frozen=True)
class QueryPlan:
    """Names and types of the columns that the query makes and of those written; Spark's plan."""

    columns: list[tuple[str, str]]
    written: list[tuple[str, str]]
    text: str


def transform(
    what: "Definition | str | Path",
    *,
    follow: bool = False,
    server: str = DEFAULT_SERVER,
    timeout: float = TIMEOUT_SECONDS,
    master: str = MASTER,
    spark: "SparkSession | None" = None,
) -> Transformed:
    """Run a transform, or the file of one, from where it ended the last time.

    It ends with what the topics hold now, unless it is to `follow`. See docs/PIPELINES.md.
    """
    definition = what if isinstance(what, Definition) else load(str(what))
    given: dict[str, Any] = {"timeout": timeout, "master": master, "spark": spark}
    name = definition.check().name
    with PipelineRun("transform", name, server=server, config=definition.spark, **given) as run:
        return transform_on(run, definition, follow=follow)


def transform_on(run: PipelineRun, definition: Definition, *, follow: bool = False) -> Transformed:
    """The same, as a part of a run."""
    work = Transforming(run, definition)
    for attempt in count(1):
        try:
            return work.run(follow=follow)
        except (PySparkException, Py4JError) as error:
            if attempt == ATTEMPTS or BUSY not in str(error):
                raise _advised(error, definition) from error
            run.screen.note("the machine was too busy to start a worker of Spark's: once more")
    raise AssertionError("the last attempt returns or raises")


def _advised(cause: PySparkException | Py4JError, definition: Definition) -> OnceMQError:
    """One bad message fails a batch again and again: say which way out there is."""
    error = failed(cause)
    misfit = MISFIT in error.detail
    is_known = misfit or RAISED.search(error.detail) is not None or is_of_the_data(cause)
    if not is_known or definition.dead or not definition.target.is_topic:
        return error
    where = "" if misfit else " (where each row is made of one message)"
    return type(error)(
        f"{error.detail}. To go on without such messages, and keep them{where}, name a topic for "
        f"them: --dead {definition.name}.dead, or dead = '{definition.name}.dead' in the file"
    )


def plan(run: PipelineRun, definition: Definition) -> QueryPlan:
    """What would be done; nothing is read or written."""
    try:
        with rows(run, definition) as found:
            written = _written(found, definition)
            said = io.StringIO()
            with redirect_stdout(said):  # where Spark prints it
                written.explain()
            return QueryPlan(found.dtypes, written.dtypes, said.getvalue().strip())
    except (PySparkException, Py4JError) as error:
        raise failed(error) from error


def checkpoint_of(definition: Definition) -> str:
    """Where the checkpoint is."""
    default = str(pipeline_directory(definition.name) / "checkpoint")
    return whole_path(definition.checkpoint or default)


def _written(found: DataFrame, definition: Definition) -> DataFrame:
    return messages(found, definition.target) if definition.target.is_topic else found


def _keep_forever(mq: Client, topic: str) -> None:
    """Have a topic that keeps letters which nobody subscribes to; one that keeps any stays so."""
    keeps = Retention(forever=True)
    if not mq.create_topic(topic, keeps) and not mq.topic(topic).topic.retention.keeps:
        mq.configure_topic(topic, keeps)


class Transforming:
    """One run of one query."""

    def __init__(self, run: PipelineRun, definition: Definition) -> None:
        self._run, self._definition = run, definition
        self._started = threading.Event()
        self._query_id = ""
        self._last = ""  # the moment of the last progress that was counted
        self._messages = self._batches = 0

    def run(self, *, follow: bool) -> Transformed:
        """To the end, or until it is asked to stop."""
        definition = self._definition
        checkpoint = checkpoint_of(definition)
        trigger: dict[str, Any] = {"availableNow": True}
        if follow:
            trigger = {"processingTime": f"{definition.every * 1000:.0f} milliseconds"}
        if definition.dead:
            _keep_forever(self._run.mq, definition.dead)
        with rows(self._run, definition) as found:
            written = _written(found, definition)
            writer = written.writeStream.outputMode(definition.mode).trigger(**trigger)
            query = self._start(writer.option("checkpointLocation", checkpoint), written)
        try:
            self._query_id = str(query.id)
            self._started.set()
            self._watch(query)
        finally:
            query.stop()
        return Transformed(definition.name, self._messages, self._batches, checkpoint)

    def _start(self, writer: "DataStreamWriter", written: DataFrame) -> "StreamingQuery":
        run, definition, target = self._run, self._definition, self._definition.target
        if target.table:
            return writer.toTable(target.table)
        if target.path:
            directory = Directory(run.spark, target.path, target.partition_by)
            directory.check_columns(written)
            return writer.foreachBatch(self._into(directory)).start()
        options = {"sink": definition.sink, "unwanted": target.unwanted}
        if definition.dead:
            return writer.foreachBatch(self._with_letters(options, written)).start()
        if target.topic:
            options["topic"] = target.topic
        if definition.mode == "update":
            return writer.foreachBatch(to_topic(run.server, run.timeout, options)).start()
        reach = {"server": run.server, "timeout": str(run.timeout)}
        return writer.format("oncemq").options(**reach, **options).start()

    def _with_letters(self, options: dict[str, str], written: DataFrame) -> Write:
        """Rows and letters in one commit; after a batch that failed, without its bad messages."""
        run, definition = self._run, self._definition
        letters = Letters(run, definition, checkpoint_of(definition))
        by_row = len(definition.sources) == 1 and is_row_by_row(written)
        faults = FaultyRows(letters, definition) if by_row else None
        put = to_topic(run.server, run.timeout, options)

        def write(batch: DataFrame, number: int) -> None:
            try:
                put(letters.beside(batch, number), number)
            except PySparkException as error:
                if faults is None or not is_of_the_data(error):
                    raise
                put(faults.sorted_out(batch.sparkSession, number), number)

        return write

    def _into(self, directory: Directory) -> Write:
        def write(batch: DataFrame, number: int) -> None:
            self._started.wait()  # for the query's id
            directory.claim(self._query_id)
            directory.write(batch, number)

        return write

    def _watch(self, query: "StreamingQuery") -> None:
        while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
            self._count(query)
            if self._run.stopping.is_set():
                self._finish_batch(query)
                query.stop()
        self._count(query)
        if (error := query.exception()) is not None and not self._run.stopping.is_set():
            raise error

    def _finish_batch(self, query: "StreamingQuery") -> None:
        """Give the batch that is at work some time to end, so that it is not done again."""
        until = time.monotonic() + LAST_BATCH_SECONDS
        while time.monotonic() < until:
            status = query.status  # of a query that ended, or waits for messages, one is False
            if not (status["isTriggerActive"] and status["isDataAvailable"]):
                return
            time.sleep(POLL_SECONDS)
            self._count(query)

    def _count(self, query: "StreamingQuery") -> None:
        for each in query.recentProgress:
            if each["timestamp"] > self._last:
                self._last = each["timestamp"]
                self._messages += each.numInputRows  # told of each source, over Spark Connect
                self._batches += "addBatch" in each["durationMs"]
        self._run.progress(self._messages)
