"""The lives of subscriptions, as far as their applications can know them: one `Stay` each.

A stay begins with a subscribe and ends with an unsubscribe; either may have timed out, then nobody
knows. Law: what is unsure is allowed to be either way, what is sure is held against the messages.
A journal whose range is known is one sure stay from its start to its end.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from oncemq.audit.course import Course
from oncemq.audit.facts import NEVER, GivenFact, Joined, Joining, Leaving, Left, Life, Tainted
from oncemq.audit.findings import Findings
from oncemq.broker.state.identities import COUNT_BITS


@dataclass(slots=True)
class Stay:
    """One subscription of one client."""

    client: str
    topic: str
    joining: int = 0  # it began after this
    joined: int | None = None  # and before this; None: nobody knows whether it ever did
    subscription: int | None = None  # which one it is, once a reply or a message said so
    is_guess: bool = False  # no reply said so: a message was taken for one of it
    guessed: int = 0  # when that message came
    above: int = 0  # which ones it cannot be, as long as nothing said which it is
    earliest: bool = False  # it may have asked for old messages
    continues: bool = False  # it may be the one before, whose end was never confirmed
    tainted: bool = False  # its client lost its cursors
    leaving: int | None = None  # it may have ended after this
    left: int | None = None  # and surely had by then
    bounds: tuple[int, int] | None = None  # of a journal: where it begins, how far it must go
    course: Course = field(default_factory=Course)
    uncompared: int = 0  # of a journal: effects of messages the topic no longer holds

    @property
    def is_sure(self) -> bool:
        """Whether it is surely there, as of the last event."""
        return self.joined is not None and self.leaving is None


class SubscribedTimes:
    """Who was surely subscribed to a topic, and when."""

    def __init__(self, stays: Iterable[Stay]) -> None:
        sure = [(stay.joined, stay) for stay in stays if stay.joined is not None]
        sure.sort(key=lambda each: each[0])
        self._joined = [joined for joined, _ in sure]
        self._longest: list[tuple[int, Stay]] = []  # of all that joined until then, the last to go
        for _, stay in sure:
            until = NEVER if stay.leaving is None else stay.leaving
            if self._longest and self._longest[-1][0] >= until:
                until, stay = self._longest[-1]
            self._longest.append((until, stay))

    def during(self, begin: int, end: int) -> Stay | None:
        """One that was there from one moment to the other."""
        joined = bisect_right(self._joined, begin)
        if not joined or self._longest[joined - 1][0] <= min(end, NEVER - 1):
            return None
        return self._longest[joined - 1][1]


class Stays:
    """Every stay of a history, in order."""

    def __init__(self, findings: Findings) -> None:
        self.of: dict[tuple[str, str], list[Stay]] = {}
        self._findings = findings

    def presence(self) -> dict[str, SubscribedTimes]:
        """Of each topic; journals say nothing of when."""
        by_topic: dict[str, list[Stay]] = {}
        for (_, topic), stays in self.of.items():
            by_topic.setdefault(topic, []).extend(stay for stay in stays if stay.bounds is None)
        return {topic: SubscribedTimes(stays) for topic, stays in by_topic.items()}

    def journal(self, client: str, topic: str, start: int, end: int) -> None:
        """A journal that must have every message from `start` up to `end`."""
        self.of[client, topic] = [Stay(client, topic, joined=0, bounds=(start, end))]

    def see(self, life: Life) -> None:
        """The next event of a client."""
        match life:
            case Joining():
                self._joining(life)
            case Joined():
                self._joined(life)
            case Leaving():
                if (stay := self._current(life.client, life.topic)) is not None:
                    stay.leaving = stay.leaving or life.moment
            case Left():
                self._left(life)
            case Tainted():
                self._tainted(life)
            case _:
                pass

    def given(self, given: GivenFact) -> None:
        """A message took effect: it must belong to one of the client's subscriptions."""
        stay = self._stay_of(given)
        if stay is None:
            detail = f"to {given.client}, though it has no such subscription"
            self._findings.add("boundary", given.topic, given.offset, detail)
            return
        if stay.subscription is None:
            stay.subscription, stay.is_guess = given.subscription or None, True
            stay.guessed = given.moment
        stay = self._behind(stay, given)
        if stay.left is not None and given.asked > stay.left:
            detail = f"to {given.client}, asked for after its unsubscribe was confirmed"
            self._findings.add("boundary", given.topic, given.offset, detail)
        before = stay.course.highest
        self._report(stay, stay.course.give(given.offset), given.offset, before)

    def _behind(self, stay: Stay, given: GivenFact) -> Stay:
        """The stay after it, where the number was taken for its own by mistake.

        A get that was asked for while the stay lasted may bring the first message of the next one,
        after the unsubscribe was confirmed. What is asked for later tells the two apart.
        """
        stays = self._list(given.client, given.topic)
        for after in stays[stays.index(stay) + 1 :]:
            if stay.left is None or given.asked <= stay.left:
                break
            if not stay.is_guess or stay.guessed <= stay.left or after.subscription is not None:
                break
            _hand_over(stay, after)
            stay = after
        return stay

    def _report(self, stay: Stay, kind: str, offset: int, before: int) -> None:
        if kind and not stay.tainted:
            again = "again, " if kind == "redelivered" else ""
            detail = f"to {stay.client} {again}after {stay.topic}@{before}"
            self._findings.add(kind, stay.topic, offset, detail)

    def _stay_of(self, given: GivenFact) -> Stay | None:
        stays = self._list(given.client, given.topic)
        named = [stay for stay in stays if stay.subscription == given.subscription]
        nameless = [
            stay
            for stay in stays
            if stay.subscription is None and _may_be(stay, given.subscription)
        ]
        if len(nameless) > 1 and not named and _is_only_begun(nameless[-1], given.asked):
            # It may never begin: what was asked for while the one before was sure is that one's.
            sure = [stay for stay in nameless[:-1] if _was_there(stay, given.asked)]
            nameless = sure or nameless
        if nameless and not named:
            return _make_way(stays, nameless[-1], given.subscription)
        return (named or [None])[-1]

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
        stay.above = stay.above or seen.above
        stay.earliest = stay.earliest or seen.earliest

    def _another(self, before: Stay, moment: int) -> Stay:
        """Its end was not confirmed: what comes now may be the same one, or another."""
        after = Stay(before.client, before.topic, moment, continues=True)
        after.earliest, after.tainted = before.earliest, before.tainted
        self._list(before.client, before.topic).append(after)
        return after

    def _joined(self, seen: Joined) -> None:
        stays = self._list(seen.client, seen.topic)
        assert stays, "a subscribe begins before it is confirmed"
        stay = self._current(seen.client, seen.topic)
        if stay is None or seen.asked < stay.joining:
            return  # the answer is late: another process has ended that one since
        if seen.subscription and stay.subscription not in (None, seen.subscription):
            detail = f"{seen.client}'s subscription was lost"
            self._findings.add("boundary", seen.topic, max(0, stay.course.highest), detail)
        before = stays[-2] if len(stays) > 1 else None
        if stay.continues and before is not None and before.subscription == seen.subscription:
            stays.pop()  # it had never ended
            before.leaving = before.left = None
            before.tainted = before.tainted or stay.tainted
            highest = before.course.highest
            for kind, offset in before.course.join(stay.course):
                self._report(before, kind, offset, highest)
            stay = before
        if seen.subscription:
            stay.subscription, stay.is_guess = seen.subscription, False
        if stay.joined is None:
            stay.joined, stay.above = seen.moment, seen.above

    def _left(self, seen: Left) -> None:
        """The newest that was there when the unsubscribe began is over.

        One that began later is another process's: the server may have heard of it first, and ended
        it as well. Nothing is sure of it.
        """
        for stay in reversed(self._list(seen.client, seen.topic)):
            if stay.left is not None:
                return
            stay.leaving = stay.leaving or seen.moment
            if not seen.asked or stay.joining < seen.asked:
                stay.left = seen.moment
                return

    def _tainted(self, seen: Tainted) -> None:
        for (client, _), stays in list(self.of.items()):
            if client != seen.client:
                continue
            for before in [stay for stay in stays if stay.left is None]:
                after = self._another(before, before.joining)
                after.joined, after.leaving = before.joined, before.leaving
                after.subscription, after.tainted = before.subscription, True
                before.leaving = before.left = seen.moment


def _may_be(stay: Stay, subscription: int) -> bool:
    """Whether it is not too low; numbers of two generations of a log are in no order."""
    is_other = subscription >> COUNT_BITS != stay.above >> COUNT_BITS
    return is_other or subscription >= stay.above


def _make_way(stays: list[Stay], free: Stay, subscription: int) -> Stay:
    """The stay that a message of a subscription not met yet is of; `free` is one without a number.

    Numbers grow. So a lower one that a message was taken to give to a later stay (an old message
    may arrive after that stay began) is the number of the stay before it.
    """
    for after in stays[stays.index(free) + 1 :]:
        number = after.subscription
        if not after.is_guess or number is None or number >= subscription:
            break
        if not _may_be(free, number):
            break
        _hand_over(after, free)
        free = after
    return free


def _hand_over(stay: Stay, other: Stay) -> None:
    """A number that was guessed, and all that came under it, is another stay's."""
    other.subscription, other.is_guess, other.guessed = stay.subscription, True, stay.guessed
    other.course = stay.course
    stay.subscription, stay.is_guess, stay.guessed, stay.course = None, False, 0, Course()


def _is_only_begun(stay: Stay, asked: int) -> bool:
    return stay.joined is None and not stay.above and asked < stay.joining


def _was_there(stay: Stay, moment: int) -> bool:
    return stay.joined is not None and (stay.left is None or moment < stay.left)
