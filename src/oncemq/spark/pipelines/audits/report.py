"""What an audit found, and what it looked at."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from oncemq.audit.findings import FINDINGS_KEPT, Finding, Findings
from oncemq.protocol.names import Offset


@dataclass(frozen=True)
class HolderExtent:
    """What a holder (the server, an archive) has of a topic: from `low` up to before `end`."""

    holder: str
    topic: str
    low: int
    end: int
    messages: int = 0
    producers: int = 0


@dataclass(frozen=True)
class JournalCourse:
    """What a journal has of a topic. `freed` are effects of messages that nobody holds any more."""

    journal: str
    topic: str
    effects: int = 0
    freed: int = 0
    first: int = -1
    highest: int = -1


@dataclass(frozen=True)
class JournalBounds:
    """What a journal must have of a topic: all from `start` up to before `end`."""

    journal: str
    topic: str
    start: int
    end: int


@dataclass(frozen=True)
class Report:
    """The outcome. Every finding is counted, and the first of each kind are told."""

    extents: Sequence[HolderExtent]
    journals: Sequence[JournalCourse]
    findings: Findings = field(default_factory=Findings)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings.counts

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each kind that there is."""
        return self.findings.counts


def collected(told: Iterable[Finding], counts: dict[str, int]) -> Findings:
    """Findings of which the first are told and all are counted."""
    findings = Findings()
    findings.counts = {kind: count for kind, count in sorted(counts.items()) if count}
    kept: dict[str, int] = {}
    for each in sorted(told, key=lambda each: (each.kind, each.topic, each.offset)):
        kept[each.kind] = kept.get(each.kind, 0) + 1
        if kept[each.kind] <= FINDINGS_KEPT:
            findings.kept.append(each)
    return findings


def missing_at_the_ends(promised: HolderExtent, found: HolderExtent | None) -> Iterator[Finding]:
    """What a holder says it has before the first and behind the last message that was found."""
    ranges = [(promised.low, promised.end)]
    if found is not None:
        ranges = [(promised.low, found.low), (found.end, promised.end)]
    for low, high in ranges:
        if low < high:
            detail = f"{promised.holder} has nothing from {low} up to {high}"
            yield Finding("gap", promised.topic, Offset(low), detail, high - low)


def missing_between(holders: Iterable[HolderExtent]) -> Iterator[Finding]:
    """What nobody of those who hold a topic has, though some have what is before and after."""
    end: dict[str, int] = {}
    for each in sorted(holders, key=lambda each: each.low):
        if (last := end.get(each.topic, each.low)) < each.low:
            detail = f"nobody has anything from {last} up to {each.low}"
            yield Finding("gap", each.topic, Offset(last), detail, each.low - last)
        end[each.topic] = max(each.end, last)


def missing_around(bounds: JournalBounds, course: JournalCourse) -> Iterator[Finding]:
    """What a journal lacks before its first and behind its last message."""
    ranges = [("lost_tail", max(course.highest + 1, bounds.start), bounds.end)]
    if course.effects:
        ranges.append(("lost_prefix", bounds.start, min(course.first, bounds.end)))
    for kind, low, high in ranges:
        if low < high:
            detail = f"{low} up to {high} took no effect at {bounds.journal}"
            yield Finding(kind, bounds.topic, Offset(low), detail, high - low)
