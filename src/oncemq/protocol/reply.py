"""What replies have in common."""

from typing import ClassVar

import msgspec


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """One answer. `opcode` is its number on the wire, for good."""

    opcode: ClassVar[int]
