"""The audit: facts about messages in, findings out. Pure, one pass, linear time.

Facts are values. `Held` says what a topic must hold, `Stored` what is in its log, `Put` what a
publisher was promised, `Applied` what took effect at a subscriber, in the order it did. The
checks are nouns with one question each; a new question is a new noun and a line in `Audit.see`.

Laws: the same facts give the same findings; memory grows with what is wrong and with the number
of producers, not with the number of messages (but promises and digests are remembered, where
they are given); each finding is counted, and the first FINDINGS_KEPT of a kind are told.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import msgspec

from oncemq.core.names import Micros, Offset, Sequence

FINDINGS_KEPT = 20  # of each kind: who has ten million has one cause
FORGOTTEN_AFTER = Micros(86_400_000_000)  # a guest may count from 1 again a day after its last word

# kind: the promise it breaks, and what it means
KINDS: dict[str, tuple[str, str]] = {
    "gap": ("G3", "an offset that should be stored is not"),
    "repeated_offset": ("G3", "the log has an offset twice, or steps back"),
    "lost_sequence": ("G2", "a producer's number is missing"),
    "repeated_sequence": ("G2", "a producer's number was stored twice"),
    "time_back": ("G3", "a message is older than the one before it"),
    "unkept": ("G1", "a put was acknowledged, and its message is not there"),
    "missing": ("G4", "a stored message took no effect"),
    "duplicate": ("G5", "a message took effect twice"),
    "out_of_order": ("G4", "a message took effect after a later one"),
    "phantom": ("G3", "something took effect that was never stored"),
    "corrupt": ("G9", "stored bytes do not match their checksum"),
    "changed": ("G3", "a payload is not the one that was put"),
}


class Held(msgspec.Struct, frozen=True):
    """A topic holds the offsets from `low` up to, not including, `end`. Comes before the rest."""

    topic: str
    low: Offset
    end: Offset


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A message in the log, in the log's order."""

    topic: str
    offset: Offset
    producer: str
    sequence: Sequence
    timestamp: Micros
    digest: bytes = b""  # of the payload; empty: not looked at


class Skipped(msgspec.Struct, frozen=True):
    """The walk went on at `until`: the rest was let go meanwhile, or (with `damage`) is broken."""

    topic: str
    until: Offset
    damage: str = ""


class Put(msgspec.Struct, frozen=True, gc=False):
    """A publisher was told that its message is stored there."""

    topic: str
    offset: Offset
    digest: bytes = b""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """A message took effect, in the order of the subscriber's own journal."""

    journal: str
    topic: str
    offset: Offset
    digest: bytes = b""


Fact = Held | Stored | Skipped | Put | Applied


class Finding(msgspec.Struct, frozen=True):
    """One broken promise. `count` offsets from `offset` on are concerned."""

    kind: str
    topic: str
    offset: Offset
    detail: str
    count: int = 1

    @property
    def promise(self) -> str:
        """The number of the guarantee."""
        return KINDS[self.kind][0]


class Findings:
    """Every finding is counted; the first of each kind are kept word for word."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def add(self, kind: str, topic: str, offset: int, detail: str, count: int = 1) -> None:
        """Something is wrong."""
        assert kind in KINDS
        self.counts[kind] = self.counts.get(kind, 0) + count
        told = self._told.get(kind, 0)
        if told < FINDINGS_KEPT:
            self._told[kind] = told + 1
            self.kept.append(Finding(kind, topic, Offset(offset), detail, count))


# ------------------------------------------------------------------ one noun, one question


@dataclass(slots=True)
class Numbers:
    """Are a producer's numbers on a topic 1, 2, 3 …, as far as the log still goes back?"""

    last: Sequence
    seen: Micros

    def follow(self, stored: Stored, findings: Findings) -> None:
        """The producer's next message in the log."""
        expected = self.last + 1
        if stored.sequence != expected and not self._begins_anew(stored):
            name = f"{stored.producer[:8]}#{stored.sequence}"
            if stored.sequence > expected:
                kind, lost = "lost_sequence", stored.sequence - expected
                detail = f"{name} follows #{self.last}"
            else:
                kind, lost = "repeated_sequence", 1
                detail = f"{name} comes after #{self.last}"
            findings.add(kind, stored.topic, stored.offset, detail, lost)
        self.last = stored.sequence
        self.seen = stored.timestamp

    def _begins_anew(self, stored: Stored) -> bool:
        return stored.sequence == 1 and stored.timestamp - self.seen >= FORGOTTEN_AFTER


class Extent:
    """Which offsets were seen, as ranges: one for a run without gap, however long."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int) -> bool:
        """Note an offset; False when it was seen before."""
        starts, ends = self._starts, self._ends
        if ends and offset == ends[-1]:
            ends[-1] += 1
            return True
        place = bisect_right(starts, offset)
        if place and offset < ends[place - 1]:
            return False
        before = bool(place) and ends[place - 1] == offset
        after = place < len(starts) and starts[place] == offset + 1
        if before and after:
            ends[place - 1] = ends.pop(place)
            del starts[place]
        elif before:
            ends[place - 1] += 1
        elif after:
            starts[place] = offset
        else:
            starts.insert(place, offset)
            ends.insert(place, offset + 1)
        return True

    def unseen(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges between `start` and `end` that were not seen."""
        for seen, until in zip(self._starts, self._ends, strict=True):
            if start < min(seen, end):
                yield start, min(seen, end)
            start = max(start, until)
        if start < end:
            yield start, end


class TopicLog:
    """Is the log of one topic whole, in order, and what the publishers were promised?"""

    def __init__(self, held: Held, findings: Findings) -> None:
        self.held = held
        self.messages = 0
        self._findings = findings
        self._next = held.low
        self._time = Micros(0)
        self._numbers: dict[str, Numbers] = {}
        self._producers: set[str] = set()
        self._promised: dict[int, bytes] = {}
        self.digests: dict[int, bytes] = {}

    @property
    def producers(self) -> int:
        """How many producers have messages in it."""
        return len(self._producers)

    def stored(self, stored: Stored) -> None:
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
            self._numbers[stored.producer] = Numbers(stored.sequence, stored.timestamp)
            self._producers.add(stored.producer)
        else:
            numbers.follow(stored, findings)
        if stored.digest:
            self.digests[offset] = stored.digest
        promised = self._promised.pop(offset, None)
        if promised and stored.digest and promised != stored.digest:
            findings.add("changed", topic, offset, "the log holds other bytes than were put")

    def skipped(self, skipped: Skipped) -> None:
        """The walk goes on further up: whose numbers were in between is not known."""
        count = skipped.until - self._next
        if skipped.damage:
            self._findings.add("corrupt", skipped.topic, self._next, skipped.damage, count)
        for offset in [each for each in self._promised if each < skipped.until]:
            del self._promised[offset]
        self._next = skipped.until
        self._numbers.clear()

    def put(self, put: Put) -> None:
        """A promise; what lies below `low` was kept and let go."""
        if put.offset >= self.held.low:
            self._promised[put.offset] = put.digest

    def finish(self) -> None:
        """The walk is over."""
        held = self.held
        if self._next < held.end:
            self._gap(self._next, held.end)
        for offset in sorted(self._promised):
            self._findings.add("unkept", held.topic, offset, "acknowledged, but not in the log")

    def _misplaced(self, topic: str, offset: Offset) -> None:
        if offset > self._next:
            self._gap(self._next, offset)
        else:
            detail = f"comes after {topic}@{self._next - 1}"
            self._findings.add("repeated_offset", topic, offset, detail)

    def _gap(self, start: int, end: int) -> None:
        detail = f"nothing is stored from {start} up to {end}"
        self._findings.add("gap", self.held.topic, start, detail, end - start)


class TopicEffects:
    """Did each message of one topic take effect once, in order, in one journal?

    `start` and `end` bound what must be there: where the subscription began, how far it is. What
    lies outside is not missed; once and in order holds for it too.
    """

    def __init__(
        self, journal: str, log: TopicLog, findings: Findings, *, start: int, end: int
    ) -> None:
        self.effects = 0
        self.uncompared = 0  # of messages the topic no longer holds
        self.journal = journal
        self._log = log
        self._findings = findings
        self._start = start
        self._end = end
        self._extent = Extent()
        self._last = -1

    def applied(self, applied: Applied) -> None:
        """The next effect."""
        self.effects += 1
        held, offset = self._log.held, applied.offset
        if not 0 <= offset < held.end:
            detail = f"'{held.topic}' ends at {held.end}"
            self._findings.add("phantom", held.topic, offset, detail)
            return
        self.uncompared += offset < held.low
        if not self._extent.add(offset):
            detail = f"took effect again, after {held.topic}@{self._last}"
            self._findings.add("duplicate", held.topic, offset, detail)
        elif offset < self._last:
            detail = f"took effect after {held.topic}@{self._last}"
            self._findings.add("out_of_order", held.topic, offset, detail)
        self._last = max(self._last, offset)
        stored = self._log.digests.get(offset)
        if applied.digest and stored and applied.digest != stored:
            detail = "took effect with other bytes than the log holds"
            self._findings.add("changed", held.topic, offset, detail)

    def finish(self) -> None:
        """Everything that took effect was told."""
        for start, end in self._extent.unseen(self._start, self._end):
            where = "at the end" if end == self._end else "in the middle"
            where = "at the start" if start == self._start and end < self._end else where
            detail = f"{start} up to {end} took no effect ({where})"
            self._findings.add("missing", self._log.held.topic, start, detail, end - start)


# ------------------------------------------------------------------ all of it


class Audit:
    """One audit: `see` every fact, then `finish`."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.logs: dict[str, TopicLog] = {}
        self.effects: dict[tuple[str, str], TopicEffects] = {}

    def see(self, fact: Fact) -> None:
        """One fact; a topic's `Held` before what is said of it, its `Stored` before `Applied`."""
        match fact:
            case Stored():
                self.logs[fact.topic].stored(fact)
            case Applied():
                self._applied(fact)
            case Skipped():
                self.logs[fact.topic].skipped(fact)
            case Put():
                log = self.logs.get(fact.topic)
                if log is None:
                    self.findings.add("unkept", fact.topic, fact.offset, "there is no such topic")
                else:
                    log.put(fact)
            case Held():
                self.logs[fact.topic] = TopicLog(fact, self.findings)
            case _:
                assert_never(fact)

    def expect(
        self, journal: str, topic: str, *, start: int | None = None, end: int | None = None
    ) -> None:
        """The journal must have every message of the topic, even if it mentions none."""
        log = self.logs[topic]
        low = log.held.low if start is None else max(start, log.held.low)
        high = log.held.end if end is None else min(end, log.held.end)
        self.effects[journal, topic] = TopicEffects(
            journal, log, self.findings, start=low, end=high
        )

    def finish(self) -> Findings:
        """No more facts: what is missing is missing."""
        for log in self.logs.values():
            log.finish()
        for effects in self.effects.values():
            effects.finish()
        return self.findings

    def _applied(self, applied: Applied) -> None:
        if applied.topic not in self.logs:
            detail = f"{applied.journal} has it, but there is no such topic"
            self.findings.add("phantom", applied.topic, applied.offset, detail)
            return
        if (applied.journal, applied.topic) not in self.effects:
            self.expect(applied.journal, applied.topic)
        self.effects[applied.journal, applied.topic].applied(applied)
