"""What is checked before the broker sees a request: sizes, checksums, room on the disk.

Law: what passes is a batch whose bytes are right and whose storing cannot fail for want of room,
here or, as far as its leader knows, on the other replicas of a shard.
"""

from collections.abc import Callable
from typing import Protocol, get_origin, get_type_hints

from oncemq.broker.state.shard import Shard
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros
from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.requests import (
    REQUESTS,
    CommitRequest,
    Compare,
    CreateTopic,
    Get,
    Leave,
    ListClients,
    Listen,
    ListSubscriptions,
    ListTopics,
    Put,
    Read,
    Request,
    Resume,
    Settle,
    ShowTopic,
    StagePut,
    StatusRequest,
    Subscribe,
    WatchEnds,
)
from oncemq.protocol.step import Body
from oncemq.wire import batch

FACT_BYTES = 4_096  # a step of small facts takes less
CURSOR_BYTES = 128  # and each cursor that it moves, beside the name of its client
PIECE_BYTES = 640  # of a commit: its part, and the topic that may have to be made

# These leave half of the reserve to what lets others catch up and frees room: a hello, what is
# settled, the end of a subscription or of a topic, another retention.
_SETTLING = (Get, Settle, Listen)
_READING = (Get, Listen)
_GROWING = (Subscribe, CreateTopic, CommitRequest)
_WRITES_NOTHING = (
    Resume,
    Read,
    WatchEnds,
    Leave,
    ListTopics,
    ShowTopic,
    ListSubscriptions,
    ListClients,
    Compare,
    StatusRequest,
)


# What a request may have many of, by its kind.
LISTS: dict[type[Request], tuple[str, ...]] = {
    kind: tuple(name for name, hint in get_type_hints(kind).items() if get_origin(hint) is tuple)
    for kind in REQUESTS.values()
}


class RoomPort(Protocol):
    """The part of the log that knows about room."""

    @property
    def reserve_bytes(self) -> int: ...
    def has_room(self, size: int, *, now_ms: int, fact: bool = False) -> bool: ...


class Admission:
    """The checks at the door of one server."""

    def __init__(self, rules: ServerLimits, room: RoomPort, shard: Shard) -> None:
        self._rules = rules
        self._room = room
        self._shard = shard
        self.replicas_refusal: Callable[[Micros], str | None] | None = None  # why none can store

    def check(self, request: Request, now: Micros, *, derived: int = 0) -> RefusedReply | None:
        """Why a request may not be handled, or None; `derived` facts follow from it at most."""
        if refusal := self._too_many(request):
            return refusal
        moved = self._moved_bytes(request) if isinstance(request, _SETTLING) else 0
        # Gets and listeners go on when the disk is full: those that settle nothing.
        nothing = isinstance(request, _READING) and not moved
        if nothing or isinstance(request, _WRITES_NOTHING):
            return None
        if self.replicas_refusal and (why := self.replicas_refusal(now)):
            return _cannot_store(why)
        size = derived * PIECE_BYTES + moved
        return None if self._fact_room(request, now, size) else _full()

    def _too_many(self, request: Request) -> RefusedReply | None:
        """Why a request with lists takes too long, or None."""
        most = self._rules.request_entries_max
        for name in LISTS.get(type(request), ()):
            entries: tuple[object, ...] = getattr(request, name)
            if len(entries) > most:
                detail = f"{name} of {type(request).__name__} has {len(entries)} entries"
                return RefusedReply(
                    "too_large", f"{detail}, over the limit of {most}; ask in parts"
                )
        return None

    def _moved_bytes(self, request: Get | Settle | Listen) -> int:
        """What the cursors take that a request moves at most: what fits nothing needs no room."""
        count = 0
        for each in request.settled:
            topic = self._shard.by_name.get(each.topic)
            subscription = topic.subscriptions.get(request.client) if topic else None
            count += subscription is not None and subscription.id == each.subscription_id
        return count * (CURSOR_BYTES + len(request.client.encode()))

    def check_put(
        self, put: Put | StagePut, body: Body, now: Micros, seed: int, *, derived: int = 0
    ) -> RefusedReply | None:
        """Why a batch may not be stored, or None."""
        rules = self._rules
        if len(body) > rules.batch_bytes_max:
            detail = f"a batch of {len(body)} bytes is over the limit of {rules.batch_bytes_max}"
            return RefusedReply("too_large", f"{detail}; send smaller ones")
        if put.count > rules.batch_messages_max:
            detail = f"a batch of {put.count} messages is over the {rules.batch_messages_max}"
            return RefusedReply("too_large", f"{detail} allowed; send smaller ones")
        fault = batch.fault(body, put.count, put.columns, message_bytes_max=rules.message_bytes_max)
        if fault:
            code = "too_large" if "over the limit" in fault else "malformed"
            return RefusedReply(code, fault)
        if batch.checksum(body, seed) != put.checksum:
            return RefusedReply(
                "checksum", "the batch is not what its checksum says: send it again"
            )
        if self.replicas_refusal and (why := self.replicas_refusal(now)):
            return _cannot_store(why)
        if not self._room.has_room(len(body) + derived * PIECE_BYTES, now_ms=now // 1000):
            return _full()
        return None

    def _fact_room(self, request: Request, now: Micros, derived_bytes: int) -> bool:
        size = FACT_BYTES + derived_bytes
        if isinstance(request, CommitRequest):
            size += PIECE_BYTES * (len(request.pieces) + len(request.inputs))
        if isinstance(request, _GROWING):
            size += self._room.reserve_bytes // 2
        return self._room.has_room(size, now_ms=now // 1000, fact=True)


def _cannot_store(why: str) -> RefusedReply:
    """Not enough disks have room: the same to a client as if this one were full."""
    return RefusedReply("storage_full", f"{why}; nothing was stored, and it goes on by itself then")


def _full() -> RefusedReply:
    return RefusedReply(
        "storage_full",
        "the server's disk has no room left; nothing was stored. Free some, raise --disk-max, "
        "or let subscribers catch up: it goes on by itself then",
    )
