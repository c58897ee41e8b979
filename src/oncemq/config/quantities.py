"""Durations and sizes as people write them: `7d`, `500ms`, `10GiB`; and back."""

import re

from oncemq.errors import ConfigError

MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40} | {
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)")

DURATION_MS_MAX = 36_500 * MS["d"]
SIZE_MAX = 1 << 60


def parse_duration(text: str) -> int:
    """Milliseconds in `7d`, `1.5h`, `5s`, `100ms`; a bare number is seconds."""
    number, unit = _quantity(text)
    if number is None or (unit or "s") not in MS:
        raise ConfigError(
            f"{text!r} is not a duration; write a number and a unit: 500ms, 5s, 10m, 2h, 7d, 4w"
        )
    ms = round(number * MS[unit or "s"])
    if ms > DURATION_MS_MAX:
        raise ConfigError(f"{text!r} is longer than a hundred years")
    return ms


def parse_size(text: str) -> int:
    """Bytes in `10GiB`, `64MiB`, `1.5MB`; a bare number is bytes."""
    number, unit = _quantity(text)
    if number is None or (unit or "b") not in _BYTES:
        raise ConfigError(
            f"{text!r} is not a size; write a number of bytes or a unit: 512KiB, 64MiB, 10GiB, 2TiB"
        )
    size = round(number * _BYTES[unit or "b"])
    if size > SIZE_MAX:
        raise ConfigError(f"{text!r} is more than any disk holds")
    return size


def _quantity(text: str) -> tuple[float | None, str]:
    found = _QUANTITY.fullmatch(text.strip().lower())
    return (float(found[1]), found[2]) if found else (None, "")


def format_duration(ms: int) -> str:
    """The shortest text that `parse_duration` reads back as exactly `ms`."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if ms % MS[unit] == 0)
    return f"{ms // MS[unit]}{unit}"


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads back as exactly `size`."""
    names = {"tib": "TiB", "gib": "GiB", "mib": "MiB", "kib": "KiB", "b": "B"}
    unit = next(unit for unit in names if size % _BYTES[unit] == 0 and (size or unit == "b"))
    return f"{size // _BYTES[unit]}{names[unit]}"
