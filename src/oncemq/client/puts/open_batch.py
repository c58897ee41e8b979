"""Single puts that nobody waits for, gathered until they leave as one batch.

A put that nobody waits for costs a look and an append, and nothing else. What must be looked at
more closely (the topic's name, the limits of the server, room in the outbox, whether a thread
sends at all) is looked at when a batch is opened, and whenever the bytes that were granted to it
then are used up; the put buffer does that under the client's lock. In between `append` needs a
lock of its own only, so that it does not wait while a batch before it is written to the disk.

Laws: a batch that is taken out gets nothing more. What is appended is as its owner gave it: only
`bytes`, which nobody can change, are appended without a copy. Bytes are granted so that what waits
and what may be appended together stay within the limits.
"""

import threading
from collections.abc import Callable, Sequence

from oncemq.client.pending import ONE, Pending
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipt, Receipts
from oncemq.wire import batch

GATHER_MESSAGES = 5_000
GATHER_BYTES = 1 << 20
GRANTED_BYTES = 1 << 16  # what may be appended before the put buffer looks again


class OpenBatch:
    """Small puts that will leave as one batch. Each has its place among the receipts."""

    __slots__ = (
        *("durable", "granted", "largest", "lasting", "payloads", "required"),
        *("sides", "size_before", "ticket"),
    )

    def __init__(self, *, lasting: bool, required: bool) -> None:
        self.lasting = lasting
        self.required = required
        self.durable: bool | None = None  # what callers must say to append; None: nobody may
        self.payloads: list[bytes] = []
        self.sides: dict[int, batch.Item] = {}  # the few that have a key or headers, by place
        self.size_before = 0  # bytes, and those that are granted and not used
        self.granted = 0  # bytes that may be appended yet
        self.largest = 0  # bytes that a message may have
        self.ticket: Ticket[Receipts] = Ticket()

    @property
    def size(self) -> int:
        """The bytes of what is in it."""
        return self.size_before - self.granted

    @property
    def full(self) -> bool:
        """Whether it is worth a request of its own."""
        return len(self.payloads) >= GATHER_MESSAGES or self.size >= GATHER_BYTES

    def add(self, payloads: Sequence[bytes], item: batch.Item | None) -> None:
        """Take them as they are now, whatever their owner does with them later."""
        if item is not None:
            key = None if item.key is None else bytes(item.key)
            headers = None if item.headers is None else dict(item.headers)
            self.sides[len(self.payloads)] = batch.Item(item.payload, key, headers)
        taken = [each if type(each) is bytes else batch.payload_of(each) for each in payloads]
        self.size_before += sum(map(len, taken))
        self.payloads.extend(taken)

    def grant(self, size: int, *, durable: bool | None = None, largest: int = 0) -> None:
        """So many bytes may be appended, and no more, in messages of at most `largest`."""
        self.size_before += size - self.granted
        self.granted, self.durable, self.largest = size, durable, largest

    def grant_some(self, spare: int, *, durable: bool, largest: int) -> None:
        """More may be appended unseen, as far as it is spare and the batch is not full."""
        size = min(spare, GRANTED_BYTES, GATHER_BYTES - self.size)
        if size > 0:
            self.grant(size, durable=durable, largest=largest)

    def encode(self) -> tuple[int, bytes]:
        """The columns and the body."""
        if not self.sides:
            return 0, batch.encode_payloads(self.payloads)
        return batch.encode(
            [
                self.sides.get(place) or batch.Item(payload)
                for place, payload in enumerate(self.payloads)
            ]
        )


class OpenBatches:
    """The open batch of each topic. Changed under the client's lock, but for `append`."""

    def __init__(self) -> None:
        # It may be taken again by the same thread: a signal handler may put.
        self.lock = threading.RLock()
        self._by_topic: dict[str, OpenBatch] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def append(
        self,
        topic: str,
        payload: bytes,
        durable: bool,
        required: bool,
        wait: Callable[[Ticket[Receipts], float | None], Receipts],
    ) -> Pending[Receipt] | None:
        """Add a plain message, from any thread; None: the put buffer must look at it."""
        if type(payload) is not bytes:
            return None  # it is copied there, or refused
        # On one line: CPython runs no signal handler between a block's last call and its end, but
        # a line tracer would stop there, with the lock taken (test_interrupts has one).
        with self.lock: return self._append(topic, payload, durable, required, wait)  # noqa: E701  # fmt: skip

    def _append(
        self,
        topic: str,
        payload: bytes,
        durable: bool,
        required: bool,
        wait: Callable[[Ticket[Receipts], float | None], Receipts],
    ) -> Pending[Receipt] | None:
        each = self._by_topic.get(topic)
        if each is None or each.durable is not durable or each.required is not required:
            return None
        size = len(payload)
        payloads = each.payloads
        place = len(payloads)
        if size > each.granted or size > each.largest or place >= GATHER_MESSAGES:
            return None
        payloads.append(payload)
        each.granted -= size
        return Pending(each.ticket, place, ONE, wait)

    def get(self, topic: str) -> OpenBatch | None:
        """The topic's, if it has one."""
        return self._by_topic.get(topic)

    def open(self, topic: str, opened: OpenBatch) -> None:
        """This one is open from now on."""
        self._by_topic[topic] = opened

    def take_out(self, topic: str) -> OpenBatch | None:
        """It is open no longer; None when there is none."""
        with self.lock:
            return self._by_topic.pop(topic, None)

    def topics(self) -> list[str]:
        """Those that have one."""
        return list(self._by_topic)

    @property
    def messages(self) -> int:
        """How many wait in all of them."""
        return sum(len(each.payloads) for each in list(self._by_topic.values()))

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(each.size for each in list(self._by_topic.values()))

    @property
    def granted(self) -> int:
        """Bytes that may be appended to them."""
        return sum(each.granted for each in list(self._by_topic.values()))

    def withdraw_grants(self) -> None:
        """Whatever is added next is looked at first."""
        with self.lock:
            for each in self._by_topic.values():
                each.grant(0)

    def disown(self) -> None:
        """In a forked process: the lock may be held by a thread that is not here."""
        self.lock = threading.RLock()
        self._by_topic = {}
