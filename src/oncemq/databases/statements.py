"""What we ask of a user's database, in one language: parameters are written `:name`.

Work on a database is written once, as a generator that yields these and is sent the answers;
`connections` carries it out on a blocking connection or on an awaitable one.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, TypeVar

T = TypeVar("T")

Kind = Literal["sqlite", "postgresql"]
Value = str | int | bytes | None
Parameters = Mapping[str, Value]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; the answer is its rows."""

    sql: str
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Tell:
    """A change; the answer is how many rows it touched."""

    sql: str
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class TellMany:
    """The same change for each of these; no answer."""

    sql: str
    parameters: Sequence[Parameters]


class Bound(Enum):
    """The bounds of a transaction; no answer."""

    BEGIN = "begin"  # a writing one; refused words when the connection cannot have one
    CHECK = "check"  # raises when the code inside has ended the transaction already
    COMMIT = "commit"
    ROLLBACK = "rollback"
    FINISH = "finish"  # end a transaction in which nothing was written


Statement = Ask | Tell | TellMany
Step = Statement | Bound
Work = Generator[Step, Any, T]


def roll_back() -> Work[None]:
    """Undo what is open; a connection that is lost has undone it already."""
    try:
        yield Bound.ROLLBACK
    except Exception:
        return


_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@lru_cache(maxsize=256)
def pyformat(sql: str) -> str:
    """For psycopg: `%(name)s`."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))


@lru_cache(maxsize=256)
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """For asyncpg: `$1`, and the names in their order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _PARAMETER.sub(number, sql), tuple(names)
