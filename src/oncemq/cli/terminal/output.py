"""Text on a terminal: tables, colour, sizes and times for people."""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

# Characters that change how a terminal shows what stands around them.
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def colours(stream: TextIO | None) -> bool:
    """Whether colour is welcome: a terminal that knows it, and nobody who said no."""
    if stream is None:
        return False
    dumb = os.environ.get("TERM") == "dumb"
    return stream.isatty() and not os.environ.get("NO_COLOR") and not dumb


def painted(text: str, stream: TextIO | None, sgr: int) -> str:
    """The text in a colour (an SGR number), where colour is welcome."""
    return f"\x1b[{sgr}m{text}\x1b[0m" if colours(stream) else text


def shown(text: str, *, kept: str = "\n") -> str:
    """Text that somebody else wrote, so that a terminal shows it and does not obey it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in kept or _is_plain(char) else _escaped(char) for char in text)


def _is_plain(char: str) -> bool:
    return char >= " " and not "\x7f" <= char <= "\x9f" and char not in _BIDI + "\u2028\u2029"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns, two spaces apart; a column of numbers leans right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(heads, *cells, strict=True)]
    right = [all(isinstance(row[i], int) for row in rows) and bool(rows) for i in range(len(heads))]

    def line(texts: Sequence[str]) -> str:
        padded = (
            _pad(text, width, right=lean)
            for text, width, lean in zip(texts, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    head = painted(line([head.upper() for head in heads]), sys.stdout, 1)
    return "\n".join([head, *map(line, cells)])


def pairs(facts: Sequence[tuple[str, object]]) -> str:
    """`name  value` lines, the values below each other."""
    width = max((_width(name) for name, _ in facts), default=0)
    return "\n".join(f"{_pad(name, width)}  {_cell(value)}".rstrip() for name, value in facts)


def counted(number: int, noun: str) -> str:
    """`1 message`, `1,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def about(size: int) -> str:
    """A size for people: `1.4 MiB`."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def moment(when: datetime | int) -> str:
    """A time (or microseconds since 1970) as ISO 8601, as `subscribe --from` takes it."""
    at = _EPOCH + timedelta(microseconds=when) if isinstance(when, int) else when.astimezone(UTC)
    return at.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _cell(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case None:
            return "-"
        case _:
            return shown(str(value), kept="")


def _pad(text: str, width: int, *, right: bool = False) -> str:
    gap = " " * (width - _width(text))
    return gap + text if right else text + gap


def _width(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )
