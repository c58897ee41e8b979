"""What the rules are given with a request: the clock, the bytes beside it, and facts of the disk.

The broker asks these once for a request, at the place where its rules need them; nothing here
waits. Who gives nothing gives endless room, and takes the bytes for right.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from oncemq.protocol.names import Micros, TopicId
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import Put, Request, StagePut, Start
from oncemq.protocol.step import Body

Facts = Mapping[str, str | int | float | bool]


class Gate(Protocol):
    """What is checked before a request takes effect that was not stored before."""

    def check(self, request: Request, now: Micros, *, derived: int = 0) -> RefusedReply | None:
        """Why it must not: it asks for too much, or the disk has no room. None: it may.

        `derived`: so many facts follow from the request beside its own.
        """
        ...

    def check_put(
        self, put: Put | StagePut, body: Body, now: Micros, seed: int, *, derived: int = 0
    ) -> RefusedReply | None:
        """The same for a batch: also its size and its bytes. `seed`: of its checksum."""
        ...


class StorageFacts(Protocol):
    """What the disk holds, for those who ask about it."""

    def stored_bytes(self, topic_id: TopicId) -> int: ...
    def status(self) -> Facts: ...


class Given(msgspec.Struct, frozen=True, gc=False):
    """With one request. `now` is for waits, `stamp` for timestamps: they follow the date."""

    now: Micros
    stamp: Micros
    body: Body = b""
    gate: Gate | None = None
    start: Start | None = None  # of a Subscribe by time: the offset that was found for it
    storage: StorageFacts | None = None
