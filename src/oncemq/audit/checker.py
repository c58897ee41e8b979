"""One history in, findings out: the checker itself.

Facts come in this order: `Held` and `PutFact` first, then the logs (`StoredFact`, `Skipped`), then
what befell the clients in the order it did. What a history does not have is not judged: a log
without journals, journals without a log, receipts alone.

Laws: a finding is never excused by luck: what could have been either way is allowed to be either
way, once; all else is a finding. The same facts give the same findings, in linear time.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import assert_never

from oncemq.audit.facts import (
    NEVER,
    Fact,
    GivenFact,
    Held,
    Joined,
    Joining,
    Leaving,
    Left,
    OpenedFact,
    PutFact,
    SettledFact,
    Skipped,
    StoredFact,
    Tainted,
)
from oncemq.audit.findings import Findings
from oncemq.audit.log import TopicLog
from oncemq.audit.puts import PutBounds, PutHistory
from oncemq.audit.subscribed_times import Stay, Stays
from oncemq.audit.witnesses import LOG, RECEIPT, Places


def check(facts: Iterable[Fact]) -> Findings:
    """What is wrong with a history."""
    audit = Audit()
    for fact in facts:
        audit.see(fact)
    return audit.finish()


class Audit:
    """One audit: `see` every fact, then `finish`."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.logs: dict[str, TopicLog] = {}  # of each topic, the first replica's
        self._replicas: dict[tuple[str, str], TopicLog] = {}
        self._places = Places(self.findings)
        self._puts = PutHistory(self.findings, self._places)
        self._stays = Stays(self.findings)
        self._opened: dict[str, list[OpenedFact]] = {}
        self._tainted: dict[str, list[Tainted]] = {}

    @property
    def journals(self) -> list[Stay]:
        """What was compared with the logs."""
        return [stay for stays in self._stays.of.values() for stay in stays if stay.bounds]

    def see(self, fact: Fact) -> None:
        """The next fact."""
        match fact:
            case StoredFact():
                self._stored(fact)
            case GivenFact():
                self._given(fact)
            case PutFact():
                self._put(fact)
            case Skipped():
                self._replicas[fact.topic, fact.replica].skipped(fact)
            case Held():
                log = self._replicas[fact.topic, fact.replica] = TopicLog(fact, self.findings)
                self.logs.setdefault(fact.topic, log)
            case SettledFact():
                self._settled(fact)
            case OpenedFact():
                self._opened.setdefault(fact.client, []).append(fact)
            case Tainted():
                self._tainted.setdefault(fact.client, []).append(fact)
                self._stays.see(fact)
            case Joined():
                self._must_not_be_fenced(fact, fact.topic, 0, "subscribed")
                self._stays.see(fact)
            case Joining() | Leaving() | Left():
                self._stays.see(fact)
            case _:
                assert_never(fact)

    def expect(
        self, journal: str, topic: str, *, start: int | None = None, end: int | None = None
    ) -> None:
        """The journal must have every message of the topic, even if it mentions none."""
        held = self.logs[topic].held
        low = held.low if start is None else max(start, held.low)
        high = held.end if end is None else min(end, held.end)
        self._stays.journal(journal, topic, low, high)

    def finish(self) -> Findings:
        """No more facts: what is missing is missing."""
        for log in self._replicas.values():
            log.finish()
        self._judge_puts()
        self._puts.judge_order()
        bounds = self._puts.bounds()
        for (_, topic), stays in self._stays.of.items():
            before = -1
            for stay in stays:
                self._judge_stay(stay, before, bounds.get(topic) or PutBounds())
                before = max(before, stay.course.highest)
        return self.findings

    # What is stored, and what was promised

    def _stored(self, stored: StoredFact) -> None:
        log = self._replicas[stored.topic, stored.replica]
        log.stored(stored)
        first = self.logs[stored.topic]
        if first is not log:
            first.compare(stored)
        if stored.message:
            self._identify(stored, LOG)

    def _put(self, put: PutFact) -> None:
        if put.messages:
            self._puts.see(put)
            if put.offset is not None:
                for place, message in enumerate(put.messages):
                    self._places.note(put.topic, put.offset + place, message, RECEIPT)
            return
        log = self.logs.get(put.topic)
        for place in range(put.count if put.offset is not None else 0):
            offset = (put.offset or 0) + place
            if log is None:
                self.findings.add("lost", put.topic, offset, "there is no such topic")
            else:
                log.promised(offset, put.digests[place] if put.digests else b"")

    def _identify(self, seen: StoredFact | GivenFact, who: str) -> None:
        """Somebody has a message with a name: who put it, and is it what was put?"""
        found = self._puts.of(seen.message, seen.topic)
        if found is None:
            detail = f"nobody put {seen.message[:40]!r}, which {who} has"
            self.findings.add("phantom", seen.topic, seen.offset, detail)
            return
        put, place = found
        if seen.digest and put.digests and seen.digest != put.digests[place]:
            detail = f"to {who}: not the bytes that were put"
            self.findings.add("corrupt", seen.topic, seen.offset, detail)
        copied = put.lasting and put.client in self._tainted
        self._puts.must_be_allowed(put, seen.offset, who, copied=copied)
        copies = [each.copied for each in self._tainted.get(put.client, ()) if each.copied]
        again = any(self._puts.is_behind_refused(put, copy) for copy in copies)
        self._places.note(seen.topic, seen.offset, seen.message, who, again=again)

    def _judge_puts(self) -> None:
        presence = self._stays.presence()
        for put in self._puts.all:
            if put.answered < NEVER and not put.why:
                self._must_not_be_fenced(put, put.topic, put.offset or 0, "had a put accepted")
            honest = put.client not in self._tainted
            self._puts.judge(put, self.logs.get(put.topic), presence.get(put.topic), honest=honest)

    # What took effect

    def _given(self, given: GivenFact) -> None:
        log = self.logs.get(given.topic)
        if given.message:
            self._identify(given, given.client)
        elif log is None or not 0 <= given.offset < log.held.end:
            end = f"the topic ends at {log.held.end}" if log else "there is no such topic"
            detail = f"{given.client} has it, but {end}"
            self.findings.add("phantom", given.topic, given.offset, detail)
            return
        elif given.digest and log.digests.get(given.offset, given.digest) != given.digest:
            detail = f"took effect at {given.client} with other bytes than the log holds"
            self.findings.add("corrupt", given.topic, given.offset, detail)
        if not given.moment:
            stay = self._journal_of(given)
            stay.uncompared += log is not None and given.offset < log.held.low
        self._stays.given(given)
        self._must_not_be_fenced(given, given.topic, given.offset, "was given it")

    def _settled(self, settled: SettledFact) -> None:
        stay = self._journal_of(settled)
        assert stay.bounds is not None
        stay.course.settle(stay.bounds[0], settled.cursor)

    def _journal_of(self, fact: GivenFact | SettledFact) -> Stay:
        if (fact.client, fact.topic) not in self._stays.of:
            self.expect(fact.client, fact.topic)
        return self._stays.of[fact.client, fact.topic][-1]

    def _must_not_be_fenced(
        self, seen: GivenFact | Joined | PutFact, topic: str, offset: int, what: str
    ) -> None:
        """What a process begins after a newer one got its epoch must not succeed.

        Of what it does in a database, where a row is the fence: what it took over after that.
        """
        opened = self._opened.get(seen.client)
        if not opened:
            return
        begun = seen.begun if isinstance(seen, PutFact) else seen.asked
        if isinstance(seen, GivenFact) and seen.allowed:
            begun = seen.allowed
        before = bisect_left(opened, begun, key=lambda each: each.moment)
        if before and opened[before - 1].process > seen.process:
            newer = opened[before - 1].process
            detail = f"{seen.client}'s process {seen.process} {what} after {newer} began"
            self.findings.add("not_fenced", topic, offset, detail)

    # Subscriptions

    def _judge_stay(self, stay: Stay, before: int, bounds: PutBounds) -> None:
        """Nothing from before it began, nothing left out; `before`: the last the client had."""
        course = stay.course
        if course.count and stay.bounds is None and not stay.tainted and not stay.earliest:
            self._judge_begin(stay, before, bounds)
        start, end = self._due(stay, before, bounds)
        for kind, low, high in course.missing(start, end):
            detail = f"{low} up to {high} took no effect at {stay.client}"
            self.findings.add(kind, stay.topic, low, detail, high - low)

    def _judge_begin(self, stay: Stay, before: int, bounds: PutBounds) -> None:
        first = stay.course.first
        if first <= before:
            kind = "redelivered" if stay.continues else "boundary"
            detail = f"to {stay.client}, which was given all up to @{before} before"
            self.findings.add(kind, stay.topic, first, detail)
        old = bounds.stored_before(stay.joining)
        if first <= old and not stay.continues:
            detail = f"to {stay.client}, but @{old} was stored before it subscribed"
            self.findings.add("boundary", stay.topic, first, detail)

    def _due(self, stay: Stay, before: int, bounds: PutBounds) -> tuple[int, int]:
        """From where to where it must have everything."""
        if stay.bounds is not None:
            return stay.bounds
        course = stay.course
        log = self.logs.get(stay.topic)
        topic_end = log.held.end if log else self._places.ends.get(stay.topic, 0)
        lasts = stay.joined is not None and stay.leaving is None
        end = topic_end if lasts else course.highest + 1
        start = course.first if course.count else end
        if stay.joined is not None:
            start = min(start, bounds.put_after(stay.joined))
        if stay.tainted and course.count:
            start = course.highest + 1
        return (max(start, before + 1) if stay.continues else start), end
