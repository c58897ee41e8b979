"""What pipelines say of themselves, on the topic `_pipelines`: JSON, the latest word counts.

Law: a status never fails a pipeline and never holds it up for long; one that could not be told
is a warning, and the next one is tried after a while.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from oncemq.client.blocking.client import Client
from oncemq.errors import NoSuchTopic, OnceMQError
from oncemq.protocol.names import PIPELINES
from oncemq.protocol.records import Retention

log = logging.getLogger(__name__)

KEPT = Retention(keep_ms=7 * 24 * 3600 * 1000)
PERIOD_SECONDS = 30.0  # between two words of a pipeline that runs
SILENT_AFTER = timedelta(seconds=4 * PERIOD_SECONDS)
PATIENCE_SECONDS = 2.0  # for the server, with one word
SULK_SECONDS = 60.0  # after a word that could not be told
READ_LIMIT = 1000

State = Literal["running", "done", "stopped", "failed"]
Facts = dict[str, str | int | float | bool | None]


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One word of a pipeline. `run` tells its runs apart; `part` is how much of it is done."""

    pipeline: str
    name: str
    run: str
    state: State
    started: str
    messages: int = 0
    part: float | None = None
    facts: Facts = {}
    error: str = ""

    @property
    def key(self) -> str:
        """Which pipeline it is, through all its runs: `archive /data/orders`."""
        return f"{self.pipeline} {self.name}"


class StatusHeard(msgspec.Struct, frozen=True):
    """The latest word of a pipeline, and when the server stored it."""

    status: PipelineStatus
    at: datetime

    def state(self, now: datetime) -> str:
        """How it is doing; `silent` when it said that it runs and then nothing more."""
        if self.status.state == "running" and now - self.at > SILENT_AFTER:
            return "silent"
        return self.status.state


class StatusBoard:
    """Where one process tells how its pipeline is doing."""

    def __init__(self, server: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._mq: Client | None = None
        self._silent_until = clock()

    def tell(self, status: PipelineStatus) -> None:
        """Put it; whatever goes wrong, the pipeline goes on."""
        if self._clock() < self._silent_until:
            return
        try:
            mq = self._client()
            mq.put(PIPELINES, msgspec.json.encode(status), key=status.key.encode())
        except OnceMQError as error:
            self._silent_until = self._clock() + SULK_SECONDS
            log.warning("status not told pipeline=%s: %s", status.key, error.detail)

    def close(self) -> None:
        """Let go of the connection."""
        if self._mq is not None:
            try:
                self._mq.close()
            except OnceMQError as error:
                log.warning("status not told: %s", error.detail)

    def _client(self) -> Client:
        if self._mq is None:
            self._mq = Client(self._server, timeout=PATIENCE_SECONDS)
            self._mq.create_topic(PIPELINES, KEPT)
        return self._mq


def latest(mq: Client) -> list[StatusHeard]:
    """The latest word of each pipeline that spoke within a week, the last to speak first."""
    found: dict[str, StatusHeard] = {}
    try:
        offset = mq.topic(PIPELINES).topic.low
    except NoSuchTopic:
        return []
    while messages := mq.read(PIPELINES, offset, limit=READ_LIMIT):
        for each in messages:
            try:
                status = msgspec.json.decode(each.payload, type=PipelineStatus)
            except msgspec.DecodeError:
                continue  # a word of another version, or not a pipeline's
            found[status.key] = StatusHeard(status, each.timestamp)
        offset = messages[-1].offset + 1
    return sorted(found.values(), key=lambda heard: heard.at, reverse=True)


def moment() -> str:
    """Now, as a status says it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
