"""What the server was told is settled, and what it has to be told yet.

Laws: a cursor counts as told when a request that named it was answered, not before; what the server
does not know is told with the next request, TOLD_MAX cursors at a time. A server that may have been
set back hears of every cursor again.
"""

from collections.abc import Iterable
from itertools import islice

from oncemq.protocol.names import Offset
from oncemq.protocol.requests import Settled
from oncemq.session.cursors import Cursors, Moved

TOLD_MAX = 1_000  # cursors that one request names: a server takes no lists without end
NOTHING_TOLD = Offset(-1)


class ToldCursors:
    """The cursors of one client, as its server knows them."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._told: dict[str, Offset] = {}  # and answered; of the topic's subscription of now
        self.waiting = dict.fromkeys(cursors.topics)  # topics whose cursor it may not know

    def begins(self, topic: str, at: Offset) -> None:
        """The server itself said where the subscription stands."""
        self._told[topic] = at
        self.waiting.pop(topic, None)

    def knows_nothing(self, topic: str) -> None:
        """The cursor is one that the server has not named."""
        self._told.pop(topic, None)
        self.waiting[topic] = None

    def ended(self, topic: str) -> None:
        """There is nothing to tell of it any more."""
        self._told.pop(topic, None)
        self.waiting.pop(topic, None)

    def gave(self, topic: str, first: Offset) -> None:
        """The server gives messages from here on.

        Where it was told that they are settled, a crash took that. It is told again, or it gives
        the same for good.
        """
        if self._told.get(topic, NOTHING_TOLD) > first:
            self._told[topic] = first
            self.waiting[topic] = None

    def untold(self) -> tuple[Settled, ...]:
        """What the server has not been told is settled: TOLD_MAX of it, where it is more."""
        return tuple(islice(self._all_untold(), TOLD_MAX)) if self.waiting else ()

    def _all_untold(self) -> Iterable[Settled]:
        for topic in self.waiting:
            cursor = self._cursors.get(topic)
            if cursor is not None and cursor.next > self._told.get(topic, NOTHING_TOLD):
                yield Settled(topic, cursor.subscription_id, cursor.next)

    def answered(self, settled: Iterable[Settled]) -> None:
        """The server answered a request that said so."""
        for each in settled:
            cursor = self._cursors.get(each.topic)
            if cursor is not None and cursor.subscription_id == each.subscription_id:
                told = max(self._told.get(each.topic, NOTHING_TOLD), each.cursor)
                self._told[each.topic] = told
                if told >= cursor.next:
                    self.waiting.pop(each.topic, None)

    def moved_there(self, moved: Iterable[Moved]) -> None:
        """The server has these cursors, for it moved them itself."""
        self.answered(Settled(*each) for each in moved)

    def tell_again(self) -> None:
        """The server may have been set back meanwhile: it hears of every cursor once more.

        One beyond its end is refused then, while it is: later the same offset is there again.
        """
        self._told.clear()
        for topic in self._cursors.topics:
            self.waiting[topic] = None
