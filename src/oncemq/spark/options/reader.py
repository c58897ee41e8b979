"""The options of a read: Kafka's names where they fit, each checked, none passed over."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from oncemq.errors import ConfigError
from oncemq.protocol.names import is_system, name_fault
from oncemq.spark.options.given import GivenOptions
from oncemq.spark.options.patience import DELAY_SECONDS
from oncemq.spark.options.positions import EARLIEST, LATEST, Edge, ending, starting

BOTH = (
    "server timeout subscribe subscribePattern assign startingOffsets startingTimestamp "
    "startingOffsetsByTimestamp minPartitions maxRecordsPerPartition failOnDataLoss "
    "includeHeaders headersFormat valueFormat valueSchema malformed"
).split()
BATCH = "endingOffsets endingTimestamp endingOffsetsByTimestamp".split()
STREAM = (
    "maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay subscription holdExpires"
).split()
EVERY = (*BOTH, *BATCH, *STREAM)

_MODES: dict[bool | None, tuple[str, Sequence[str]]] = {
    None: ("a read", [*BATCH, *STREAM]),
    False: ("a batch read", BATCH),
    True: ("a stream", STREAM),
}

TIMEOUT_SECONDS = 60.0
ROWS_PER_TASK = 250_000
NO_SUBSCRIPTION = "none"
MAP, ARRAY = "map", "array"


@dataclass(frozen=True)
class SourceOptions:
    """What a user asked of a read."""

    server: str
    timeout: float
    topics: tuple[str, ...]
    pattern: str
    start: Edge
    stop: Edge
    tasks_min: int
    task_rows_max: int
    trigger_rows_max: int | None
    trigger_rows_min: int | None
    trigger_delay: float  # seconds, that fewer rows wait
    fail_on_data_loss: bool
    headers: bool
    headers_format: str
    value_format: str
    value_schema: str
    keep_malformed: bool
    subscription: str | None
    hold_expires: float | None  # seconds; 0: never; None: not said


def source_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """The options of a read, checked; ConfigError says which is wrong and what would be right.

    `streaming` is None when Spark asks for the schema, and does not say yet what it is for.
    """
    where, own = _MODES[streaming]
    found = GivenOptions(given, [*BOTH, *own], where, elsewhere=EVERY)
    topics, pattern = _topics(found)
    value_format = found.one_of("valueFormat", ("binary", "string", "json"))
    if value_format != "json" and "valueSchema" in found:
        raise ConfigError("valueSchema goes with valueFormat 'json'")
    return SourceOptions(
        server=found.server,
        timeout=found.number("timeout", TIMEOUT_SECONDS),
        topics=topics,
        pattern=pattern,
        start=starting(found, topics, LATEST if streaming else EARLIEST),
        stop=ending(found, topics),
        tasks_min=found.whole("minPartitions", 1) or 1,
        task_rows_max=found.whole("maxRecordsPerPartition", ROWS_PER_TASK) or ROWS_PER_TASK,
        trigger_rows_max=found.whole("maxOffsetsPerTrigger", None),
        trigger_rows_min=_rows_min(found),
        trigger_delay=_trigger_delay(found),
        fail_on_data_loss=found.flag("failOnDataLoss", default=True),
        headers=found.flag("includeHeaders", default=False),
        headers_format=found.one_of("headersFormat", (MAP, ARRAY)),
        value_format=value_format,
        value_schema=found.text("valueSchema", ""),
        keep_malformed=found.one_of("malformed", ("refuse", "keep")) == "keep",
        subscription=_subscription(found),
        hold_expires=_hold_expires(found),
    )


def _topics(found: GivenOptions) -> tuple[tuple[str, ...], str]:
    pattern = found.text("subscribePattern", "")
    names = tuple(name.strip() for name in found.text("subscribe", "").split(","))
    names = tuple(dict.fromkeys(name for name in (*names, *_assigned(found)) if name))
    said = [each for each in ("subscribe", "assign", "subscribePattern") if found.text(each, "")]
    if len(said) != 1 or bool(names) == bool(pattern):
        raise ConfigError(
            "say which topics to read: subscribe with names ('orders' or 'orders,refunds'), or "
            "subscribePattern with a regular expression; one of them, not both"
        )
    for name in names:
        if fault := name_fault(name):
            raise ConfigError(f"subscribe: {fault}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"subscribePattern {pattern!r} is no pattern: {error}") from None
    return names, pattern


def _assigned(found: GivenOptions) -> list[str]:
    """The topics of `assign`: names with commas, or a JSON list of them."""
    text = found.text("assign", "").strip()
    if not text.startswith(("{", "[")):
        return [name.strip() for name in text.split(",")]
    try:
        parsed: Any = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        raise ConfigError(
            f"assign names partitions, and a topic here has none: write assign as "
            f"'{json.dumps(list(cast('dict[str, Any]', parsed)))}', or subscribe with these names"
        )
    names = cast("list[Any]", parsed) if isinstance(parsed, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f'assign is a list of topics like ["orders", "refunds"], not {text!r}')
    return names


def _rows_min(found: GivenOptions) -> int | None:
    rows = found.whole("minOffsetsPerTrigger", None)
    most = found.whole("maxOffsetsPerTrigger", None)
    if rows is not None and most is not None and rows > most:
        raise ConfigError(
            f"minOffsetsPerTrigger is {rows}, more than maxOffsetsPerTrigger, which is {most}"
        )
    return rows


def _trigger_delay(found: GivenOptions) -> float:
    if "maxTriggerDelay" not in found:
        return DELAY_SECONDS
    seconds = found.duration("maxTriggerDelay")
    if not seconds:
        text = found.text("maxTriggerDelay", "")
        raise ConfigError(f"maxTriggerDelay is a time like 30s or 15m, not {text!r}")
    if "minOffsetsPerTrigger" not in found:
        raise ConfigError("maxTriggerDelay goes with minOffsetsPerTrigger, whose wait it ends")
    return seconds


def _subscription(found: GivenOptions) -> str | None:
    """The name to hold under; "" for one of the query's own, None for no hold."""
    name = found.text("subscription", "")
    if name.lower() == NO_SUBSCRIPTION:
        return None
    fault = name_fault(name, what="subscription") if name else None
    if fault is None and is_system(name):
        fault = f"the subscription {name!r} begins with '_', which is the system's"
    if fault:
        raise ConfigError(fault)
    return name


def _hold_expires(found: GivenOptions) -> float | None:
    """For how many seconds the hold outlives its query."""
    text = found.text("holdExpires", "").strip().lower()
    if not text:
        return None
    if text == "never":
        return 0.0
    seconds = found.duration("holdExpires") or 0
    if not 60 <= seconds <= 3_650 * 86_400:
        raise ConfigError(f"holdExpires is a time like 12h or 7d, or never, not {text!r}")
    return float(seconds)
