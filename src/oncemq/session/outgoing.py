"""What the parts of a client want of the server: requests that begin, and those that nobody wants.

A part is a state machine. It takes events (a verb's call, a reply, the passing of time), changes
its own state, and leaves here what follows for the server, as the server's driver leaves its
replies in `outgoing`. The engine takes it out before it looks at the next reply and before it
sends. So a part knows no tokens, no retries and no socket, and cannot see what is under way.

A request is known by a key that its owner chose, which is the very object: the owner makes the
request of it anew for each send, for epochs and cursors change, and is given it with the reply.

Laws: what is left here is taken in its order, whichever part left it, since a batch of a stage goes
before the commit that names it. A key is under way once at a time. One that is given up gets no
reply, also where that has come already and was not looked at yet.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body


class RequestOwner(Protocol):
    """A part of a client that asks the server something."""

    def request(self, key: Any) -> tuple[Request, Body | None]:
        """The request of this key, as it is to be sent now."""
        ...

    def on_reply(self, key: Any, reply: Reply, bodies: Sequence[Body]) -> None:
        """The answer; the request is under way no longer."""
        ...


# A request that begins, by its owner, its key and how many milliseconds the server may rightly take
# to answer; or (without an owner) one that nobody wants any more.
Wanted = tuple[RequestOwner | None, Any, int]


class Outgoing:
    """What one client's parts have left to be taken out, in order."""

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []

    def begin(self, owner: RequestOwner, key: Any, *, patience_ms: int = 0) -> None:
        """This is to be asked, again and again until it is answered."""
        self.wanted.append((owner, key, patience_ms))

    def give_up(self, key: Any) -> None:
        """Nobody wants this answer any more; nothing happens where none is to come."""
        if key is not None:
            self.wanted.append((None, key, 0))

    def take(self) -> list[Wanted]:
        """All of it, for who carries it out."""
        wanted, self.wanted = self.wanted, []
        return wanted
