"""Everything that the applications of a simulation saw, in the order they saw it.

`moment` counts events, so of two the earlier is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from oncemq.audit.facts import Joined, Joining, Leaving, Left, OpenedFact, Tainted
from oncemq.errors import OnceMQError
from simulator.history.stories import HandedOut, PutStory, Seen, Several


@dataclass(slots=True)
class SeenEvents:
    """Puts, and what was seen besides."""

    puts: dict[int, PutStory] = field(default_factory=dict[int, PutStory])
    seen: list[Seen] = field(default_factory=list[Seen])
    troubles: list[str] = field(default_factory=list[str])  # what must not happen, and did
    twins: set[str] = field(default_factory=set[str])  # clients that ran twice at a time
    _moment: int = 0

    def moment(self) -> int:
        """A point in the order of events, after all given before."""
        self._moment += 1
        return self._moment

    def several(self) -> Iterator[Several]:
        """Everything that was, or may have been, handed out together."""
        for seen in self.seen:
            if isinstance(seen, Several):
                yield seen

    def given(self) -> Iterator[HandedOut]:
        """Every message that was handed out, in time to come left or not."""
        for seen in self.seen:
            yield from given_with(seen)

    def trouble(self, what: str) -> None:
        """Something happened that no fault excuses."""
        self.troubles.append(what)

    def error(self, where: str, error: BaseException) -> None:
        """Code of ours raised what it must not."""
        name = type(error).__name__
        detail = error.detail if isinstance(error, OnceMQError) else str(error)
        self.trouble(f"broke: {where} raised {name}: {detail}")


def given_with(seen: Seen) -> list[HandedOut]:
    """The messages that were handed out with an event."""
    match seen:
        case HandedOut():
            return [seen]
        case Joining() | Joined() | Leaving() | Left() | OpenedFact() | Tainted():
            return []
        case _:
            return seen.given
