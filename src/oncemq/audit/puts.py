"""The puts of a history: what became of each, against what its publisher was told.

Law: what could have been either way (a put without an answer) is allowed to be either way, once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from oncemq.audit.facts import DISCARDED, NEVER, RECORDED, REFUSED, STORED, PutFact
from oncemq.audit.findings import Findings
from oncemq.audit.log import TopicLog
from oncemq.audit.subscribed_times import SubscribedTimes
from oncemq.audit.witnesses import Places


class PutBounds:
    """The puts of one topic by time: what was surely stored before, what surely after."""

    def __init__(self, placed: Iterable[tuple[PutFact, int]] = ()) -> None:
        puts = [(put, offset) for put, offset in placed if put.begun]
        acked = sorted(
            (put.answered, offset + put.count - 1) for put, offset in puts if put.told == STORED
        )
        self._answers = [moment for moment, _ in acked]
        self._highest = [-1]
        for _, offset in acked:
            self._highest.append(max(self._highest[-1], offset))
        begun = sorted((put.begun, offset) for put, offset in puts)
        self._begins = [moment for moment, _ in begun]
        self._lowest = [NEVER]
        for _, offset in reversed(begun):
            self._lowest.append(min(self._lowest[-1], offset))
        self._lowest.reverse()

    def stored_before(self, moment: int) -> int:
        """The highest offset whose receipt came before; -1 without any."""
        return self._highest[bisect_left(self._answers, moment)]

    def put_after(self, moment: int) -> int:
        """The lowest offset whose put began after; NEVER without any."""
        return self._lowest[bisect_right(self._begins, moment)]


class PutHistory:
    """Every put of a history that names its messages."""

    def __init__(self, findings: Findings, places: Places) -> None:
        self._findings = findings
        self._places = places
        self._puts: list[PutFact] = []
        self._of: dict[bytes, tuple[PutFact, int]] = {}

    def see(self, put: PutFact) -> None:
        """The next one."""
        self._puts.append(put)
        for place, message in enumerate(put.messages):
            self._of[message] = put, place

    def of(self, message: bytes, topic: str) -> tuple[PutFact, int] | None:
        """The put of a message on a topic, and which of its messages it is."""
        found = self._of.get(message)
        return found if found is not None and found[0].topic == topic else None

    @property
    def all(self) -> list[PutFact]:
        """In the order they were told of."""
        return self._puts

    def must_be_allowed(self, put: PutFact, offset: int, who: str, *, copied: bool) -> None:
        """It is there: so its publisher must not have been told that it is not.

        An old copy of an outbox (`copied`) holds what was refused since, and sends it again.
        """
        if put.told in (REFUSED, DISCARDED) and not copied:
            detail = f"to {who}, though its put was told {put.why or 'not stored'!r}"
            self._findings.add("failed_but_delivered", put.topic, offset, detail)

    def is_behind_refused(self, put: PutFact, copied: int) -> bool:
        """Whether a copy of its outbox, made at that moment, has it under numbers of before.

        It was recorded behind a put that was refused after the copy was made. That moved it to
        other numbers, under which the server has it: the copy puts it again, and nobody can tell.
        """
        return put.lasting and any(
            other.begun < put.begun < copied < other.answered
            for other in self._puts
            if other.told == REFUSED
            and other.lasting
            and (other.client, other.process, other.topic) == (put.client, put.process, put.topic)
        )

    def judge(
        self, put: PutFact, log: TopicLog | None, presence: SubscribedTimes | None, *, honest: bool
    ) -> None:
        """Whether the put was stored, if it had to be."""
        name, offset = _name(put), put.offset or 0
        if put.why == "payload_conflict" and honest:
            self._findings.add("conflict", put.topic, offset, f"{name} met another payload")
        there = presence.during(put.begun, put.answered) if presence and put.begun else None
        if put.told == DISCARDED and there is not None:
            detail = f"{name}, though {there.client} was subscribed"
            self._findings.add("discarded", put.topic, offset, detail)
        elif put.told == DISCARDED and put.required:
            self._findings.add("discarded", put.topic, offset, f"{name}, though it was required")
        due = put.told == STORED or (put.told == RECORDED and honest)
        # Without a log, a subscription that lasts shows what there is.
        shown = log is not None or (there is not None and there.leaving is None)
        missing = sum(self._is_missing(message, log) for message in put.messages)
        if due and shown and missing:
            self._findings.add("lost", put.topic, offset, f"{name} was {put.told}", missing)

    def _is_missing(self, message: bytes, log: TopicLog | None) -> bool:
        """Whether nobody has it who should; what the log let go of is not missed."""
        offset = self._places.of(message)
        if log is None:
            return offset is None
        if self._places.is_logged(message):
            return False
        return log.known_from == 0 if offset is None else offset >= log.known_from

    def judge_order(self) -> None:
        """One publisher's messages keep their order, and a batch stays together."""
        last: dict[tuple[str, str], int] = {}
        for put in sorted(self._puts, key=lambda put: put.begun):
            places = [self._places.of(message) for message in put.messages]
            known = [place for place in places if place is not None]
            if not known:
                continue
            bases = {place - n for n, place in enumerate(places) if place is not None}
            if len(bases) > 1:
                self._findings.add("torn_batch", put.topic, known[0], f"{_name(put)} is at {known}")
            # What was refused is there only out of an old copy of an outbox, whenever that sent it.
            if not put.line or put.told == REFUSED:
                continue
            line = put.line, put.topic
            if known[0] < last.get(line, 0):
                detail = f"{_name(put)}, an earlier one is before @{last[line]}"
                self._findings.add("reordered_publisher", put.topic, known[0], detail)
            last[line] = max(last.get(line, 0), known[-1] + 1)

    def bounds(self) -> dict[str, PutBounds]:
        """Of each topic."""
        by_topic: dict[str, list[tuple[PutFact, int]]] = {}
        for put in self._puts:
            offset = self._places.of(put.messages[0]) if put.messages else None
            if offset is not None:
                by_topic.setdefault(put.topic, []).append((put, offset))
        return {topic: PutBounds(placed) for topic, placed in by_topic.items()}


def _name(put: PutFact) -> str:
    first = put.messages[0][:40].decode("utf-8", "replace") if put.messages else "a message"
    return f"{first} of {put.client}" if put.client else first
