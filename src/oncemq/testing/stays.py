"""The lives of subscriptions, as far as their applications can know them: one `Stay` each.

A stay begins with a subscribe and ends with an unsubscribe; either may have timed out, then nobody
knows. Law: what is unsure is allowed to be either way, what is sure is held against the messages.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from oncemq.testing.history import Given, Joined, Joining, Leaving, Left, Seen, Tainted


@dataclass(slots=True)
class Stay:
    """One subscription of one client."""

    client: str
    topic: str
    joining: int  # it began after this
    joined: int | None = None  # and before this; None: nobody knows whether it ever did
    earliest: bool = False  # it may have asked for old messages
    continues: bool = False  # it may be the one before, whose end was never confirmed
    tainted: bool = False  # its client lost its cursors
    leaving: int | None = None  # it may have ended after this
    left: int | None = None  # and surely had by then
    given: list[Given] = field(default_factory=list[Given])

    @property
    def is_sure(self) -> bool:
        """Whether it is surely there, as of the last event."""
        return self.joined is not None and self.leaving is None

    def spans(self, begin: int, end: int) -> bool:
        """Whether it was surely there from one moment to the other."""
        if self.joined is None or self.joined > begin:
            return False
        return self.leaving is None or self.leaving > end


class Stays:
    """Every stay of a history, in order."""

    def __init__(self, put_before: Callable[[Given, int], bool]) -> None:
        self._put_before = put_before  # whether a message was surely stored before a moment
        self.of: dict[tuple[str, str], list[Stay]] = {}
        self.strays: list[tuple[Given, str]] = []  # handed out without a subscription

    def see(self, seen: Seen) -> None:
        """The next event."""
        match seen:
            case Joining():
                self._joining(seen)
            case Joined():
                self._joined(seen)
            case Leaving():
                if (stay := self._current(seen.client, seen.topic)) is not None:
                    stay.leaving = stay.leaving or seen.moment
            case Left():
                if (stay := self._current(seen.client, seen.topic)) is not None:
                    stay.leaving = stay.leaving or seen.moment
                    stay.left = seen.moment
            case Given():
                self._given(seen)
            case Tainted():
                self._tainted(seen)
            case _:
                pass

    def _list(self, client: str, topic: str) -> list[Stay]:
        return self.of.setdefault((client, topic), [])

    def _current(self, client: str, topic: str) -> Stay | None:
        """The newest stay, if it may still be there."""
        stays = self._list(client, topic)
        return stays[-1] if stays and stays[-1].left is None else None

    def _joining(self, seen: Joining) -> None:
        stay = self._current(seen.client, seen.topic)
        if stay is None:
            stay = Stay(seen.client, seen.topic, seen.moment)
            self._list(seen.client, seen.topic).append(stay)
        elif stay.is_sure:
            return
        elif stay.leaving is not None:
            stay = self._another(stay, seen.moment)
        stay.earliest = stay.earliest or seen.earliest

    def _another(self, before: Stay, moment: int) -> Stay:
        """Its end was not confirmed: what comes now may be the same one, or another."""
        after = Stay(before.client, before.topic, moment, continues=True)
        after.earliest, after.tainted = before.earliest, before.tainted
        self._list(before.client, before.topic).append(after)
        return after

    def _joined(self, seen: Joined) -> None:
        stay = self._current(seen.client, seen.topic)
        assert stay is not None, "a subscribe begins before it is confirmed"
        stay.joined = stay.joined or seen.moment

    def _given(self, given: Given) -> None:
        stays = self._list(given.client, given.topic)
        if not stays:
            self.strays.append((given, "it never subscribed"))
        elif (stay := self._stay_of(given, stays)) is not None:
            stay.given.append(given)
        else:
            self.strays.append((given, "asked for after its unsubscribe was confirmed"))

    def _stay_of(self, given: Given, stays: list[Stay]) -> Stay | None:
        """A get that began before an unsubscribe may still bring what was next then."""
        newest = stays[-1]
        if given.asked < newest.joining and len(stays) > 1:
            before = stays[-2]
            goes_on = bool(before.given) and before.given[-1].offset + 1 == given.offset
            if goes_on or self._put_before(given, newest.joining):
                return before
        return None if newest.left is not None and given.asked > newest.left else newest

    def _tainted(self, seen: Tainted) -> None:
        for (client, _), stays in list(self.of.items()):
            if client == seen.client and stays and stays[-1].left is None:
                after = self._another(stays[-1], stays[-1].joining)
                after.joined, after.leaving = stays[-1].joined, stays[-1].leaving
                after.tainted = True
                stays[-2].leaving = stays[-2].left = seen.moment
