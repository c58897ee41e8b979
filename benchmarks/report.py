"""Figures and their tables: a number, its unit, the machine's limit, the ratio, the aim."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncemq.cli.terminal import output


@dataclass(frozen=True)
class Aim:
    """What we want a figure's measure to be; `at_most` tells which way."""

    value: float
    at_most: bool = False
    unit: str = "x"

    def met(self, measure: float) -> bool:
        """Whether it is so."""
        return measure <= self.value if self.at_most else measure >= self.value

    @property
    def text(self) -> str:
        """For a table."""
        shown = f"{self.value:,.0f}" if self.value >= 1_000 else f"{self.value:g}"
        return f"{'≤' if self.at_most else '≥'} {shown}{self.unit}"


@dataclass(frozen=True)
class Figure:
    """One measurement. `values` are its numbers by name, `ratios` against the limits."""

    part: str
    what: str
    unit: str
    values: dict[str, float]
    size: int = 0
    batch: int = 0
    limits: dict[str, float] = field(default_factory=dict[str, float])
    ratios: dict[str, float] = field(default_factory=dict[str, float])
    aim: Aim | None = None
    judged: float = 0.0  # what the aim is held against

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        return self.aim.met(self.judged) if self.aim else None

    def as_object(self) -> dict[str, object]:
        """For programs."""
        aim = self.aim
        return {
            "part": self.part,
            "what": self.what,
            "message_bytes": self.size,
            "batch": self.batch,
            "unit": self.unit,
            "values": self.values,
            "limits": self.limits,
            "ratios": self.ratios,
            "aim": aim and {"text": aim.text, "measured": self.judged, "met": self.met},
        }


def tables(figures: Sequence[Figure], *, aims: bool = False) -> str:
    """A table for each part, in the order they were measured; with what we aim at, if asked."""
    parts = list(dict.fromkeys((figure.part, figure.unit) for figure in figures))
    return "\n\n".join(
        _table([each for each in figures if (each.part, each.unit) == key], aims=aims)
        for key in parts
    )


def _table(figures: Sequence[Figure], *, aims: bool) -> str:
    """Columns that no figure fills are left out."""
    first = figures[0]
    columns: list[tuple[str, Callable[[Figure], str]]] = [
        (f"{first.part} ({first.unit})", lambda figure: figure.what),
        ("size", lambda figure: size_text(figure.size) if figure.size else ""),
        ("batch", lambda figure: f"{figure.batch:,}" if figure.batch else ""),
    ]
    columns += [(name, _number("values", name)) for name in _names(figures, "values")]
    for name in _names(figures, "limits"):
        columns.append((name, _number("limits", name)))
        if name in _names(figures, "ratios"):
            columns.append(("ratio", _ratio(name)))
    columns += [
        (name, _ratio(name))
        for name in _names(figures, "ratios")
        if name not in _names(figures, "limits")
    ]
    if aims:
        columns.append(("aim", _aim))
    filled = [(head, cell) for head, cell in columns if any(cell(each) for each in figures)]
    rows = [[cell(figure) for _, cell in filled] for figure in figures]
    return output.table([head for head, _ in filled], _leaning_right(rows))


def _names(figures: Sequence[Figure], group: str) -> list[str]:
    return list(dict.fromkeys(name for figure in figures for name in getattr(figure, group)))


def _number(group: str, name: str) -> Callable[[Figure], str]:
    def cell(figure: Figure) -> str:
        value = getattr(figure, group).get(name)
        return "" if value is None else number_text(value)

    return cell


def _ratio(name: str) -> Callable[[Figure], str]:
    def cell(figure: Figure) -> str:
        value = figure.ratios.get(name)
        return "" if value is None else f"{value:.2f}x"

    return cell


def _aim(figure: Figure) -> str:
    if figure.aim is None:
        return ""
    return f"{figure.aim.text} {'met' if figure.met else 'MISSED'}"


def number_text(value: float) -> str:
    """Three digits that matter, or whole thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def size_text(size: int) -> str:
    """`100 B`, `64 KB`."""
    return f"{size:,} B" if size < 1_000 else f"{size // 1_000:,} KB"


def _leaning_right(rows: list[list[str]]) -> list[list[str]]:
    """Numbers below each other: every column but the first and the last is padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        [
            text if place in (0, last) else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
