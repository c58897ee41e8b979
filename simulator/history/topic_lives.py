"""Topics of a simulated world that are deleted and made anew: each life is a topic of its own.

The checker knows no lives, so each gets a name of its own there (`x.v#7`). Laws: which life a
message or a receipt is of is told by the topic's id, never guessed. A life whose deletion was
asked for may be over at any moment after that: nothing more is sure of it.
"""

from collections.abc import Iterator

import msgspec

from oncemq.audit.facts import Joined, Joining, Leaving, Left
from oncemq.client.values import Receipt


class TopicLives:
    """The lives of every topic that may have several."""

    def __init__(self) -> None:
        self.mortal: set[str] = set()  # topics that may be deleted
        self._lives: dict[str, dict[str, None]] = {}  # of each, as far as anybody saw them
        self._ending: dict[str, int] = {}  # when the deletion of a life was asked for

    def name(self, topic: str, topic_id: int) -> str:
        """The topic for the checker."""
        if topic not in self.mortal:
            return topic
        life = f"{topic}#{topic_id & 0xFFFF_FFFF}"
        self._lives.setdefault(topic, {})[life] = None
        return life

    def of(self, topic: str) -> list[str]:
        """Every life of a topic, the first first; the name itself of one that is never deleted."""
        if topic not in self.mortal:
            return [topic]
        return list(self._lives.get(topic, {}))

    def end(self, life: str, moment: int) -> None:
        """Somebody asked to delete it."""
        self._ending.setdefault(life, moment)

    def is_over(self, topic: str, receipt: Receipt) -> bool:
        """Whether a receipt is of a life that is over: its place is not known any more."""
        return topic in self.mortal and receipt.duplicate and receipt.offset is None

    def was_mortal(self, topic: str) -> bool:
        """Whether a deletion of the topic was ever asked for."""
        return any(life in self._ending for life in self.of(topic))

    def facts(
        self, seen: Joining | Joined | Leaving | Left
    ) -> Iterator[Joining | Joined | Leaving | Left]:
        """What befell a subscription, once for each life that it may have been on."""
        if seen.topic not in self.mortal:
            yield seen
            return
        for life in self.of(seen.topic):
            over = self._ending.get(life, seen.moment) < seen.moment
            if not (over and isinstance(seen, Joined)):
                yield msgspec.structs.replace(seen, topic=life)
