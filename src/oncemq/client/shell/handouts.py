"""Messages that are settled and on their way to the caller of `get`, until the caller has them.

A signal handler may raise between the moment in which a get settles messages and the moment in
which it returns them: they would never be given to anybody. So they are kept here from the one
moment to the other, and an interrupted get leaves them to the next one.

A transaction cannot have them: they are settled, and what it takes is settled by its commit alone.
Nor may it pass over them, for they come before what it would take. So it is refused until a get, a
consume or a listener has taken them.

Law: from its settling on, a message is in a handout or with the caller. A handout is emptied and
left by assignments, which no signal handler halves: Python runs handlers when a function begins,
after a call of one that is not written in Python, and when a loop goes back to its beginning.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from oncemq.client.values import Message
from oncemq.errors import InvalidRequest
from oncemq.protocol.patterns import is_pattern, matches


@dataclass(slots=True, eq=False)
class Handout:
    """What one get is about to return; empty once it has."""

    messages: list[Message] = field(default_factory=list[Message])
    came_back: bool = False  # the get was interrupted: whoever gets next has them


class Handouts:
    """Those of one client. Changed only under the engine's lock, where signals are put off.

    `is_current`: whether the subscription that a message is of has not ended (G6).
    """

    def __init__(self, is_current: Callable[[Message], bool]) -> None:
        self._open: list[Handout] = []
        self._is_current = is_current

    def settled(self, handout: Handout, messages: list[Message]) -> None:
        """These are about to be returned, and settled."""
        handout.messages = messages
        self._open = [each for each in (*self._open, handout) if each.messages]

    def again(self, handout: Handout, messages: list[Message]) -> None:
        """The same of what was taken from here: it stays before what was left of it."""
        handout.messages = messages
        self._open = [each for each in (handout, *self._open) if each.messages]

    def take(self, feed: str, limit: int) -> list[Message]:
        """Up to `limit` messages of a feed that interrupted gets have left, oldest first."""
        taken: list[Message] = []
        for each in self._open:
            if each.came_back:
                mine = [message for message in each.messages if self._is_of(message, feed)]
                taken += mine[: limit - len(taken)]
        if taken:
            names = {message.id for message in taken}
            for each in self._open:
                if each.came_back:
                    each.messages = [left for left in each.messages if left.id not in names]
        return taken

    def check_none(self, feed: str) -> None:
        """Refuse a transaction that would pass over what interrupted gets have left of a feed."""
        left = [m for each in self._open if each.came_back for m in each.messages]
        if mine := [message for message in left if self._is_of(message, feed)]:
            raise InvalidRequest(
                f"a get that was interrupted has settled {mine[0].id} and not returned it: it "
                "comes first, and cannot be part of a transaction, which settles when it ends. End "
                "the transaction, take what was left with get, and begin another"
            )

    def one_by_one(self, feed: str) -> Iterator[Message]:
        """The same for a listener: each is had when the next is asked for."""
        for each in self._open:
            while each.came_back and (mine := [m for m in each.messages if self._is_of(m, feed)]):
                yield mine[0]
                each.messages = [left for left in each.messages if left is not mine[0]]

    def _is_of(self, message: Message, feed: str) -> bool:
        if not self._is_current(message):
            return False
        if is_pattern(feed):
            return matches(feed, message.topic)
        return not feed or message.topic in feed.split("\n")
