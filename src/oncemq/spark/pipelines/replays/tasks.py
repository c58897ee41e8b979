# pyright: basic
# pyarrow carries no types.
"""What a task of a replay does: archived messages of a range into a stage that nobody sees yet.

Where a message was, and when, goes with it as headers; the server gives it a place and a time of
its own.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from oncemq.client.engine.stage_puts import StageToken
from oncemq.spark.pipelines.archives.stock import rows_of
from oncemq.spark.runtime.connections import client
from oncemq.spark.sink.arrow_to_batch import bodies

ORIGIN_TOPIC = "oncemq-origin-topic"
ORIGIN_OFFSET = "oncemq-origin-offset"
ORIGIN_TIMESTAMP = "oncemq-origin-timestamp"  # 2026-01-31T12:00:00.000000Z

BATCH_ROWS = 16_384
HEADERS = pa.map_(pa.string(), pa.string())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ReplayTask:
    """A range to be staged: of it, what was stored from `since` on and before `until`."""

    server: str
    timeout: float
    topic: str
    files: tuple[str, ...]
    start: int
    stop: int
    since: int | None  # microseconds since 1970
    until: int | None


def stage_range(task: ReplayTask) -> StageToken:
    """Stage the range."""
    rows = rows_of(task.topic, task.files, task.start, task.stop)
    stage = client(task.server, task.timeout).stage()
    try:
        for batch in chosen(rows, task.since, task.until).to_batches(BATCH_ROWS):
            for count, columns, body in bodies(as_messages(batch, task.topic)):
                stage.put_batch(count, columns, body)
        return stage.close()
    except BaseException:
        stage.drop()
        raise


def chosen(rows: pa.Table, since: int | None, until: int | None) -> pa.Table:
    """The rows of a time; times never go back, so they are neighbours."""
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    first = (
        0 if since is None else next((n for n, at in enumerate(times) if at >= since), len(times))
    )
    last = len(times)
    while until is not None and last > first and times[last - 1] >= until:
        last -= 1
    return rows.slice(first, last - first)


def as_messages(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Key and value as they are, and the headers with where it was."""
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    headers: list[list[tuple[str, Any]]] = [
        [
            *((name, text) for name, text in known or () if not name.startswith("oncemq-origin-")),
            (ORIGIN_TOPIC, topic),
            (ORIGIN_OFFSET, str(offset)),
            (ORIGIN_TIMESTAMP, moment(at)),
        ]
        for known, offset, at in zip(
            rows.column("headers").to_pylist(),
            rows.column("offset").to_pylist(),
            times,
            strict=True,
        )
    ]
    return pa.RecordBatch.from_arrays(
        [rows.column("key"), rows.column("value"), pa.array(headers, HEADERS)],
        names=["key", "value", "headers"],
    )


def moment(micros: int) -> str:
    """A time as a header says it."""
    at = _EPOCH + timedelta(microseconds=micros)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
