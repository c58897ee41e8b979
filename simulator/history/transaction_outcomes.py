"""What applications made many things one with, as the checker must see it in the end.

A transaction is all or nothing: its inputs were given and its outputs stored, or neither. While
its commit is in doubt nobody knows which; so its place among the events is kept, and filled in
when the world has come to rest, from what the server remembers of the owner's number.
"""

from dataclasses import dataclass, field

from oncemq.broker.state.shard import Shard
from oncemq.client.values import Commit
from oncemq.client.verbs.transaction_work import TransactionWork
from oncemq.protocol.names import TopicId
from simulator.history.history import History
from simulator.history.stories import HandedOut, PutStory, name_of

NEVER_HAPPENED = "never committed"

Offsets = dict[str, int | None]  # the first of each topic; None: nobody wanted it


@dataclass(slots=True, eq=False)
class Deal:
    """One transaction, from the moment its commit was asked for."""

    work: TransactionWork
    inputs: list[HandedOut]
    outputs: list[PutStory]
    given: list[HandedOut] = field(
        default_factory=list[HandedOut]
    )  # the inputs, once it has happened
    is_told: bool = False  # somebody knows that it has happened

    def learn(self, moment: int) -> None:
        """Its client may know by now, whatever its application was told."""
        if self.work.result is not None and not self.is_told:
            self.told(offsets_of(self.work.result), moment)

    def told(self, offsets: Offsets, moment: int) -> None:
        """That it has happened."""
        self.is_told = True
        for story in self.outputs:
            story.answered = moment
        self.happened(offsets)

    def happened(self, offsets: Offsets) -> None:
        """All of it took effect."""
        self.given = self.inputs
        for story in self.outputs:
            if story.topic in offsets:
                story.first_offset = offsets[story.topic]
                story.stored = story.first_offset is not None

    def never(self) -> None:
        """Nothing of it took effect, nor will."""
        for story in self.outputs:
            story.refused = story.refused or NEVER_HAPPENED


@dataclass(slots=True, eq=False)
class CommitAttempt:
    """Stages put and a commit asked for under an owner's number: one of several attempts, maybe."""

    owner: str
    number: int
    story: PutStory


@dataclass(slots=True)
class Dealings:
    """All transactions, attempts and keyed puts of a world."""

    deals: list[Deal] = field(default_factory=list[Deal])
    attempts: list[CommitAttempt] = field(default_factory=list[CommitAttempt])

    def settle(self, shard: Shard | None, history: History) -> None:
        """The world is at rest: what became of those that are in doubt?"""
        for deal in self.deals:
            deal.learn(history.moment())
            if deal.is_told:
                pass
            elif deal.work.in_doubt is None:
                deal.never()
            elif shard is not None:
                self._look_up(deal, shard, history)
            missing = [each.topic for each in deal.outputs if deal.given and each.stored is None]
            if missing:
                history.trouble(f"torn: a commit has happened, and not for {missing}")
        self._judge_attempts(history)

    def _look_up(self, deal: Deal, shard: Shard, history: History) -> None:
        doubt = deal.work.in_doubt
        assert doubt is not None
        entry = shard.owners.entries.get(doubt[0])
        found = [each for each in entry.recent if each.number == doubt[1]] if entry else []
        if not found:
            deal.never()
            return
        names: dict[TopicId, str] = {each.id: each.name for each in shard.topics.values()}
        offsets: Offsets = {
            names[each.topic_id]: None if each.first_offset < 0 else each.first_offset
            for each in found[0].published
        }
        deal.told(offsets, history.moment())

    def _judge_attempts(self, history: History) -> None:
        """Of several attempts under one number, one at most is published."""
        back = history.back
        seen = {
            name_of(each.payload).split(b".")[0] for each in history.given() if back.stays(each)
        }
        published: dict[tuple[str, int], set[int]] = {}
        for attempt in self.attempts:
            story = attempt.story
            stored = story.stored and not back.has_lost(story)
            if stored or b"%d" % story.number in seen:
                published.setdefault((attempt.owner, attempt.number), set()).add(story.number)
        for (owner, number), stories in published.items():
            if len(stories) > 1:
                history.trouble(f"doubled: {owner} {number} published {sorted(stories)}")


def offsets_of(commit: Commit) -> Offsets:
    """What its receipts say."""
    return {name: each[0].offset for name, each in commit.receipts.items()}
