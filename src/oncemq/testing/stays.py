"""The lives of subscriptions, as far as their applications can know them: one `Stay` each.

A stay begins with a subscribe and ends with an unsubscribe; either may have timed out, then nobody
knows. Law: what is unsure is allowed to be either way, what is sure is held against the messages.
"""

from dataclasses import dataclass, field

from oncemq.testing.history import Given, Joined, Joining, Leaving, Left, Seen, Tainted


@dataclass(slots=True)
class Stay:
    """One subscription of one client."""

    client: str
    topic: str
    joining: int  # it began after this
    joined: int | None = None  # and before this; None: nobody knows whether it ever did
    subscription: int | None = None  # which one it is, once a reply or a message said so
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

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], list[Stay]] = {}
        self.strays: list[str] = []  # what fits no subscription

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
        stays = self._list(seen.client, seen.topic)
        stay = self._current(seen.client, seen.topic)
        assert stay is not None, "a subscribe begins before it is confirmed"
        if stay.subscription not in (None, seen.subscription):
            self.strays.append(f"{seen.topic}/{seen.client}: its subscription was lost")
        before = stays[-2] if len(stays) > 1 else None
        if stay.continues and before is not None and before.subscription == seen.subscription:
            stays.pop()  # it had never ended
            before.leaving = before.left = None
            before.given += stay.given
            before.tainted = before.tainted or stay.tainted
            stay = before
        stay.subscription = seen.subscription
        stay.joined = stay.joined or seen.moment

    def _given(self, given: Given) -> None:
        stays = self._list(given.client, given.topic)
        where = f"{given.topic}@{given.offset} to {given.client}"
        named = [stay for stay in stays if stay.subscription == given.subscription]
        nameless = [stay for stay in stays if stay.subscription is None]
        if not named and not nameless:
            self.strays.append(f"{where}, though it has no such subscription")
            return
        stay = (named or nameless)[-1]
        stay.subscription = given.subscription
        stay.given.append(given)
        if stay.left is not None and given.asked > stay.left:
            self.strays.append(f"{where}, asked for after its unsubscribe was confirmed")

    def _tainted(self, seen: Tainted) -> None:
        for (client, _), stays in list(self.of.items()):
            if client == seen.client and stays and stays[-1].left is None:
                after = self._another(stays[-1], stays[-1].joining)
                before = stays[-2]
                after.joined, after.leaving = before.joined, before.leaving
                after.subscription, after.tainted = before.subscription, True
                before.leaving = before.left = seen.moment
