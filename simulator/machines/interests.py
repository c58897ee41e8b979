"""What one simulated client has asked for, by name and by pattern, as far as it can know.

Laws: what was confirmed is sure, what was asked for and not confirmed may be either way. Which
topics a pattern stands for is said here in other words than the server's, or both could be wrong
together. Only topics of the cast are known: a pattern is as good as their names.
"""

import re
from collections.abc import Iterable


def stands_for(asked: str, topic: str) -> bool:
    """Whether a name, or a pattern, is about a topic."""
    wanted = re.escape(asked).replace(r"\*", "[^.]+").replace(">", ".+")
    return re.fullmatch(wanted, topic) is not None


class Interests:
    """The names and patterns of one client."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = tuple(topics)
        self._asked: dict[str, bool] = {}  # whether it is sure
        # Topics that were left by name, or may have been, though a pattern has them.
        self.left: set[str] = set()
        self._ever_left: set[str] = set()  # at any time
        self.gone: set[str] = set()  # ended for sure, and its state must know which one it was
        self._murky: set[str] = set()  # ended once, and which one it was nobody knows

    @property
    def all(self) -> list[str]:
        """Everything that is so, or may be."""
        return list(self._asked)

    def covered(self, asked: str) -> list[str]:
        """The topics it stands for, made already or not."""
        return [topic for topic in self._topics if stands_for(asked, topic)]

    def begin(self, asked: str) -> None:
        """A subscribe was sent: it may be so from now on."""
        self._asked.setdefault(asked, False)
        self.gone.discard(asked)

    def confirmed(self, asked: str) -> None:
        """It is so."""
        self._asked[asked] = True

    def doubt(self, asked: str) -> None:
        """An unsubscribe was sent: it may not be so any more."""
        if asked in self._asked:
            self._asked[asked] = False

    def leave(self, topic: str) -> None:
        """It is left by name, or may be, though a pattern has it."""
        self.left.add(topic)
        self._ever_left.add(topic)

    def doubt_all(self) -> None:
        """The server went back in time: what it was told since is not so any more.

        A topic that was left by name, and asked for again since, may be left there once more.
        """
        self._asked = dict.fromkeys(self._asked, False)
        self.left |= self._ever_left

    def ended(self, asked: str, *, surely: bool) -> None:
        """It is not so any more; `surely`: and its client knows which one it was."""
        self._asked.pop(asked, None)
        if not surely:
            self._murky.add(asked)
        if asked not in self._murky:
            self.gone.add(asked)

    def held(self, topic: str, *, beside: str, surely: bool) -> bool:
        """Whether something else that was asked for stands for the topic: surely, or maybe."""
        return any(
            stands_for(asked, topic) and (sure or not surely)
            for asked, sure in self._asked.items()
            if asked != beside
        )
