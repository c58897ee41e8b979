"""What the rules are given with a request: the clock, the bytes beside it, and facts of the disk.

The broker asks these once for a request, at the place where its rules need them; nothing here
waits. Who gives nothing gives endless room, and takes the bytes for right.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from oncemq.protocol.names import Micros, TopicId
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import Request, Start
from oncemq.protocol.step import Body

Facts = Mapping[str, str | int | float | bool]


class Gate(Protocol):
    """What is checked before a request takes effect that was not stored before."""

    def check(
        self, request: Request, body: Body, now: Micros, *, seed: int = 0, derived: int = 0
    ) -> RefusedReply | None:
        """Why it must not: its size, its bytes, no room on the disk. None: it may.

        `seed`: what the checksum of a put's body starts from. `derived`: so many facts follow from
        the request beside its own.
        """
        ...


class StorageFacts(Protocol):
    """What the disk holds, for those who ask about it."""

    def stored_bytes(self, topic_id: TopicId) -> int: ...
    def status(self) -> Facts: ...


class Given(NamedTuple):
    """With one request. `now` is for waits, `stamp` for timestamps: they follow the date."""

    now: Micros
    stamp: Micros
    body: Body = b""
    gate: Gate | None = None
    start: Start | None = None  # of a Subscribe by time: the offset that was found for it
    storage: StorageFacts | None = None

    def refusal(self, request: Request, seed: int = 0, derived: int = 0) -> RefusedReply | None:
        """Why the gate does not let a request in; None: it does, or there is none."""
        if self.gate is None:
            return None
        return self.gate.check(request, self.body, self.now, seed=seed, derived=derived)
