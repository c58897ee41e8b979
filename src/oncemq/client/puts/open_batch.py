"""Single puts that nobody waits for, gathered until they leave as one batch.

A put that nobody waits for costs a look and an assignment, and nothing else. What must be looked at
more closely (the topic's name, the limits of the server, room in the outbox, whether a thread
sends at all) is looked at when a batch is opened, and whenever the bytes or the places that were
granted to it then are used up; the put buffer does that under the client's lock.

In between no lock is taken: it would cost a third of the put. A message goes into an empty place of
its batch, and the place is counted, in one line that calls nothing. CPython switches threads and
runs signal handlers when a function begins, after a call, and when a loop goes back to its
beginning, and tracers run where a line begins: so nothing comes between. A batch that was taken out
has no places, as one whose places are used up, and that line fails. Where Python is another one,
or has no global lock, no places are granted: every put is looked at, under the client's lock.

Laws: a batch that is taken out gets nothing more. What is appended is as its owner gave it: only
`bytes`, which nobody can change, are appended without a copy. Bytes are granted so that what waits
and what may be appended together stay within the limits.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from itertools import repeat
from typing import NamedTuple

from oncemq.client.pending import ONE, Answering, Pending
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipt, Receipts
from oncemq.wire import batch

IS_UNDISTURBED = (
    sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
)  # what calls nothing, within a line

GATHER_MESSAGES = 10_000
ALONE_MESSAGES = 5_000  # of one put: it leaves as a batch of its own
GATHER_BYTES = 1 << 20
GRANTED_BYTES = 1 << 18  # what may be appended before the put buffer looks again
GRANTED_PLACES = 100  # and how many messages at first; then as many as there are


class JoinedPayloads(NamedTuple):
    """Several payloads that came at once."""

    lengths: list[int]
    joined: bytes


def _joined(payloads: Sequence[bytes]) -> JoinedPayloads:
    """A copy of them, in two steps for all where they are bytes."""
    with suppress(TypeError):
        found = JoinedPayloads(list(map(len, payloads)), b"".join(payloads))
        if len(found.joined) == sum(found.lengths):  # a view of numbers has fewer than bytes
            return found
    copied = list(map(batch.payload_of, payloads))
    return JoinedPayloads(list(map(len, copied)), b"".join(copied))


class OpenBatch:
    """Small puts that will leave as one batch. Each has its place among the receipts."""

    __slots__ = (
        *("count", "durable", "granted", "largest", "lasting", "places", "required"),
        *("runs", "sides", "size_before", "ticket"),
    )

    def __init__(self, *, lasting: bool, required: bool) -> None:
        self.lasting = lasting
        self.required = required
        self.durable: bool | None = None  # what callers must say to append; None: nobody may
        self.places: list[bytes] = []  # the messages, and behind them places for others
        self.count = 0  # of the messages
        # Those that came several at once, joined; their own places are empty. By the first of them.
        self.runs: dict[int, JoinedPayloads] = {}
        self.sides: dict[int, batch.Item] = {}  # the few that have a key or headers, by place
        self.size_before = 0  # bytes, and those that are granted and not used
        self.granted = 0  # bytes that may be appended yet
        self.largest = 0  # bytes that a message may have
        self.ticket: Ticket[Receipts] = Ticket()

    @property
    def payloads(self) -> list[bytes]:
        """What is in it."""
        found = self.places[: self.count]
        for place, run in self.runs.items():
            read = BytesIO(run.joined).read
            found[place : place + len(run.lengths)] = map(read, run.lengths)
        return found

    @property
    def size(self) -> int:
        """The bytes of what is in it."""
        return self.size_before - self.granted

    @property
    def full(self) -> bool:
        """Whether it is worth a request of its own."""
        return self.count >= GATHER_MESSAGES or self.size >= GATHER_BYTES

    def add(self, payloads: Sequence[bytes], item: batch.Item | None) -> int:
        """Take them as they are now, whatever their owner does with them later; their place."""
        run = _joined(payloads)
        key = None if item is None or item.key is None else bytes(item.key)
        headers = None if item is None or item.headers is None else dict(item.headers)
        count = len(run.lengths)
        # Where others append there is no place until these are counted: they come here, too.
        places = self._taken_aside()
        try:
            place = self.count
            if count == 1:
                places.append(run.joined)
            else:
                places += repeat(b"", count)
                self.runs[place] = run
            if item is not None:
                self.sides[place] = batch.Item(run.joined, key, headers)
            self.count = place + count
            self.size_before += len(run.joined)
        finally:
            self.places = places
        return place

    def _taken_aside(self) -> list[bytes]:
        """The messages; who appends meets no place meanwhile, and takes the lock."""
        places, self.places = self.places, []
        del places[self.count :]
        return places

    def shut(self) -> None:
        """Nothing is appended from here on, nor by a thread that is about to."""
        self.places = self._taken_aside()

    def grant(self, size: int, *, durable: bool | None = None, largest: int = 0) -> None:
        """So many bytes may be appended, and no more, in messages of at most `largest`."""
        self.shut()
        self.size_before += size - self.granted
        self.granted, self.durable, self.largest = size, durable, largest
        if size and IS_UNDISTURBED:
            more = max(GRANTED_PLACES, self.count)
            self.places += [b""] * min(more, GATHER_MESSAGES - self.count)

    def grant_some(self, spare: int, *, durable: bool, largest: int) -> None:
        """More may be appended unseen, as far as it is spare and the batch is not full."""
        size = min(spare, GRANTED_BYTES, GATHER_BYTES - self.size)
        if size > 0:
            self.grant(size, durable=durable, largest=largest)

    def encode(self) -> tuple[int, bytes]:
        """The columns and the body."""
        if self.sides:
            return batch.encode(
                [
                    self.sides.get(place) or batch.Item(payload)
                    for place, payload in enumerate(self.payloads)
                ]
            )
        if not self.runs:
            return 0, batch.encode_payloads(self.payloads)
        lengths: list[int] = []
        parts: list[bytes] = []
        for place, run in (*self.runs.items(), (self.count, JoinedPayloads([], b""))):
            alone = self.places[len(lengths) : place]
            lengths += map(len, alone)
            lengths += run.lengths
            parts += (*alone, run.joined)
        return 0, batch.join_payloads(lengths, parts)


class OpenBatches:
    """The open batch of each topic. Changed under the client's lock, but for `append`.

    Law: the places of a batch are its messages and those that are granted, and no message is put
    into one after another thread has shut it.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, OpenBatch] = {}

    def append(
        self, topic: str, payload: bytes, durable: bool, required: bool, turns: Answering
    ) -> Pending[Receipt] | None:
        """Add a plain message, from any thread; None: the put buffer must look at it."""
        if type(payload) is not bytes:
            return None  # it is copied there, or refused
        size = len(payload)
        opened = self.by_topic.get(topic)
        if (
            opened is None
            or opened.durable is not durable
            or opened.required is not required
            or size > opened.largest
            or size > opened.granted
        ):
            return None
        try:
            # On one line, and without a call: see the head of this module.
            place = opened.count; opened.places[place] = payload; opened.count = place + 1; opened.granted -= size  # noqa: E501, E702  # fmt: skip
        except IndexError:  # there is no place: it was taken out, or all are used up
            return None
        return Pending(opened.ticket, place, ONE, turns)

    def get(self, topic: str) -> OpenBatch | None:
        """The topic's, if it has one."""
        return self.by_topic.get(topic)

    def open(self, topic: str, opened: OpenBatch) -> None:
        """This one is open from now on."""
        self.by_topic[topic] = opened

    def take_out(self, topic: str) -> OpenBatch | None:
        """It is open no longer, and gets nothing more; None when there is none."""
        opened = self.by_topic.pop(topic, None)
        if opened is not None:
            opened.shut()
        return opened

    def topics(self) -> list[str]:
        """Those that have one."""
        return list(self.by_topic)

    @property
    def messages(self) -> int:
        """How many wait in all of them."""
        return sum(each.count for each in list(self.by_topic.values()))

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(each.size for each in list(self.by_topic.values()))

    @property
    def granted(self) -> int:
        """Bytes that may be appended to them."""
        return sum(each.granted for each in list(self.by_topic.values()))

    def withdraw_grants(self) -> None:
        """Whatever is added next is looked at first."""
        for each in self.by_topic.values():
            each.grant(0)

    def disown(self) -> None:
        """In a forked process: what is open is the parent's."""
        self.by_topic.clear()
