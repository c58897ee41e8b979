"""Small histories with damage of every kind: facts for one audit, files for the other.

Each topic is a history of its own, so that one audit on Spark judges them all.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from oncemq.audit.checker import Audit
from oncemq.audit.facts import GivenFact, Held, PutFact, StoredFact
from oncemq.audit.findings import Findings
from oncemq.audit.log import FORGOTTEN_AFTER
from oncemq.protocol.names import Micros, Offset, Sequence

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TYPES = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Kept:
    """A message of a log."""

    offset: int
    producer: str
    sequence: int
    micros: int
    payload: bytes


@dataclass
class Told:
    """A line of a journal or a receipt; without a payload it says nothing of the bytes."""

    offset: int
    payload: bytes | None = None


@dataclass
class History:
    """One topic: what is stored, promised, and took effect; in order, and as a mere set."""

    topic: str
    log: list[Kept] = field(default_factory=list)
    receipts: list[Told] = field(default_factory=list)
    journal: list[Told] = field(default_factory=list)
    effects: list[Told] = field(default_factory=list)


def whole(topic: str, count: int = 12, low: int = 3) -> History:
    """Nothing is wrong with it: two producers take turns, everything took effect."""
    log = [
        Kept(low + n, f"producer-{n % 2}", 5 + n // 2, n * 1_000, b"%s %d" % (topic.encode(), n))
        for n in range(count)
    ]
    told = [Told(each.offset, each.payload if each.offset % 3 else None) for each in log]
    return History(topic, log, list(told), list(told), list(told))


def damaged() -> Iterator[History]:
    """One of each kind."""
    yield whole("clean")
    for name in ("receipts", "journal", "effects"):
        for what, cut in {"prefix": slice(2), "middle": slice(4, 7), "tail": slice(9, 12)}.items():
            history = whole(f"{name} without its {what}")
            del getattr(history, name)[cut]
            yield history
    for what, cut in {"middle": slice(4, 7), "one": slice(5, 6)}.items():
        history = whole(f"log without {what}")
        del history.log[cut]
        yield history
    history = whole("log doubled")
    history.log.insert(6, history.log[6])
    yield history
    history = whole("numbers doubled")
    four = history.log[4]
    history.log[6] = Kept(9, four.producer, four.sequence, 6_000, history.log[6].payload)
    yield history
    history = whole("a guest returned after a day")
    history.log[8:] = [
        Kept(11 + n, "producer-0", 1 + n, FORGOTTEN_AFTER + 10_000 + n, each.payload)
        for n, each in enumerate(history.log[8:])
    ]
    yield history
    history = whole("numbers in another order")
    five, seven = history.log[5], history.log[7]
    history.log[5] = Kept(8, five.producer, seven.sequence, 5_000, five.payload)
    history.log[7] = Kept(10, five.producer, five.sequence, 7_000, seven.payload)
    yield history
    history = whole("time went back")
    history.log[6] = Kept(9, "producer-0", 8, 4_500, history.log[6].payload)
    yield history
    yield from _damaged_effects()


def _damaged_effects() -> Iterator[History]:
    for name in ("receipts", "journal", "effects"):
        history = whole(f"{name} with other bytes")
        getattr(history, name)[5] = Told(8, b"other")
        yield history
    for name in ("journal", "effects"):
        history = whole(f"{name} with phantoms")
        getattr(history, name).extend([Told(15), Told(99, b"x")])
        yield history
        history = whole(f"{name} doubled")
        told = getattr(history, name)
        told[7:7] = [told[4], told[6]]
        told.append(told[0])
        yield history
        history = whole(f"{name} of before")
        getattr(history, name)[:0] = [Told(1), Told(2)]
        yield history
        history = whole(f"{name} empty")
        getattr(history, name).clear()
        yield history
    history = whole("journal in another order")
    history.journal[3], history.journal[8] = history.journal[8], history.journal[3]
    yield history
    history = History("nobody knows it", [], [Told(4)], [Told(3), Told(4)], [Told(0)])
    yield history


def by_chance(seed: int) -> History:
    """Damage of any kind, several times."""
    draw = random.Random(seed)
    history = whole(f"chance {seed}", count=40, low=draw.choice([0, 7]))
    for name in ("log", "receipts", "journal", "effects"):
        rows = getattr(history, name)
        for _ in range(draw.choice([0, 1, 4])):
            place, other = draw.randrange(len(rows)), draw.randrange(len(rows))
            match draw.choice(["drop", "double", "swap"]):
                case "drop":
                    del rows[place]
                case "double":
                    rows.insert(other, rows[place])
                case _:
                    rows[place], rows[other] = rows[other], rows[place]
    return history


def judged(histories: list[History]) -> Findings:
    """What the checker of the core finds in them."""
    audit = Audit()
    stored = sorted(
        (each.topic, row.offset, row.producer, row.sequence, row.micros, row.payload)
        for each in histories
        for row in each.log
    )
    for each in histories:
        if each.log:
            offsets = [row.offset for row in each.log]
            audit.see(Held(each.topic, Offset(min(offsets)), Offset(max(offsets) + 1)))
        for told in each.receipts:
            digests = (digest(told.payload),) if told.payload else ()
            audit.see(PutFact(topic=each.topic, offset=Offset(told.offset), digests=digests))
    for topic, offset, producer, sequence, micros, payload in stored:
        audit.see(
            StoredFact(
                topic, Offset(offset), producer, Sequence(sequence), Micros(micros), digest(payload)
            )
        )
    for each in histories:
        for name in ("journal", "effects"):
            if each.log:
                audit.expect(name, each.topic)
            told = getattr(each, name)
            for one in told if name == "journal" else sorted(told, key=lambda one: one.offset):
                mark = digest(one.payload) if one.payload else b""
                audit.see(GivenFact(name, each.topic, Offset(one.offset), mark))
    return audit.finish()


def digest(payload: bytes) -> bytes:
    return sha256(payload).digest()


def write_files(histories: list[History], directory: Path) -> dict[str, str]:
    """An archive, and JSON lines of the rest; their places by name."""
    rows = [
        {
            "value": row.payload,
            "topic": each.topic,
            "offset": row.offset,
            "timestamp": NOON + timedelta(microseconds=row.micros),
            "producer": row.producer,
            "sequence": row.sequence,
        }
        for each in histories
        for row in each.log
    ]
    (directory / "archive").mkdir()
    parquet.write_table(pa.Table.from_pylist(rows, TYPES), directory / "archive" / "a.parquet")
    for name in ("receipts", "journal", "effects"):
        lines = [
            json.dumps(
                {"id": f"{each.topic}@{told.offset}"}
                | ({"payload_sha256": digest(told.payload).hex()} if told.payload else {})
            )
            for each in histories
            for told in getattr(each, name)
        ]
        (directory / name).write_text("\n".join([*lines, ""]))
    return {name: str(directory / name) for name in ("archive", "receipts", "journal", "effects")}
