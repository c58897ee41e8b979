"""The requests of clients that a leader has not answered: they are told when it cannot go on.

Without that they would wait for their time to be over before they ask another server.
"""

from collections import OrderedDict
from collections.abc import Sequence

from oncemq.protocol.replies import RefusedReply
from oncemq.protocol.step import Body
from oncemq.server.served import Outgoing
from oncemq.wire.codec import HEAD, encode_reply

KEPT = 100_000  # newest; who is not told asks anew when its time is over


class OpenRequests:
    """Of one leader, by the way back and the token."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[bytes, int], None] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open)

    def asked(self, route: bytes, frames: Sequence[Body]) -> None:
        """A client asks."""
        if frames and len(frames[0]) >= HEAD.size:
            self._open[route, HEAD.unpack_from(frames[0])[2]] = None
            if len(self._open) > KEPT:
                self._open.popitem(last=False)

    def answered(self, outgoing: Sequence[Outgoing]) -> None:
        """These leave."""
        for route, frames in outgoing:
            self._open.pop((route, HEAD.unpack_from(frames[0])[2]), None)

    def told(self, refusal: RefusedReply) -> list[Outgoing]:
        """What everybody else is told: to ask the leader; nobody is told twice."""
        told = [(route, encode_reply(token, refusal)) for route, token in self._open]
        self._open.clear()
        return [(route, frames) for route, frames in told]
