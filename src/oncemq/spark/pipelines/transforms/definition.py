"""What a transform is: sources, a query or a function over them, and a target. Values, no Spark.

The same in a file of TOML and in Python. Law: whatever can be told wrong without Spark is told
before Spark is started, with the name of the key and what is allowed.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from oncemq.errors import ConfigError
from oncemq.protocol.names import name_fault
from oncemq.spark.options.reader import SourceOptions, source_options

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VIEW = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
DELAY = re.compile(r"\d+ *(microsecond|millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics that the query sees as one view.

    With a `schema` values are JSON, and the view has its fields as columns, and what else a
    message has as `_key`, `_topic`, `_offset`, `_timestamp`, `_producer`, `_sequence`, `_headers`.
    """

    topic: str = ""
    topics: list[str] = []
    pattern: str = ""
    start: Any = "earliest"  # or latest, a time, an offset, or offsets by topic
    value: Literal["", "json", "string", "binary"] = ""  # json when there is a schema, else binary
    schema: str = ""
    malformed: Literal["refuse", "keep"] = "refuse"
    headers: bool = False
    watermark: str = ""  # a column of times
    delay: str = ""  # how late a row may be
    rows: int | None = None  # of a batch, at most about
    options: dict[str, Any] = {}  # whatever else the data source takes

    @property
    def names(self) -> list[str]:
        """The topics that are named."""
        return self.topics or [self.topic]

    @property
    def is_json(self) -> bool:
        """Whether values have fields."""
        return self.value == "json" or (not self.value and bool(self.schema))

    @property
    def may_misfit(self) -> bool:
        """Whether a value may be none of those that the query is to see."""
        return self.malformed == "refuse" and (self.is_json or self.value == "string")

    def reading(self, server: str, timeout: float, *, dead: bool = False) -> dict[str, str]:
        """The options of the data source; with `dead`, of one whose misfits become letters."""
        letters = dead and self.may_misfit
        value = self.value or ("json" if self.schema else "binary")
        given: dict[str, Any] = {
            "server": server,
            "timeout": timeout,
            "subscribe": ",".join(self.names),
            "subscribePattern": self.pattern,
            "valueFormat": value,
            "valueSchema": self.schema,
            "malformed": "keep" if letters else self.malformed,
            "includeHeaders": "true" if self.headers or letters else "",
            "maxOffsetsPerTrigger": "" if self.rows is None else self.rows,
            **self._start(),
            **{name: _text(each) for name, each in self.options.items()},
        }
        return {name: str(each) for name, each in given.items() if each != ""}

    def _start(self) -> dict[str, str]:
        start = self.start
        if isinstance(start, datetime):
            moment = start if start.tzinfo else start.replace(tzinfo=UTC)
            return {"startingTimestamp": moment.isoformat()}
        if isinstance(start, dict):
            return {"startingOffsets": json.dumps(start)}
        if isinstance(start, int) and not isinstance(start, bool):
            if not self.topic:
                raise ConfigError("an offset is of one topic: name one, or offsets by topic")
            return {"startingOffsets": json.dumps({self.topic: start})}
        name = "startingOffsets" if start in ("earliest", "latest") else "startingTimestamp"
        return {name: str(start)}

    def check(self) -> SourceOptions:
        """ConfigError when it cannot be read like this."""
        if sum(map(bool, (self.topic, self.topics, self.pattern))) != 1:
            raise ConfigError("give one of topic, topics and pattern")
        if bool(self.watermark) != bool(self.delay):
            raise ConfigError("watermark (a column) and delay (like '1 minute') go together")
        if self.delay and not DELAY.fullmatch(self.delay.strip()):
            raise ConfigError(f"delay is like '30 seconds' or '1 hour', not {self.delay!r}")
        if self.is_json and not self.schema:
            raise ConfigError("value 'json' needs a schema, like 'item string, cents bigint'")
        for name in ("server", "timeout"):
            if name in self.options:
                raise ConfigError(f"options: {name} is of the whole pipeline, not of a source")
        return source_options(self.reading("tcp://127.0.0.1:1", 1.0), streaming=True)


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rows go: a topic, a directory of Parquet, or a table of Spark's catalog."""

    topic: str = ""
    topic_column: str = ""  # the rows themselves say which topic
    key: str = ""  # the column that is the message's key
    path: str = ""
    partition_by: list[str] = []
    table: str = ""
    unwanted: Literal["refuse", "drop"] = "refuse"
    sink: str = ""  # under which name the server remembers what was published

    @property
    def is_topic(self) -> bool:
        """Whether rows become messages."""
        return bool(self.topic or self.topic_column)

    def check(self) -> None:
        """ConfigError when rows cannot go there."""
        if sum(map(bool, (self.topic, self.topic_column, self.path, self.table))) != 1:
            raise ConfigError("give one of topic, topic_column, path and table")
        if self.topic and (fault := name_fault(self.topic)):
            raise ConfigError(f"topic: {fault}")
        if self.partition_by and not self.path:
            raise ConfigError("partition_by goes with path")
        for name in ("key", "sink"):
            if getattr(self, name) and not self.is_topic:
                raise ConfigError(f"{name} goes with a topic")


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A transform. Its name is its identity: what was published is remembered under it."""

    name: str
    sources: dict[str, Source]
    target: Target
    sql: str = ""
    function: Any = ""  # or MODULE:FUNCTION; it gets the sources by their names
    mode: Literal["append", "update"] = "append"
    checkpoint: str = ""  # where; by default below the user's state directory
    every: float = 0.0  # seconds between two batches of one that follows
    spark: dict[str, str] = {}  # settings of Spark
    dead: str = ""  # the topic of messages whose value does not fit; without one they fail a batch

    @property
    def sink(self) -> str:
        """The name under which the server remembers what was published."""
        return self.target.sink or f"pipeline:{self.name}"

    def check(self) -> "Definition":
        """Itself; ConfigError says which key is wrong."""
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"name: {self.name!r} is not of letters, digits, '.', '_' and '-', 100 at most"
            )
        if not self.sources:
            raise ConfigError("sources: give at least one, like [sources.orders] topic = 'orders'")
        for name, source in self.sources.items():
            if not VIEW.fullmatch(name):
                raise ConfigError(
                    f"sources.{name}: the query cannot name that; letters, digits and '_'"
                )
            _within(f"sources.{name}", source.check)
        if bool(self.sql.strip()) == bool(self.function):
            raise ConfigError("give sql, or function as MODULE:FUNCTION; one of them")
        _within("target", self.target.check)
        if self.dead:
            _within("dead", self._check_dead)
        if self.every < 0:
            raise ConfigError(f"every: seconds, 0 or more, not {self.every}")
        if self.mode == "update" and self.target.table:
            raise ConfigError(
                "mode: a table is only added to: 'append', or target.path, where each batch of "
                "updates has a directory of its own"
            )
        return self

    def _check_dead(self) -> None:
        if fault := name_fault(self.dead):
            raise ConfigError(fault)
        if not self.target.is_topic:
            raise ConfigError("letters are one commit with the rows: the target has to be a topic")
        read = [topic for source in self.sources.values() for topic in source.names]
        patterns = any(source.pattern for source in self.sources.values())
        if len(self.sources) > 1 and (patterns or len(read) > len(set(read))):
            raise ConfigError("of several sources each has to name topics of its own")
        if self.dead in {self.target.topic, *read}:
            raise ConfigError(f"{self.dead!r} is a topic of this pipeline: name one for letters")


def _within(place: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.detail}") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
