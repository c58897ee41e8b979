"""Answers that wait until what they rest on is committed: a heap, which the driver takes them from.

Law: they come out in the order of what they rest on, and in the order they came where that is
equal. A list may be long, so an answer waits as the bytes it will be, which are counted.
"""

import heapq
from itertools import count

from oncemq.protocol.names import Serial
from oncemq.protocol.step import Body, Caller, Deliver, Owed
from oncemq.wire import codec


class HeldAnswers:
    """Of one driver."""

    def __init__(self) -> None:
        self.bytes = 0  # of those that are encoded
        self.waiting: list[tuple[Serial, int, Caller, Deliver | Body]] = []
        self._order = count()

    def hold(self, owed: Owed) -> None:
        """Until the log is committed so far; what is delivered is read only then."""
        answer: Deliver | Body
        if isinstance(owed.answer, Deliver):
            answer = owed.answer
        else:
            (answer,) = codec.encode_reply(owed.caller.token, owed.answer)
            self.bytes += len(answer)
        heapq.heappush(self.waiting, (owed.after, next(self._order), owed.caller, answer))
