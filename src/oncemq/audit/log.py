"""Checks one topic in one log: that it is whole, in order, and what the publishers were promised.

Law: memory grows with the number of producers and with what is wrong, not with the number of
messages; promises and digests are remembered where they are given.
"""

from dataclasses import dataclass

from oncemq.audit.facts import Held, Skipped, StoredFact
from oncemq.audit.findings import Findings
from oncemq.protocol.names import Micros, Offset, Sequence

FORGOTTEN_AFTER = Micros(86_400_000_000)  # a guest may count from 1 again a day after its last word

Print = tuple[str, int, bytes]  # producer, sequence, digest: what a replica must have, too


@dataclass(slots=True)
class SequenceCheck:
    """Are a producer's numbers on a topic 1, 2, 3 …, as far as the log still goes back?"""

    last: Sequence
    seen: Micros

    def follow(self, stored: StoredFact, findings: Findings) -> None:
        """The producer's next message in the log."""
        expected = self.last + 1
        if stored.sequence != expected and not self._begins_anew(stored):
            name = f"{stored.producer[:8]}#{stored.sequence}"
            if stored.sequence > expected:
                kind, lost = "lost_sequence", stored.sequence - expected
                detail = f"{name} follows #{self.last}"
            else:
                kind, lost = "duplicate", 1
                detail = f"{name} comes after #{self.last}"
            findings.add(kind, stored.topic, stored.offset, detail, lost)
        self.last = stored.sequence
        self.seen = stored.timestamp

    def _begins_anew(self, stored: StoredFact) -> bool:
        return stored.sequence == 1 and stored.timestamp - self.seen >= FORGOTTEN_AFTER


class TopicLog:
    """The walk through one topic."""

    def __init__(self, held: Held, findings: Findings) -> None:
        self.held = held
        self.messages = 0
        self.digests: dict[int, bytes] = {}
        self.prints: dict[int, Print] = {}  # only where there are replicas
        self._findings = findings
        self._next = held.low
        self._time = Micros(0)
        self._numbers: dict[str, SequenceCheck] = {}
        self._producers: set[str] = set()
        self._promised: dict[int, bytes] = {}
        self.known_from = held.low  # everything from here on was walked
        self.lost: list[tuple[Offset, Offset]] = []  # holes that the server names

    @property
    def producers(self) -> int:
        """How many producers have messages in it."""
        return len(self._producers)

    def stored(self, stored: StoredFact) -> None:
        """The next message of the walk."""
        self.messages += 1
        findings, topic, offset = self._findings, stored.topic, stored.offset
        if offset != self._next:
            self._misplaced(topic, offset)
        self._next = Offset(max(self._next, offset + 1))
        if stored.timestamp < self._time:
            back = self._time - stored.timestamp
            findings.add("time_back", topic, offset, f"{back} µs before the message before it")
        self._time = stored.timestamp
        numbers = self._numbers.get(stored.producer)
        if numbers is None:  # where the log begins, its producers may be anywhere
            self._numbers[stored.producer] = SequenceCheck(stored.sequence, stored.timestamp)
            self._producers.add(stored.producer)
        else:
            numbers.follow(stored, findings)
        if stored.digest:
            self.digests[offset] = stored.digest
        if stored.replica:
            self.prints[offset] = stored.producer, stored.sequence, stored.digest
        promised = self._promised.pop(offset, None)
        if promised and stored.digest and promised != stored.digest:
            findings.add("corrupt", topic, offset, "the log holds other bytes than were put")

    def compare(self, stored: StoredFact) -> None:
        """A message of another replica: this one must not have another in its place."""
        mine = self.prints.get(stored.offset)
        theirs = stored.producer, stored.sequence, stored.digest
        if mine is not None and mine != theirs:
            detail = (
                f"{mine[0][:8]}#{mine[1]} on {self.held.replica}, "
                f"{stored.producer[:8]}#{stored.sequence} on {stored.replica}"
            )
            self._findings.add("diverged", stored.topic, stored.offset, detail)

    def skipped(self, skipped: Skipped) -> None:
        """The walk goes on further up: whose numbers were in between is not known."""
        count = skipped.until - self._next
        if skipped.accepted:
            self.lost.append((self._next, skipped.until))
        if skipped.damage:
            self._findings.add("corrupt", skipped.topic, self._next, skipped.damage, count)
        for offset in [each for each in self._promised if each < skipped.until]:
            del self._promised[offset]
        self._next = self.known_from = skipped.until
        self._numbers.clear()

    def promised(self, offset: int, digest: bytes) -> None:
        """A receipt for a message nobody named; what lies below `low` was kept and let go."""
        if offset >= self.held.low:
            self._promised[offset] = digest

    def finish(self) -> None:
        """The walk is over."""
        held = self.held
        if self._next < held.end:
            self._gap(self._next, held.end)
        for offset in sorted(self._promised):
            self._findings.add("lost", held.topic, offset, "acknowledged, but not in the log")

    def _misplaced(self, topic: str, offset: Offset) -> None:
        if offset > self._next:
            self._gap(self._next, offset)
        else:
            detail = f"comes after {topic}@{self._next - 1}"
            self._findings.add("duplicate", topic, offset, detail)

    def _gap(self, start: int, end: int) -> None:
        detail = f"nothing is stored from {start} up to {end}"
        self._findings.add("gap", self.held.topic, start, detail, end - start)
