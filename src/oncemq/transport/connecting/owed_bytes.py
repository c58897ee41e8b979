"""What a full socket is owed: buffers that did not fit, in order.

Laws: what was begun is sent to its end before anything else. Buffers are kept as they are, not
copied: nobody may change them. Who asks `is_full` before each message is bounded by
`bytes_max` and one message; what is said without being asked (an answer to a ping) is bounded
by the one who holds this.
"""

from collections import deque
from collections.abc import Sequence

from oncemq.zmtp.messages import Frame

OWED_BYTES_MAX = 4 << 20
OWED_MESSAGES_MAX = 1_000
BUFFERS_AT_ONCE = 256  # in one call of the system, which takes 1,024


class OwedBytes:
    """The bytes that one connection still has to send."""

    __slots__ = ("_buffers", "bytes_max", "size")

    def __init__(self, bytes_max: int = OWED_BYTES_MAX) -> None:
        self._buffers: deque[Frame] = deque()
        self.bytes_max = bytes_max
        self.size = 0

    @property
    def is_full(self) -> bool:
        """Whether another message is one too many."""
        return self.size > self.bytes_max or len(self._buffers) >= OWED_MESSAGES_MAX

    def add(self, buffers: Sequence[Frame], *, sent: int = 0) -> None:
        """Owe these, but for so many bytes at their beginning."""
        for each in buffers:
            if sent >= len(each):
                sent -= len(each)
                continue
            self._buffers.append(memoryview(each)[sent:] if sent else each)
            self.size += len(each) - sent
            sent = 0

    def first(self) -> list[Frame]:
        """What to send next."""
        buffers = self._buffers
        if len(buffers) <= BUFFERS_AT_ONCE:
            return list(buffers)
        return [buffers[place] for place in range(BUFFERS_AT_ONCE)]

    def sent(self, count: int) -> None:
        """So many bytes of it have left."""
        buffers = self._buffers
        self.size -= count
        while count:
            head = buffers[0]
            if count < len(head):
                buffers[0] = memoryview(head)[count:]
                return
            count -= len(head)
            buffers.popleft()

    def clear(self) -> None:
        """The connection is gone: who sent these sends them again, or not."""
        self._buffers.clear()
        self.size = 0
