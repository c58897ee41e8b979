"""Where a read begins and ends, as its options say: offsets, times, or the ends of what is kept."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

from oncemq.errors import ConfigError
from oncemq.spark.options.given import GivenOptions

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Time:
    """The first message stored then (microseconds since 1970) or later; the end, if none was."""

    micros: int


Position = int | Literal["earliest", "latest"] | Time
KAFKA_POSITIONS: dict[int, Position] = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True)
class Edge:
    """Where each topic begins (or ends): by its name, else as the `others`."""

    topics: dict[str, Position]
    others: Position

    def of(self, topic: str) -> Position:
        return self.topics.get(topic, self.others)

    @property
    def moves(self) -> bool:
        """Whether it may be another offset when it is asked for again."""
        return any(each == LATEST or isinstance(each, Time) for each in self._all())

    def _all(self) -> tuple[Position, ...]:
        return (self.others, *self.topics.values())


def starting(found: GivenOptions, topics: tuple[str, ...], default: Position) -> Edge:
    """What startingOffsets, startingTimestamp or startingOffsetsByTimestamp says."""
    return _edge(found, "starting", topics, default)


def ending(found: GivenOptions, topics: tuple[str, ...]) -> Edge:
    """What endingOffsets, endingTimestamp or endingOffsetsByTimestamp says."""
    return _edge(found, "ending", topics, LATEST, but=EARLIEST)


def _edge(
    found: GivenOptions, which: str, topics: tuple[str, ...], default: Position, *, but: str = ""
) -> Edge:
    offsets, time, times = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    said = [name for name in (offsets, time, times) if name in found]
    if len(said) > 1:
        raise ConfigError(f"give {' or '.join(said)}, not both")
    if said == [time]:
        return Edge({}, Time(_micros(time, found.text(time, ""))))
    if said == [times]:
        return Edge(_times(found, times, topics), default)
    by_topic, others = _offsets(found, offsets, topics, but=but)
    return Edge(by_topic, default if others is None else others)


def _micros(name: str, text: str) -> int:
    """Milliseconds since 1970, as for Kafka, or a date and time; in microseconds."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text) * 1000
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name} is milliseconds since 1970 or a time like "
            f"2026-01-31T12:00:00+00:00, not {text!r}"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1_000_000)


def _times(found: GivenOptions, name: str, topics: tuple[str, ...]) -> dict[str, Position]:
    """A time for each topic that is named."""
    given = _by_topic(found, name, topics, 'times by topic like {"orders": 1769860800000}')
    return {topic: Time(_micros(name, str(each))) for topic, each in given.items()}


def _offsets(
    found: GivenOptions, name: str, topics: tuple[str, ...], *, but: str
) -> tuple[dict[str, Position], Position | None]:
    """What an option says about each topic, and about those it does not name."""
    text = found.text(name, "").strip()
    if name not in found or (text in (EARLIEST, LATEST) and text != but):
        return {}, cast("Position | None", text or None)
    allowed = (
        f"{' or '.join(repr(each) for each in (EARLIEST, LATEST) if each != but)}, or "
        'offsets by topic like {"orders": 42, "refunds": "latest"}'
    )
    positions: dict[str, Position] = {}
    for topic, value in _by_topic(found, name, topics, allowed).items():
        position = KAFKA_POSITIONS.get(value, value) if type(value) is int else value
        whole = type(position) is int and position >= 0
        if (not whole and position not in (EARLIEST, LATEST)) or position == but:
            raise ConfigError(f"{name} is {allowed}, not {text!r}")
        positions[topic] = position
    return positions, None


def _by_topic(
    found: GivenOptions, name: str, topics: tuple[str, ...], allowed: str
) -> dict[str, Any]:
    """The JSON object of an option, whose keys are topics that are read."""
    text = found.text(name, "").strip()
    try:
        parsed: Any = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{name} is {allowed}, not {text!r}")
    found_by_topic = cast("dict[str, Any]", parsed)
    for topic, value in found_by_topic.items():
        if topics and topic not in topics:
            raise ConfigError(f"{name} names {topic!r}, which is not among those subscribed to")
        if isinstance(value, dict):
            raise ConfigError(
                f"{name} names partitions of {topic!r}, and a topic here has none: write {allowed}"
            )
    return found_by_topic
