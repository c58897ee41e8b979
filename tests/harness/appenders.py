"""Servers that write at the same time: each appends its own words to one key, never blindly.

The key's value is everything that happened, in order: so what a coordinator said became of each
word can be held against what did become of it.
"""

from collections import Counter
from dataclasses import dataclass, field

from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    Coordinator,
    CoordinatorEvent,
    Found,
    Happened,
    Overtaken,
    ReadEntries,
    Snapshot,
    StoreAway,
    StoreBack,
    Transact,
    Unanswered,
)


@dataclass
class Appender:
    """One of them: reads, appends, and reads again when it is told that it was too late."""

    name: str
    key: str
    coordinator: Coordinator
    limit: int = 1_000_000  # words
    outcomes: dict[str, str] = field(default_factory=dict)  # of each word
    picture: dict[str, bytes] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)  # of events
    troubles: list[str] = field(default_factory=list)
    revision: int = 0  # of what was told
    is_over: bool = False
    _tokens: int = 0
    _word: str = ""

    def begin(self) -> None:
        self._ask(ReadEntries((self.key,)))

    def step(self) -> None:
        """Take what happened, and go on."""
        for event in self.coordinator.take():
            self._take(event)

    def _ask(self, request: ReadEntries | Transact) -> None:
        self._tokens += 1
        self.coordinator.ask(request, self._tokens)

    def _take(self, event: CoordinatorEvent) -> None:
        self.counts[type(event).__name__] += 1
        match event:
            case Answered(token, outcome):
                if token != self._tokens:
                    self.troubles.append(f"{self.name}: {token} answered, not {self._tokens}")
                self._answered(outcome)
            case Snapshot(entries, revision):
                self.picture = {key: entry.value for key, entry in entries.items()}
                self._told(revision)
            case Changes(entries, revision):
                for key, entry in entries.items():
                    self.picture.pop(key, None)
                    if entry is not None:
                        self.picture[key] = entry.value
                self._told(revision)
            case StoreAway() | StoreBack():
                pass

    def _told(self, revision: int) -> None:
        if revision < self.revision:
            self.troubles.append(f"{self.name}: told {revision} after {self.revision}")
        self.revision = revision

    def _answered(self, outcome: object) -> None:
        self.counts[type(outcome).__name__] += 1
        match outcome:
            case Found(entries):
                entry = entries.get(self.key)
                self._append(entry.value if entry else b"", entry.revision if entry else 0)
            case Overtaken(entries):
                entry = entries.get(self.key)
                value = entry.value if entry else b""
                if value.endswith(f"{self._word} ".encode()):
                    self.troubles.append(f"{self.name}: {self._word} is there, and was overtaken")
                was_there = f"{self._word} ".encode() in value
                self.outcomes[self._word] = "is in" if was_there else "is not in"
                self._append(value, entry.revision if entry else 0)
            case Happened():
                self.outcomes[self._word] = "is in"
                self._ask(ReadEntries((self.key,)))
            case Unanswered():
                if self._word and self._word not in self.outcomes:
                    self.outcomes[self._word] = "may be in"
                self._ask(ReadEntries((self.key,)))
            case _:
                raise AssertionError(outcome)

    def _append(self, value: bytes, revision: int) -> None:
        if len(self.outcomes) >= self.limit:
            self.is_over = True
            return
        self._word = f"{self.name}{self._tokens}"
        self._ask(Transact({self.key: revision}, {self.key: value + f"{self._word} ".encode()}))


def findings(appenders: list[Appender], value: bytes) -> list[str]:
    """Where what was said differs from what is there in the end."""
    words = Counter(value.decode().split())
    found = [trouble for each in appenders for trouble in each.troubles]
    found += [f"{word} happened {times} times" for word, times in words.items() if times > 1]
    for appender in appenders:
        for word, said in appender.outcomes.items():
            if said != "may be in" and (word in words) != (said == "is in"):
                found.append(f"{word} {said}, it was said")
        if appender.picture.get(appender.key, b"") != value:
            found.append(f"{appender.name} sees something else")
    return found
