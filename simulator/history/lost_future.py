"""What the checker is told of a server that went back in time: the history that is left.

A person agreed to lose what came after the state that the server went on from. Laws: what that
state has is held against everybody as ever. What came after it, up to the moment when the server
was back, is left out, and nothing else: messages that were given, receipts, subscriptions. Whoever
knows of it is told before it goes on; that is judged here, for no other rule would miss it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from oncemq.audit.facts import Joined, Left, OpenedFact
from oncemq.audit.findings import Finding
from simulator.history.events import SeenEvents
from simulator.history.stories import HandedOut, PutStory, Seen, Several
from simulator.machines.client_machine import ClientMachine

MISSED = ("lost_prefix", "lost_middle", "lost_tail")
AGAIN = ("redelivered", "reordered")


@dataclass(frozen=True, slots=True)
class WentBack:
    """One going back, as the server was when it was up again."""

    since: int  # all that was known before this moment is in the state that it went on from
    moment: int  # it was up again
    generation: int
    ends: dict[str, int]  # of each topic
    subscriptions: dict[tuple[str, str], int]  # by client and topic
    patterns: set[tuple[str, str]]  # by client
    holes: list[tuple[str, int, int]]
    puts: set[int]  # numbers of puts that were stored, and are not any more


class LostFuture:
    """What was lost by going back; nothing, in most worlds.

    Where one backup is restored twice, all since it was made is lost the second time, the branch
    in between as well: the last time counts. Who was let in on that branch cannot say up to where
    it agrees with the next, goes on from the server's cursor, and may get again what it had.
    """

    def __init__(self, history: SeenEvents) -> None:
        self.went_back: WentBack | None = None
        self.clients: list[ClientMachine] = []  # of the world
        self._history = history
        self._let_in: set[str] = set()  # clients that the server has let in since
        self._accepted: set[str] = set()  # those for whom a person accepted the loss since
        self._parted: set[str] = set()  # and those of them that were of another branch

    def begin(self, back: WentBack) -> None:
        """The server is up again, for the first time since."""
        self.went_back = back
        self._let_in.clear()
        self._accepted.clear()
        for client in self.clients:  # before it is let in: it may leave what holds a topic
            client.interests.doubt_all()

    def accept(self, client: str, *, parted: bool) -> None:
        """A person accepted what the server lost of what a client knows."""
        self._accepted.add(client)
        if parted:
            self._parted.add(client)

    # What is left

    def put(self, story: PutStory) -> PutStory:
        """A put as it is in the history that is left."""
        back = self.went_back
        if back is None or (story.answered or 0) > back.moment:
            return story
        # Told since then: who was not there may have left in the future that was lost.
        unwanted = story.stored is False and (story.answered or 0) > back.since
        stored = story.answered is None and story.number in self._gone  # and nobody heard of it
        if not unwanted and not stored and not self.has_lost(story):
            return story
        return replace(
            story,
            recorded=False, answered=None, first_offset=None, stored=None,
            alone=True,  # what the outbox has not noted as sent yet goes again, some time
        )  # fmt: skip

    @cached_property
    def _gone(self) -> set[int]:
        """The numbers of puts that were stored, and are no more; settled ones are on no disk."""
        assert self.went_back is not None
        lost = [each for each in self._history.given() if not self.stays(each)]
        return self.went_back.puts | {int(each.payload.split(b".", 1)[0]) for each in lost}

    def stays(self, seen: Seen) -> bool:
        """Whether what somebody saw is in the history that is left."""
        back = self.went_back
        if back is None:
            return True
        if isinstance(seen, OpenedFact):
            return not self._was_overtaken(seen, back)
        if isinstance(seen, Joined):
            there = back.subscriptions.get((seen.client, seen.topic)) == seen.subscription
            return there or not back.since < seen.moment <= back.moment
        if isinstance(seen, Left):  # it is there again, if it was there then
            return not back.since < seen.moment <= back.moment
        generation = getattr(seen, "generation", back.generation)
        return generation == back.generation or self._is_kept(cast(HandedOut, seen))

    def _was_overtaken(self, opened: OpenedFact, back: WentBack) -> bool:
        """Whether it learned of its epoch when another process had a higher one already.

        All say hello anew then, an older process perhaps after a newer, which is fenced.
        """
        return any(
            isinstance(each, OpenedFact)
            and each.client == opened.client
            and each.client_epoch > opened.client_epoch
            and each.moment < opened.moment
            and (each.moment > back.moment) == (opened.moment > back.moment)
            for each in self._history.seen
        )

    def _is_kept(self, given: HandedOut) -> bool:
        """Whether the message, and the subscription that it was given to, are still there."""
        back = self.went_back
        assert back is not None
        theirs = back.subscriptions.get((given.client, given.topic))
        if given.moment > back.since and theirs != given.subscription:
            return False
        return given.offset < back.ends.get(given.topic, 0)

    def together(self, seen: Several) -> list[HandedOut]:
        """What stays of messages that were handed out in a transaction.

        Where the server lost the transaction, they may be handed out again: only the server keeps
        the cursor of who was cut short after a commit. Then they were not, the first time.
        """
        kept = list(filter(self.stays, seen.given))
        if not any(map(self.has_lost, seen.outputs)):
            return kept
        return [each for each in kept if _place(each) not in self._given_since]

    @cached_property
    def _given_since(self) -> set[tuple[str, str, int, int]]:
        assert self.went_back is not None
        moment = self.went_back.moment
        return {_place(each) for each in self._history.given() if each.moment > moment}

    def excuses(self, finding: Finding) -> bool:
        """Whether what was missed lies in a hole that a person agreed to, or may come again."""
        end = finding.offset + finding.count
        if finding.kind in AGAIN and self._parted and self.went_back:
            return end <= self.went_back.ends.get(finding.topic, 0)
        return finding.kind in MISSED and self.is_hole(finding.topic, finding.offset, end)

    def is_hole(self, topic: str, start: int, end: int) -> bool:
        """Whether a person agreed to lose all of these offsets."""
        holes = self.went_back.holes if self.went_back else ()
        lost = {offset for name, *hole in holes if name == topic for offset in range(*hole)}
        return start < end and lost.issuperset(range(start, end))

    # Who knows of it is told

    def let_in(self, client: ClientMachine, generation: int, process: int) -> None:
        """The server let a client in: for the first time since, it must not know more."""
        back = self.went_back
        if back is None or generation != back.generation:
            return
        self._must_have_its_transactions(process)
        if client.name in self._let_in:
            return
        self._let_in.add(client.name)
        accepted = client.name in self._accepted
        for pattern in sorted(client.interests.gone):
            if not accepted and (client.name, pattern) in back.patterns:
                again = f"which had left {pattern!r}: it is there again"
                self._history.trouble(f"went on: {client.name}, {again}")
        for topic, (subscription, cursor) in client.journal.cursors().items():
            theirs = back.subscriptions.get((client.name, topic))
            if not accepted and theirs == subscription and cursor > back.ends[topic]:
                end = f"{topic} ended @{back.ends[topic]}"
                self._history.trouble(f"went on: {client.name} with cursor @{cursor}, but {end}")

    def _must_have_its_transactions(self, process: int) -> None:
        """What this very process was told that it has committed; the next one cannot know it."""
        for seen in self._history.several():
            for story in seen.outputs:
                if story.process == process and story.answered and self.has_lost(story):
                    gone = f"{story.topic}@{story.first_offset}"
                    self._history.trouble(f"went on: process {process} had committed {gone}")
                    return

    def accepted(self, story: PutStory, client: ClientMachine) -> None:
        """A put has its receipt: its process must not have lost an earlier one, and not know.

        Another process may not have heard of that receipt, and puts it again.
        """
        back, history = self.went_back, self._history
        if back is None or not story.lasting or client.name in self._accepted:
            return
        for other in history.puts.values():
            mine = (other.process, other.topic) == (story.process, story.topic) and other.lasting
            if mine and other.answered and self.has_lost(other):
                gone = f"{other.topic}@{other.first_offset}"
                history.trouble(f"went on: {client.name} put more, and {gone} of its was lost")
                return

    def may_be_overtaken(self, client: str) -> bool:
        """Whether an older process may be let in after a newer: all say hello anew then."""
        return self.went_back is not None and client in self._history.twins

    def has_lost(self, story: PutStory) -> bool:
        """Whether the server has stored it, and does not have it any more."""
        back, first = self.went_back, story.first_offset
        if back is None or first is None or (story.answered or 0) > back.moment:
            return False
        return first + story.count > back.ends.get(story.topic, 0)


def _place(given: HandedOut) -> tuple[str, str, int, int]:
    return given.client, given.topic, given.subscription, given.offset
