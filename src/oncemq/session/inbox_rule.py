"""The rule of the inbox: the user's own database says where a subscription stands.

Laws: nothing below the database's cursor is handed out, nothing at or above it is passed over
(G5), but for holes that the server names; messages are handed out only from exactly where it
stands; once anything went wrong with a subscription it is asked again before anything else is done
with that one. Another one's rows may be in another database, which this one knows nothing of.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncemq.protocol.names import Generation, Micros, Offset, SubscriptionId
from oncemq.protocol.patterns import is_pattern, matches
from oncemq.session.prefetched import is_single

NO_SUBSCRIPTION = SubscriptionId(0)  # of messages that were read by offset


Moments = Mapping[str, Micros]  # of the last message of each topic
NO_MOMENTS: Moments = {}
Over = Callable[[str, Offset], Offset]  # topic, offset: where it goes on, behind a known hole


class ConsumedSpan(NamedTuple):
    """Consecutive messages of one subscription: from `first` up to before `end`."""

    topic: str
    subscription_id: SubscriptionId
    first: Offset
    end: Offset


class Move(NamedTuple):
    """A cursor of the database, from where it must stand to where it will."""

    topic: str
    subscription_id: SubscriptionId
    fence: int
    before: Offset
    after: Offset
    newest: str = ""  # the last message before it, as a note; none: the table has no room for one


class InboxNote(NamedTuple):
    """The last message whose effect a database has: by its moment it is told from others.

    Another copy of the server's data may have another message at the same offset.
    """

    offset: Offset
    moment: Micros

    @classmethod
    def parse(cls, text: str | None) -> "InboxNote | None":
        """The note that a row has, if it has any."""
        offset, _, moment = (text or "").partition("@")
        if not (offset.isdecimal() and moment.isdecimal()):
            return None
        return cls(Offset(int(offset)), Micros(int(moment)))

    def __str__(self) -> str:
        return f"{self.offset}@{self.moment}"


@dataclass(slots=True)
class Mark:
    """What the database says of one subscription; `fence` is ours, or was when we took it."""

    subscription_id: SubscriptionId
    fence: int
    cursor: Offset
    reached: Offset  # by the client, with or without this database
    notes: bool = False  # the table has room for a note of the last message


class Inbox:
    """Every subscription that one client has taken over in its database."""

    def __init__(self, over: Over = lambda _, offset: offset) -> None:
        self._over = over
        self.marks: dict[str, Mark] = {}
        self._doubted: set[str] = set()  # topics whose database may stand elsewhere
        self._surveyed = False  # all subscriptions, for who asks for any
        self._generation = Generation(1)  # of the server's log, that the marks are of

    def knows(self, topic: str) -> bool:
        """Whether messages of this topic (or, empty or a pattern, of any) can be judged."""
        return topic in self.marks if is_single(topic) else self._surveyed

    def began(self, generation: Generation) -> None:
        """What is known is of this generation of the server's log, or is not known any more."""
        if generation != self._generation:
            self._generation = generation
            self.forget(list(self.marks))

    def is_of(self, generation: Generation) -> bool:
        """Whether what is known is of this generation; another may have begun during a wait."""
        return generation == self._generation

    def surveyed(self) -> None:
        """Every subscription there is has been taken over."""
        self._surveyed = True

    def took(self, topic: str, mark: Mark) -> None:
        """The database's word on a subscription, now that no older process may move it."""
        self.marks[topic] = mark

    def doubt(self, topics: Iterable[str]) -> None:
        """A commit of these is under way, failed, or seemed to: the database is to be asked."""
        self._doubted.update(topics)

    def doubted(self, topic: str) -> dict[str, Mark]:
        """What is to be asked of the database before messages of this topic are handed out."""
        topics = sorted(self._doubted & self.marks.keys())
        return {each: self.marks[each] for each in topics if _is_meant(topic, each)}

    def is_sure(self, topics: Iterable[str]) -> None:
        """The database has said where these stand."""
        self._doubted.difference_update(topics)

    def stands(self, topic: str, cursor: Offset) -> None:
        """Asked again, the database says this; the fence is still ours."""
        mark = self.marks[topic]
        mark.cursor = cursor
        mark.reached = max(mark.reached, cursor)

    def behind(self, topic: str) -> tuple[str, Mark] | None:
        """A subscription whose database lacks messages that the client has passed."""
        for each in [topic] if is_single(topic) else self.marks:
            mark = self.marks.get(each) if _is_meant(topic, each) else None
            if mark is not None and self._over(each, mark.cursor) < mark.reached:
                return each, mark
        return None

    def misfits(self, spans: Sequence[ConsumedSpan]) -> list[str]:
        """Topics whose messages do not begin where the database stands, or are another's."""
        return [span.topic for span in spans if not self._fits(span)]

    def forget(self, topics: Sequence[str]) -> None:
        """What is known of these is not so (any more)."""
        for topic in topics:
            self.marks.pop(topic, None)
        self.is_sure(topics)  # or will be: its row is read when it is taken over
        self._surveyed = False

    def moves(self, spans: Sequence[ConsumedSpan], moments: Moments = NO_MOMENTS) -> list[Move]:
        """What the commit must change, in an order that all processes share.

        `moments`: when the server stored the last message of each span.
        """
        moves: list[Move] = []
        for span in sorted(spans):
            mark = self.marks[span.topic]
            move = Move(span.topic, mark.subscription_id, mark.fence, mark.cursor, span.end)
            if mark.notes and span.topic in moments:
                note = InboxNote(Offset(span.end - 1), moments[span.topic])
                move = move._replace(newest=str(note))
            moves.append(move)
        return moves

    def committed(self, moves: Sequence[Move]) -> None:
        """The database has it."""
        for move in moves:
            self.stands(move.topic, move.after)

    def _fits(self, span: ConsumedSpan) -> bool:
        mark = self.marks.get(span.topic)
        if mark is None or span.first != self._over(span.topic, mark.cursor):
            return False
        if span.subscription_id == NO_SUBSCRIPTION:
            return span.end <= mark.reached
        return span.subscription_id == mark.subscription_id


def _is_meant(asked: str, topic: str) -> bool:
    """Whether who asks for a topic, for a pattern or (empty) for any, asks for this one."""
    if is_pattern(asked):
        return matches(asked, topic)
    return asked == topic or not is_single(asked)
