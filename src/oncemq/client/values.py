"""What users hold: messages and receipts."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, repeat
from typing import overload

import msgspec

from oncemq.errors import Corrupt, HistoryLost, InvalidRequest
from oncemq.protocol.generations import in_words
from oncemq.protocol.names import Generation, Micros, Offset, SubscriptionId
from oncemq.protocol.records import Run
from oncemq.protocol.replies import NO_OFFSET, BatchHead, CommitDone, Messages, PutAccepted
from oncemq.protocol.requests import Input
from oncemq.protocol.step import Body
from oncemq.session.handshake import NO_LOG
from oncemq.wire import batch

Headers = dict[str, str]

_MARK = re.compile(r"([0-9]{1,19})(?:@([0-9]{1,19}))?")  # of a commit: its number, and when


class Origin:
    """The batch a message came in: what its messages share, and the columns beside payloads."""

    __slots__ = ("_body", "_sides", "_starts", "generation", "head")

    def __init__(self, head: BatchHead, body: Body, generation: Generation) -> None:
        self.head = head
        self.generation = generation  # of the server's log when it came
        # Plain batches let go of their bytes: each payload is a copy of its own.
        self._body = bytes(body) if head.columns else b""
        self._sides: tuple[list[bytes | None], list[Headers | bytes | None]] | None = None
        self._starts: list[int] | None = None  # place of each run's first message, and the end

    def side(self, offset: int) -> tuple[bytes | None, Headers | bytes | None]:
        """Key and headers of one message; bytes that are no headers as they are."""
        head = self.head
        if not head.columns:
            return None, None
        place = offset - head.first_offset
        if self._sides is None:
            self._sides = batch.sides(self._body, head.count, head.columns)
        return self._sides[0][place], self._sides[1][place]

    def run(self, offset: int) -> tuple[Run, int]:
        """The run a message belongs to, and its place in it."""
        runs = self.head.runs
        if self._starts is None:
            self._starts = list(accumulate((run.count for run in runs), initial=0))
        place = offset - self.head.first_offset
        number = bisect_right(self._starts, place) - 1
        return runs[number], place - self._starts[number]


class Message(msgspec.Struct, frozen=True, gc=False, eq=False, repr_omit_defaults=True):
    """One message. `id` (`orders@42`) is its name for good: use it to recognize a repeat."""

    payload: bytes
    offset: int
    _origin: Origin

    @property
    def topic(self) -> str:
        return self._origin.head.topic

    @property
    def key(self) -> bytes | None:
        return self._origin.side(self.offset)[0]

    @property
    def headers(self) -> Headers:
        headers = self._origin.side(self.offset)[1]
        return headers if isinstance(headers, dict) else {}

    @property
    def odd_headers(self) -> bytes | None:
        """What stands where the headers should, and is none; None: nothing is wrong.

        A server refuses such a put; one of version 0.1.0 did not.
        """
        headers = self._origin.side(self.offset)[1]
        return headers if isinstance(headers, bytes) else None

    @property
    def timestamp(self) -> datetime:
        """When the server stored it."""
        micros = self._origin.run(self.offset)[0].timestamp
        return datetime.fromtimestamp(micros / 1_000_000, UTC)

    @property
    def producer(self) -> str:
        """Who numbered it."""
        return self._origin.run(self.offset)[0].producer.hex()

    @property
    def sequence(self) -> int:
        """The producer's number for it on this topic."""
        run, place = self._origin.run(self.offset)
        return run.first_sequence + place

    @property
    def subscription_id(self) -> SubscriptionId:
        """The subscription it was given to; 0: none, it was read by its offset."""
        return self._origin.head.subscription_id

    @property
    def id(self) -> str:
        return f"{self.topic}@{self.offset}"

    def __repr__(self) -> str:
        shown = self.payload if len(self.payload) <= 40 else self.payload[:37] + b"..."
        return f"<Message {self.id} {shown!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.topic, self.offset, self.payload) == (
            other.topic,
            other.offset,
            other.payload,
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.offset))


def must_be_of(messages: Sequence[Message], generation: Generation) -> None:
    """Refuse to settle what came before the server's log went back in time.

    The same offsets may be other messages now: those would be passed over.
    """
    if generation == NO_LOG.generation:
        return
    for message in messages[:1]:  # they are in the order they came in: it is the oldest
        before = message._origin.generation  # pyright: ignore[reportPrivateUsage]
        if before != generation:
            raise HistoryLost(
                f"the server's log went back in time (generation {in_words(generation)}, before "
                f"{in_words(before)}) while {message.id} was worked on: it is not settled. Start "
                "this client again; what the server still has comes again"
            )


def input_of(first: Message, last: Message) -> Input:
    """What a commit settles of one subscription: from one message to another."""
    head = first._origin.head  # pyright: ignore[reportPrivateUsage]
    return Input(head.topic, head.subscription_id, Offset(first.offset), Offset(last.offset + 1))


class Receipt(msgspec.Struct, frozen=True):
    """What the server answered to a put.

    `stored` is False when nobody subscribes and nothing is retained. `duplicate`: it had been
    stored before, and was not again. `offset` is None when not stored, or when a repeat is so
    old that only the fact is known. `at_risk_ms` over 0: the server syncs at intervals, and a
    power cut may still take the message until that many milliseconds have passed.
    """

    topic: str
    offset: int | None
    stored: bool
    duplicate: bool
    at_risk_ms: int = 0

    @property
    def id(self) -> str | None:
        """The message's name (`orders@42`), if it has one."""
        return None if self.offset is None else f"{self.topic}@{self.offset}"


def receipts_of(topic: str, reply: PutAccepted) -> "Receipts":
    """What users get of the answer to a put."""
    offset = None if reply.first_offset == NO_OFFSET else reply.first_offset
    first = Receipt(topic, offset, reply.stored, reply.duplicate, reply.sync_ms)
    return Receipts(first, reply.count)


class Commit(msgspec.Struct, frozen=True):
    """What came of a commit: what each topic got, a receipt for each message, in order.

    `already`: this owner's number was used before, and nothing was done again; `receipts` are
    those of the first time, or none when that was long ago. `last` is the last number that the
    owner has used. `mark` names this very commit, on this branch of the server's log: keep it
    where you keep the number, and say it with the next one (`after`).
    """

    already: bool
    receipts: "dict[str, Receipts]"
    last: int = 0
    mark: str = ""


def commit_receipt(reply: CommitDone, number: int = 0) -> Commit:
    """What users get of the answer to a commit under this number (0: it is not theirs)."""
    receipts: dict[str, Receipts] = {}
    for each in reply.results:
        offset = None if each.first_offset == NO_OFFSET else each.first_offset
        first = Receipt(each.topic, offset, offset is not None, reply.already, reply.sync_ms)
        receipts[each.topic] = Receipts(first, each.count)
    mark = (f"{number}@{reply.moment}" if reply.moment else str(number)) if number else ""
    return Commit(reply.already, receipts, reply.last, mark)


def parse_mark(mark: str | int) -> tuple[int, Micros]:
    """The number of a commit and its moment (0: not known), from its mark or the number alone."""
    found = _MARK.fullmatch(str(mark or 0))
    if found is None:
        raise InvalidRequest(
            "after is the mark of a commit, as its receipt has it ('17@1700000000000000'), or a "
            f"number, not {mark!r}"
        )
    return int(found[1]), Micros(int(found[2] or 0))


class Receipts(Sequence[Receipt]):
    """The receipts of a batch, one a message, made when looked at."""

    def __init__(self, first: Receipt, count: int) -> None:
        self._first = first
        self._count = count

    def part(self, start: int, count: int) -> "Receipts":
        """The receipts of `count` messages from place `start` on."""
        return Receipts(self._at(start), count) if count else Receipts(self._first, 0)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(self._count))]
        if index == 0 and self._count:  # of a single put
            return self._first
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(f"receipt {index} of {self._count}")
        return self._at(place)

    def __iter__(self) -> Iterator[Receipt]:
        return map(self._at, range(self._count))

    def __repr__(self) -> str:
        return f"<Receipts {self._count} from {self._first!r}>"

    def _at(self, place: int) -> Receipt:
        first = self._first
        if first.offset is None or place == 0:
            return first
        return msgspec.structs.replace(first, offset=first.offset + place)


class Fetched:
    """A batch that came, made into messages bit by bit as they are taken."""

    __slots__ = ("_body", "_origin", "_payloads", "_start", "size")

    def __init__(
        self, head: BatchHead, body: Body, generation: Generation = NO_LOG.generation
    ) -> None:
        self._origin = Origin(head, body, generation)
        self._body = body
        self.size = len(body)
        self._payloads: batch.PayloadReader | None = None
        self._start = 0  # the place of the next

    @property
    def topic(self) -> str:
        return self._origin.head.topic

    @property
    def subscription_id(self) -> SubscriptionId:
        return self._origin.head.subscription_id

    @property
    def first(self) -> Offset:
        """The next offset to be taken."""
        return Offset(self._origin.head.first_offset + self._start)

    @property
    def left(self) -> int:
        """How many are left to be taken."""
        return self._origin.head.count - self._start

    def skip(self, count: int) -> None:
        """Pass over messages that were handed out before."""
        self._reader().skip(count)
        self._start += count

    def take(self, count: int) -> list[Message]:
        """The next messages."""
        first = self._origin.head.first_offset + self._start
        self._start += count
        payloads = self._reader().take(count)
        return list(map(Message, payloads, range(first, first + count), repeat(self._origin)))

    def _reader(self) -> batch.PayloadReader:
        if self._payloads is None:
            head = self._origin.head
            self._payloads = batch.PayloadReader(self._body, head.count, head.columns)
            self._body = b""
        return self._payloads


def verified(reply: Messages, bodies: Sequence[Body]) -> Iterator[tuple[BatchHead, Body]]:
    """The batches of a reply; the publisher's checksum is verified here, at the other end."""
    for head, body in zip(reply.batches, bodies, strict=True):
        if not _is_right(head, body):
            raise Corrupt(f"{head.topic}@{head.first_offset} is not what its publisher sent")
        yield head, body


def _is_right(head: BatchHead, body: Body) -> bool:
    """Whether this is what was put; what the checksum does not cover leads out of no body."""
    if head.count < 0 or not head.runs:
        return False
    if batch.table_bytes(head.count, head.columns) > len(body):
        return False
    run = head.runs[0]
    seed = batch.seed(head.topic, run.producer, run.first_sequence, head.count)
    return batch.checksum(body, seed) == head.checksum


def messages_of(reply: Messages, bodies: Sequence[Body]) -> list[Message]:
    """Every message of a reply."""
    return [
        message
        for head, body in verified(reply, bodies)
        for message in Fetched(head, body).take(head.count)
    ]
