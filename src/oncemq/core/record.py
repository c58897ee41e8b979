"""What every fact on a disk is: a value with a number for its kind."""

from typing import ClassVar

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One fact. `kind` is its number on disk, for good."""

    kind: ClassVar[int]
