"""Single puts that nobody waits for, gathered until they leave as one batch."""

from collections.abc import Sequence

from oncemq.client.engine.ticket import Ticket
from oncemq.client.values import Receipts
from oncemq.wire import batch

GATHER_MESSAGES = 5_000
GATHER_BYTES = 1 << 20


class OpenBatch:
    """Small puts that will leave as one batch. Each has its place among the receipts."""

    __slots__ = ("lasting", "payloads", "required", "sides", "size", "ticket")

    def __init__(self, *, lasting: bool, required: bool) -> None:
        self.lasting = lasting
        self.required = required
        self.payloads: list[bytes] = []
        self.sides: dict[int, batch.Item] = {}  # the few that have a key or headers, by place
        self.size = 0
        self.ticket: Ticket[Receipts] = Ticket()

    @property
    def full(self) -> bool:
        """Whether it is worth a request of its own."""
        return len(self.payloads) >= GATHER_MESSAGES or self.size >= GATHER_BYTES

    def add(self, payloads: Sequence[bytes], item: batch.Item | None) -> int:
        """Take them as they are now, whatever their owner does with them later; their bytes."""
        if item is not None:
            key = None if item.key is None else bytes(item.key)
            headers = None if item.headers is None else dict(item.headers)
            self.sides[len(self.payloads)] = batch.Item(item.payload, key, headers)
        taken = [each if type(each) is bytes else batch.payload_of(each) for each in payloads]
        size = sum(map(len, taken))
        self.size += size
        self.payloads.extend(taken)
        return size

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
