"""The history of a simulation as the checker takes it.

Law: what the applications saw is told as it was, except what a person agreed to lose when the
server went back in time (`lost_future`), and each life of a topic under a name of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from oncemq.audit import facts
from oncemq.audit.facts import Joined, Joining, Leaving, Left, OpenedFact, Tainted
from simulator.history.events import SeenEvents, given_with
from simulator.history.lost_future import LostFuture
from simulator.history.stories import HandedOut, PutStory, name_of
from simulator.history.topic_lives import TopicLives


@dataclass(slots=True)
class History(SeenEvents):
    """Everything that was seen, and what of it the checker is told."""

    lives: TopicLives = field(default_factory=TopicLives)
    back: LostFuture = field(init=False)

    def __post_init__(self) -> None:
        self.back = LostFuture(self)

    def facts(self) -> Iterator[facts.Fact]:
        """All of it, as the checker takes it."""
        restless = self.twins | {one.client for one in self.seen if isinstance(one, Tainted)}
        for put in map(self.back.put, self.puts.values()):
            whose = put.lasting and put.client not in restless
            line = put.client if whose else f"{put.client}, process {put.process}"
            for each in self._in_each_life(put):
                yield each.fact(f"{put.client}, put {put.number}" if put.alone else line)
        # A message of the subscription before may arrive while the next one is under way.
        above = {
            (one.client, one.topic, one.asked): one.above or one.subscription
            for one in filter(self.back.stays, self.seen)
            if isinstance(one, Joined)
        }
        for seen in filter(self.back.stays, self.seen):
            match seen:
                case HandedOut():
                    yield seen.fact()
                case Joining():
                    known = above.get((seen.client, seen.topic, seen.moment), 0)
                    yield from self.lives.facts(msgspec.structs.replace(seen, above=known))
                case Joined() | Leaving() | Left():
                    yield from self.lives.facts(seen)
                case OpenedFact() | Tainted():
                    yield seen
                case _:
                    yield from (each.fact() for each in self.back.together(seen))

    def in_two_lives(self) -> list[str]:
        """Puts that took effect in more than one life of a topic: sent again, they were known."""
        restless = {one.client for one in self.seen if isinstance(one, Tainted)}
        lives: dict[int, set[str]] = {}
        for seen in self.seen:
            for each in given_with(seen):
                topic, mark, _ = each.topic.partition("#")
                number = name_of(each.payload).partition(b".")[0]
                put = self.puts.get(int(number)) if mark and number.isdigit() else None
                if put is not None and put.client not in restless and put.topic == topic:
                    lives.setdefault(put.number, set()).add(each.topic)
        return [
            f"duplicate: put {number} took effect in {' and '.join(sorted(found))}"
            for number, found in lives.items()
            if len(found) > 1
        ]

    def _in_each_life(self, put: PutStory) -> Iterator[PutStory]:
        """A put to a topic that was deleted meanwhile may be in one life of it, or in several."""
        if put.topic not in self.lives.mortal:
            yield put
            return
        for life in self.lives.of(put.topic):
            if life == put.life:
                yield replace(put, topic=life)
                continue
            recorded = put.recorded and not put.life and not self.lives.was_mortal(put.topic)
            yield replace(
                put, topic=life, recorded=recorded, stored=None, first_offset=None, answered=None
            )
