"""The judgement of a history: which promises were broken. Linear in the number of events.

Law: a finding is never excused by luck. What could have been either way (a put without an answer,
a subscribe that timed out) is allowed to be either way, once; all else is a finding.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from oncemq.testing import history as saw
from oncemq.testing.history import Given, History, Joined, Opened, PutStory
from oncemq.testing.stays import Stay, Stays

NEVER = 1 << 62


class Bounds:
    """The puts of one topic by time: what was surely stored before, what surely after."""

    def __init__(self, placed: Iterable[tuple[PutStory, int]]) -> None:
        puts = list(placed)
        acked = sorted(
            (put.answered, offset + put.count - 1)
            for put, offset in puts
            if put.answered is not None and put.stored
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


class Judgement:
    """Collects the findings about one history."""

    def __init__(self, history: History) -> None:
        self.findings: list[str] = list(history.troubles)
        self._history = history
        self._stays = Stays()
        self._at: dict[tuple[str, int], tuple[int, int]] = {}  # which message is where
        self._places: dict[tuple[int, int], int] = {}  # where each message is
        self._ends: dict[str, int] = {}
        self._opened: dict[str, list[Opened]] = {}
        self._tainted: set[str] = set()

    def judge(self) -> list[str]:
        """Every finding."""
        for put in self._history.puts.values():
            if put.first_offset is not None:
                for place in range(put.count):
                    self._place(put, place, put.first_offset + place, "its receipt")
        for seen in self._history.seen:
            self._see(seen)
        self._judge_puts()
        self._judge_order()
        bounds = self._bounds()
        for stays in self._stays.of.values():
            before = -1
            for stay in stays:
                before = self._judge_stay(stay, before, bounds.get(stay.topic) or Bounds(()))
        for stray in self._stays.strays:
            self._find("boundary", stray)
        return self.findings

    def _find(self, kind: str, detail: str) -> None:
        self.findings.append(f"{kind}: {detail}")

    # Messages and their places

    def _place(self, put: PutStory, place: int, offset: int, who: str) -> None:
        name, where = (put.number, place), f"{put.topic}@{offset}"
        there = self._at.setdefault((put.topic, offset), name)
        if there != name:
            self._find("changed", f"{where} is {_name(name)} to {who}, {_name(there)} to another")
        known = self._places.setdefault(name, offset)
        if known != offset:
            self._find("duplicate", f"{_name(name)} is at {where} to {who}, and at @{known}")
        self._ends[put.topic] = max(self._ends.get(put.topic, 0), offset + 1)

    def _see(self, seen: saw.Seen) -> None:
        self._stays.see(seen)
        match seen:
            case Given():
                self._given(seen)
            case Joined():
                self._must_not_be_fenced(seen.client, seen.process, seen.asked, "subscribed")
            case Opened():
                self._opened.setdefault(seen.client, []).append(seen)
            case saw.Tainted():
                self._tainted.add(seen.client)
            case _:
                pass

    def _given(self, given: Given) -> None:
        name = saw.name_of(given.payload)
        put = self._history.puts.get(name[0]) if name else None
        if name is None or put is None or put.topic != given.topic or name[1] >= put.count:
            self._find("phantom", f"{_where(given)}: nobody put {given.payload[:40]!r}")
            return
        if (given.payload, given.key) != (saw.payload(*name, put.size), saw.key(*name)):
            self._find("corrupt", f"{_where(given)}: {_name(name)} is not what was put")
        # An old copy of an outbox holds what was refused since, and sends it again.
        copied = put.lasting and put.client in self._tainted
        if (put.refused or put.stored is False) and not copied:
            told = put.refused or "not stored"
            self._find("failed_but_delivered", f"{_where(given)}: its put was told {told!r}")
        self._place(put, name[1], given.offset, given.client)
        what = f"handed out {given.topic}@{given.offset}"
        self._must_not_be_fenced(given.client, given.process, given.asked, what)

    def _must_not_be_fenced(self, client: str, process: int, asked: int, what: str) -> None:
        """What a process begins after a newer one got its epoch must not succeed."""
        newest = next((o for o in reversed(self._opened.get(client, [])) if o.moment < asked), None)
        if newest is not None and newest.process > process:
            self._find(
                "not_fenced", f"{client}'s process {process} {what} after {newest.process} began"
            )

    # Puts

    def _judge_puts(self) -> None:
        by_topic: dict[str, list[Stay]] = {}
        for (_, topic), stays in self._stays.of.items():
            by_topic.setdefault(topic, []).extend(stays)
        for put in self._history.puts.values():
            self._judge_put(put, by_topic.get(put.topic, []))

    def _judge_put(self, put: PutStory, stays: list[Stay]) -> None:
        honest = put.client not in self._tainted
        if put.refused == "payload_conflict" and honest:
            self._find("conflict", f"put {put.number} of {put.client} met another payload")
        if put.answered is not None and not put.refused:
            what = f"had put {put.number} accepted"
            self._must_not_be_fenced(put.client, put.process, put.begun, what)
        stays = [stay for stay in stays if stay.spans(put.begun, put.answered or NEVER)]
        if put.stored is False and stays and not put.refused:
            self._find("discarded", f"put {put.number}, though {stays[0].client} was subscribed")
        kept = any(stay.leaving is None for stay in stays)
        due = put.stored or (put.recorded and put.stored is None and not put.refused and honest)
        missing = [n for n in range(put.count) if (put.number, n) not in self._places]
        if due and kept and missing:
            told = "acknowledged" if put.stored else "recorded"
            self._find("lost", f"put {put.number} of {put.client} on {put.topic} was {told}")

    def _judge_order(self) -> None:
        """One publisher's messages keep their order, and a batch stays together."""
        last: dict[tuple[str, int, str], int] = {}
        for put in sorted(self._history.puts.values(), key=lambda put: put.begun):
            places = [self._places.get((put.number, n)) for n in range(put.count)]
            known = [place for place in places if place is not None]
            if not known:
                continue
            bases = {place - n for n, place in enumerate(places) if place is not None}
            if len(bases) > 1:
                self._find("torn_batch", f"put {put.number} is at {known}")
            alone = put.client not in self._history.twins and put.client not in self._tainted
            who = (put.client, 0 if alone and put.lasting else put.process, put.topic)
            if known[0] < last.get(who, 0):
                self._find(
                    "reordered",
                    f"put {put.number} of {put.client} is at {put.topic}@{known[0]}, "
                    f"an earlier one before @{last[who]}",
                )
            last[who] = max(last.get(who, 0), known[-1] + 1)

    def _bounds(self) -> dict[str, Bounds]:
        by_topic: dict[str, list[tuple[PutStory, int]]] = {}
        for (number, place), offset in self._places.items():
            put = self._history.puts[number]
            if place == 0:
                by_topic.setdefault(put.topic, []).append((put, offset))
        return {topic: Bounds(placed) for topic, placed in by_topic.items()}

    # Subscriptions

    def _judge_stay(self, stay: Stay, before: int, bounds: Bounds) -> int:
        """Each message once, in order, none left out; the last one it got."""
        who = f"{stay.topic}/{stay.client}"
        offsets = [given.offset for given in stay.given]
        expected = offsets[0] if offsets else NEVER
        for offset in offsets:
            if offset < expected and not stay.tainted:
                self._find("redelivered", f"{who}@{offset}, though {expected} was next")
            elif offset > expected and not stay.tainted:
                self._find("lost_middle", f"{who}@{expected} to {offset - 1}")
            expected = offset + 1
        first = offsets[0] if offsets else NEVER
        if not stay.tainted:
            if first <= before and not stay.earliest:
                kind = "redelivered" if stay.continues else "boundary"
                self._find(kind, f"{who}@{first} was given before, up to {before}")
            old = bounds.stored_before(stay.joining)
            if first <= old and not stay.earliest and not stay.continues:
                self._find("boundary", f"{who}@{first}, but {old} was stored before it subscribed")
        if stay.joined is not None:
            self._judge_ends(stay, who, first, bounds.put_after(stay.joined), before)
        return max([before, *offsets])

    def _judge_ends(self, stay: Stay, who: str, first: int, due: int, before: int) -> None:
        """Nothing is missing where it began, and if it lasts, nothing at the end."""
        if due < first < NEVER and not stay.tainted:
            self._find("lost_prefix", f"{who}@{due} to {first - 1}")
        if stay.leaving is not None:
            return
        end = self._ends.get(stay.topic, 0)
        reached = stay.given[-1].offset + 1 if stay.given else min(due, end)
        if stay.continues:
            reached = max(reached, before + 1)
        if reached < end:
            self._find("lost_tail", f"{who}@{reached} to {end - 1}")


def _name(name: tuple[int, int]) -> str:
    return f"message {name[1]} of put {name[0]}"


def _where(given: Given) -> str:
    return f"{given.topic}@{given.offset} to {given.client}"
