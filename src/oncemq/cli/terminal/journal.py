"""Journals: what a subscriber wrote down of its effects, or a publisher of its receipts.

JSON lines with an id, or a topic and an offset; or a column of ids in a SQLite database.
"""

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec

from oncemq.audit.facts import GivenFact, PutFact
from oncemq.protocol.names import Offset

_ID = re.compile(r"(.+)@(\d{1,19})", re.DOTALL)


class JournalEntry(msgspec.Struct):
    """One line: an id, or a topic and an offset. `once put --json` writes such ones, too."""

    id: str = ""
    topic: str = ""
    offset: int | None = None  # None in a receipt: stored so long ago that only the fact is known
    payload_sha256: str = ""
    stored: bool = True

    @property
    def is_placeless(self) -> bool:
        """Whether it is a receipt that names no place, which nobody can look at."""
        return not self.id and bool(self.topic) and (self.offset is None or not self.stored)


@dataclass(frozen=True)
class EffectJournal:
    """What a subscriber wrote down: JSON lines, or a column of a table in SQLite."""

    path: Path
    table: str = ""
    column: str = ""
    of_receipts: bool = False

    @property
    def name(self) -> str:
        """As a person knows it."""
        return f"{self.path}:{self.table}:{self.column}" if self.table else str(self.path)

    def receipts(self) -> Iterator[PutFact]:
        """The same as promises: stored there, with these bytes."""
        for each in self.effects():
            digests = (each.digest,) if each.digest else ()
            yield PutFact(topic=each.topic, offset=each.offset, digests=digests)

    def effects(self) -> Iterator[GivenFact]:
        """Its effects, in the order they took place."""
        return self._rows() if self.table else self._lines()

    @property
    def has_digests(self) -> bool:
        """Whether it says what the payloads were."""
        return not self.table and any(effect.digest for effect in self._lines())

    def _lines(self) -> Iterator[GivenFact]:
        decode = msgspec.json.Decoder(JournalEntry).decode
        with open(self.path, "rb") as stream:
            for number, raw in enumerate(stream, start=1):
                if not raw.strip():
                    continue
                try:
                    line = decode(raw)
                    if not (self.of_receipts and line.is_placeless):
                        yield self._effect(line)
                except (msgspec.MsgspecError, ValueError) as error:
                    raise click.UsageError(f"{self.path}, line {number}: {error}") from error

    def _effect(self, line: JournalEntry) -> GivenFact:
        digest = bytes.fromhex(line.payload_sha256)
        if line.id:
            return self._named(line.id, digest)
        if not line.topic or line.offset is None or line.offset < 0:
            raise ValueError('a line has an "id", or a "topic" and an "offset"')
        return GivenFact(self.name, line.topic, Offset(line.offset), digest)

    def _named(self, name: object, digest: bytes = b"") -> GivenFact:
        found = _ID.fullmatch(name) if isinstance(name, str) else None
        if found is None:
            raise ValueError(f"{name!r} is not the id of a message, such as orders@42")
        return GivenFact(self.name, found[1], Offset(int(found[2])), digest)

    def _rows(self) -> Iterator[GivenFact]:
        database = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
        table, column = (each.replace('"', '""') for each in (self.table, self.column))
        try:
            for (name,) in database.execute(f'SELECT "{table}"."{column}" FROM "{table}"'):
                yield self._named(name)
        except (sqlite3.Error, ValueError) as error:
            raise click.UsageError(f"{self.name}: {error}") from error
        finally:
            database.close()


def journals_of(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[EffectJournal]:
    """`PATH`, or `PATH:TABLE:COLUMN` of a SQLite database."""
    return [journal_of(text) for text in texts]


def receipts_of(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[EffectJournal]:
    """The same, of a publisher."""
    return [replace(journal_of(text), of_receipts=True) for text in texts]


def journal_of(text: str) -> EffectJournal:
    path, *names = text.rsplit(":", 2)
    if len(names) == 2 and Path(path).is_file():
        return EffectJournal(Path(path), table=names[0], column=names[1])
    if not Path(text).is_file():
        raise click.BadParameter(
            f"{text!r} is no file; name one of JSON lines, or DATABASE:TABLE:COLUMN of SQLite"
        )
    with open(text, "rb") as stream:
        if stream.read(15) == b"SQLite format 3":
            raise click.BadParameter(f"{text!r} is a database; name {text}:TABLE:COLUMN")
    return EffectJournal(Path(text))
