"""One run of a pipeline: its Spark, its words on the terminal and on `_pipelines`.

    with Run("archive", "/data/orders", server=server) as run:
        run.spark.range(10)…
        run.progress(count, part)

Laws: a Spark that the run started ends with it, one that was there stays; what the run says
changes nothing of what it does; its last word is how it ended.
"""

import secrets
import signal
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from oncemq.client.blocking.client import Client
from oncemq.client.settings import DEFAULT_SERVER, servers_from
from oncemq.spark.options.reader import TIMEOUT_SECONDS
from oncemq.spark.pipeline_status import (
    PERIOD_SECONDS,
    Facts,
    PipelineStatus,
    State,
    StatusBoard,
    moment,
)
from oncemq.spark.runtime.environment import log_file, stderr_into
from oncemq.spark.spark_session import register, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*]"
DOUBLED_SECONDS = 1.0  # a terminal and a parent may both pass on one Ctrl-C
CONFIG = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}


class Screen(Protocol):
    """Where a run shows how far it is."""

    def note(self, text: str) -> None: ...
    def progress(self, count: int, part: float | None) -> None: ...


class Blank:
    """Shows nothing: for pipelines that are called from Python."""

    def note(self, text: str) -> None:
        """Nothing."""

    def progress(self, count: int, part: float | None) -> None:
        """Nothing."""


class PipelineRun:
    """A pipeline from its start to its end."""

    def __init__(
        self,
        pipeline: str,
        name: str,
        *,
        server: str = DEFAULT_SERVER,
        timeout: float = TIMEOUT_SECONDS,
        master: str = MASTER,
        config: Mapping[str, str] | None = None,
        spark: "SparkSession | None" = None,
        screen: Screen | None = None,
        quiet: bool = False,
        told: bool = True,
    ) -> None:
        """`told`: whether its words go to `_pipelines`; not of a run that only looks."""
        self.server = ",".join(servers_from(server))
        self.timeout = timeout
        self.screen: Screen = screen or Blank()
        self.facts: Facts = {}  # what its words say beside the numbers; set what is worth knowing
        self.stopping = threading.Event()  # asked to end in good order
        self._pipeline, self._name = pipeline, name
        self._id, self._started = secrets.token_hex(8), moment()
        self._master, self._config, self._given = master, dict(config or {}), spark
        self._mine: SparkSession | None = None
        self._log = log_file() if quiet else None  # what Spark itself has to say
        self._board = StatusBoard(self.server)
        self._told = told
        self._count, self._part = 0, None
        self._next = 0.0

    @cached_property
    def mq(self) -> Client:
        """An anonymous client of the server."""
        return Client(self.server, timeout=self.timeout)

    @cached_property
    def spark(self) -> "SparkSession":
        """The Spark to work on: the one given, the one that is there, else one of its own."""
        from pyspark.sql import SparkSession

        there = self._given or SparkSession.getActiveSession()
        if there is not None:
            register(there)
            return there
        self.screen.note(f"starting Spark on {self._master}, which takes about ten seconds")
        app = f"once pipeline {self._pipeline}"
        interrupt = signal.getsignal(signal.SIGINT)
        with stderr_into(self._log) if self._log else nullcontext():
            self._mine = session(self._master, app=app, config={**CONFIG, **self._config})
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)  # PySpark has put one of its own there
        return self._mine

    def progress(self, count: int, part: float | None = None) -> None:
        """So many messages are done, which is `part` (0 to 1) of all, if that is known."""
        self._count, self._part = count, part
        self.screen.progress(count, part)
        self.tick()

    def tick(self) -> None:
        """It is still there, though nothing is new."""
        if time.monotonic() >= self._next:
            self._tell("running")

    def pause(self, seconds: float) -> None:
        """Wait, or until it is asked to stop."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            if self.stopping.wait(min(rest, PERIOD_SECONDS)):
                return
            self.tick()

    def __enter__(self) -> Self:
        self._tell("running")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._tell("stopped" if self.stopping.is_set() else "done")
        elif isinstance(error, Exception):
            self._tell("failed", f"{type(error).__name__}: {error}")
        else:
            self._tell("stopped")
        self._board.close()
        if "mq" in self.__dict__:
            self.mq.close()
        if self._mine is not None:
            with suppress(Exception):  # a Spark that has died cannot be stopped
                self._mine.stop()
        self._end_log(failed=isinstance(error, Exception))

    def _end_log(self, *, failed: bool) -> None:
        if self._log is None:
            return
        if failed and self._log.stat().st_size:
            self.screen.note(f"what Spark itself said is in {self._log}")
        else:
            self._log.unlink()

    def _tell(self, state: State, error: str = "") -> None:
        self._next = time.monotonic() + PERIOD_SECONDS
        if not self._told:
            return
        self._board.tell(
            PipelineStatus(
                pipeline=self._pipeline,
                name=self._name,
                run=self._id,
                state=state,
                started=self._started,
                messages=self._count,
                part=self._part,
                facts=self.facts,
                error=error,
            )
        )


@contextmanager
def stopped_by_signals(run: PipelineRun, *, gently: bool) -> Generator[None]:
    """SIGTERM and Ctrl-C end the run: now, or (`gently`) by asking, and now when asked twice."""

    first = 0.0

    def asked(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if run.stopping.is_set() and time.monotonic() - first < DOUBLED_SECONDS:
            return
        if run.stopping.is_set() or not gently:
            raise KeyboardInterrupt
        first = time.monotonic()
        run.stopping.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
