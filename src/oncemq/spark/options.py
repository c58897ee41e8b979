"""The options of the data source: Kafka's names where they fit, each checked, none passed over.

Spark hands options over as text, with their names in lower case; they are shown to people as
they are documented. Law: an option that is not known, or not known here, is refused by name.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, cast

from oncemq.client.settings import DEFAULT_SERVER, servers_from
from oncemq.core.names import is_system, name_fault
from oncemq.errors import ConfigError

Position = int | Literal["earliest", "latest"]
EARLIEST, LATEST = "earliest", "latest"
KAFKA_POSITIONS: dict[int, Position] = {-2: EARLIEST, -1: LATEST}

BOTH = (
    "server timeout subscribe subscribePattern startingOffsets startingTimestamp minPartitions "
    "maxRecordsPerPartition failOnDataLoss includeHeaders valueFormat valueSchema malformed"
).split()
BATCH = "endingOffsets".split()
STREAM = "maxOffsetsPerTrigger subscription holdExpires".split()

_MODES: dict[bool | None, tuple[str, Sequence[str]]] = {
    None: ("a read", [*BATCH, *STREAM]),
    False: ("a batch read", BATCH),
    True: ("a stream", STREAM),
}

TIMEOUT_SECONDS = 60.0
ROWS_PER_TASK = 250_000
NO_SUBSCRIPTION = "none"
SECONDS = {"m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True)
class Start:
    """Where reading begins: by topic, else `others`; or at a time (microseconds)."""

    topics: dict[str, Position]
    others: Position
    timestamp: int | None = None


@dataclass(frozen=True)
class SourceOptions:
    """What a user asked of a read."""

    server: str
    timeout: float
    topics: tuple[str, ...]
    pattern: str
    start: Start
    stop: dict[str, Position]
    tasks_min: int
    task_rows_max: int
    trigger_rows_max: int | None
    fail_on_data_loss: bool
    headers: bool
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
    found = Given(given, [*BOTH, *own], where)
    topics, pattern = _topics(found)
    value_format = found.one_of("valueFormat", ("binary", "string", "json"))
    if value_format != "json" and "valueSchema" in found:
        raise ConfigError("valueSchema goes with valueFormat 'json'")
    return SourceOptions(
        server=found.server,
        timeout=found.number("timeout", TIMEOUT_SECONDS),
        topics=topics,
        pattern=pattern,
        start=_start(found, topics, LATEST if streaming else EARLIEST),
        stop=_positions(found, "endingOffsets", topics, but=EARLIEST)[0],
        tasks_min=found.whole("minPartitions", 1) or 1,
        task_rows_max=found.whole("maxRecordsPerPartition", ROWS_PER_TASK) or ROWS_PER_TASK,
        trigger_rows_max=found.whole("maxOffsetsPerTrigger", None),
        fail_on_data_loss=found.flag("failOnDataLoss", default=True),
        headers=found.flag("includeHeaders", default=False),
        value_format=value_format,
        value_schema=found.text("valueSchema", ""),
        keep_malformed=found.one_of("malformed", ("refuse", "keep")) == "keep",
        subscription=_subscription(found),
        hold_expires=_hold_expires(found),
    )


class Given:
    """Options as Spark hands them over, looked up by their documented names."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str], where: str) -> None:
        self._given = {name.lower(): text for name, text in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._given:
            if name not in names:
                raise ConfigError(_unknown(name, names, where))

    @property
    def server(self) -> str:
        """The addresses, with commas."""
        return ",".join(servers_from(self.text("server", DEFAULT_SERVER)))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """One of the choices; the first when not given."""
        text = self.text(name, choices[0])
        if text.lower() not in choices:
            raise ConfigError(f"{name} is {' or '.join(map(repr, choices))}, not {text!r}")
        return text.lower()

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name, str(default).lower()).lower()
        if text not in ("true", "false"):
            raise ConfigError(f"{name} is 'true' or 'false', not {text!r}")
        return text == "true"

    def whole(self, name: str, default: int | None) -> int | None:
        """A whole number of 1 or more."""
        text = self.text(name, "")
        if name not in self:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
            raise ConfigError(f"{name} is a whole number, 1 or more, not {text!r}")
        return int(text)

    def number(self, name: str, default: float) -> float:
        """Seconds."""
        text = self.text(name, str(default))
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            raise ConfigError(f"{name} is a number of seconds above 0, not {text!r}")
        return seconds


def _unknown(name: str, names: dict[str, str], where: str) -> str:
    everywhere = {each.lower(): each for each in (*BOTH, *BATCH, *STREAM)}
    if name in everywhere:
        return f"the option {everywhere[name]} is not for {where}"
    if name == "path":
        return "oncemq has topics, not paths: leave the path out, and name topics by option"
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(names.values())}"
    return f"oncemq has no option {name!r} for {where}; {hint}"


def _topics(found: Given) -> tuple[tuple[str, ...], str]:
    pattern = found.text("subscribePattern", "")
    names = tuple(name.strip() for name in found.text("subscribe", "").split(","))
    names = tuple(dict.fromkeys(name for name in names if name))
    if bool(names) == bool(pattern):
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


def _start(found: Given, topics: tuple[str, ...], default: Position) -> Start:
    if "startingTimestamp" not in found:
        by_topic, others = _positions(found, "startingOffsets", topics)
        return Start(by_topic, default if others is None else others)
    if "startingOffsets" in found:
        raise ConfigError("give startingOffsets or startingTimestamp, not both")
    return Start({}, default, _micros(found.text("startingTimestamp", "")))


def _micros(text: str) -> int:
    """Milliseconds since 1970, as for Kafka, or a date and time; in microseconds."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text) * 1000
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            "startingTimestamp is milliseconds since 1970 or a time like "
            f"2026-01-31T12:00:00+00:00, not {text!r}"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1_000_000)


def _positions(
    found: Given, name: str, topics: tuple[str, ...], *, but: str = ""
) -> tuple[dict[str, Position], Position | None]:
    """What an option says about each topic, and about those it does not name."""
    text = found.text(name, "").strip()
    if name not in found or (text in (EARLIEST, LATEST) and text != but):
        return {}, cast("Position | None", text or None)
    wrong = ConfigError(
        f"{name} is {' or '.join(repr(each) for each in (EARLIEST, LATEST) if each != but)}, or "
        f'offsets by topic like {{"orders": 42, "refunds": "latest"}}, not {text!r}'
    )
    try:
        parsed: Any = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(parsed, dict):
        raise wrong
    positions: dict[str, Position] = {}
    for topic, value in cast("dict[str, Any]", parsed).items():
        if topics and topic not in topics:
            raise ConfigError(f"{name} names {topic!r}, which is not among those subscribed to")
        position = KAFKA_POSITIONS.get(value, value) if type(value) is int else value
        whole = type(position) is int and position >= 0
        if (not whole and position not in (EARLIEST, LATEST)) or position == but:
            raise wrong
        positions[topic] = position
    return positions, None


def _subscription(found: Given) -> str | None:
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


def _hold_expires(found: Given) -> float | None:
    """For how many seconds the hold outlives its query."""
    text = found.text("holdExpires", "").strip().lower()
    if not text:
        return None
    if text == "never":
        return 0.0
    parts = re.fullmatch(r"([0-9]{1,6})(m|h|d)", text)
    seconds = int(parts[1]) * SECONDS[parts[2]] if parts else 0
    if not 60 <= seconds <= 3_650 * 86_400:
        raise ConfigError(f"holdExpires is a time like 12h or 7d, or never, not {text!r}")
    return float(seconds)
