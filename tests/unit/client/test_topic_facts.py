"""A walk over a stored topic: every message a fact, and every stretch without one told as well."""

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncemq.audit.facts import Fact, Held, Skipped, StoredFact
from oncemq.client.admin import topic_facts as walking
from oncemq.client.admin.topic_facts import walk
from oncemq.client.values import Message, Origin
from oncemq.errors import Corrupt, InvalidRequest
from oncemq.protocol.names import (
    Epoch,
    Generation,
    Micros,
    Offset,
    ProducerId,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import Retention, Run
from oncemq.protocol.replies import BatchHead, TopicInfo

PRODUCER = ProducerId(b"p" * 16)
STORED_AT = Micros(1_700_000_000_123_457)


def info(low: int, end: int, *lost: tuple[int, int]) -> TopicInfo:
    return TopicInfo(
        "t", TopicId(1), Offset(low), Offset(end), 0, 1, Retention(), Micros(0),
        lost=tuple((Offset(first), Offset(last)) for first, last in lost),
    )  # fmt: skip


class Shelf:
    """What a server has of a topic, and every read that it was asked."""

    def __init__(self, low: int, end: int) -> None:
        self.low, self.end = low, end
        self.bad: set[int] = set()
        self.reads: list[tuple[int, int]] = []
        self.before_a_read: Callable[[], None] = lambda: None

    def read(self, topic: str, offset: int, *, limit: int) -> list[Message]:
        self.before_a_read()
        self.reads.append((offset, limit))
        if offset < self.low:
            raise InvalidRequest("that is gone", code="offset_out_of_range")
        found = range(offset, min(offset + limit, self.end))
        if broken := self.bad & set(found):
            raise Corrupt(f"{topic}@{min(broken)} is broken")
        run = Run(1_000, PRODUCER, Epoch(1), Number(1), STORED_AT)
        head = BatchHead(topic, TopicId(1), SubscriptionId(0), Offset(0), 1_000, 0, 0, (run,))
        origin = Origin(head, b"", Generation(1))
        return [Message(b"%d" % each, each, origin) for each in found]

    def topic(self, name: str) -> Any:
        return SimpleNamespace(topic=info(self.low, self.end))

    def walked(self, shown: TopicInfo, *, digests: bool = False) -> list[Fact]:
        return list(walk(cast(Any, self), shown, digests=digests))


def stored(*offsets: int) -> list[Fact]:
    name = PRODUCER.hex()
    return [StoredFact("t", Offset(each), name, Number(each + 1), STORED_AT) for each in offsets]


def held(low: int, end: int) -> Fact:
    return Held("t", Offset(low), Offset(end))


def skipped(until: int, damage: str = "", *, accepted: bool = False) -> Fact:
    return Skipped("t", Offset(until), damage, accepted=accepted)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moment it is, and after that, how long was slept each time."""
    clock = [1_000.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        clock.append(seconds)

    monkeypatch.setattr(walking, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    return clock


def test_every_message_is_a_fact_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "PAGE", 4)
    shelf = Shelf(2, 99)
    assert shelf.walked(info(2, 12)) == [held(2, 12), *stored(*range(2, 12))]
    assert shelf.reads == [(2, 4), (6, 4), (10, 2)]


def test_an_empty_topic_is_not_read() -> None:
    shelf = Shelf(7, 7)
    assert shelf.walked(info(7, 7)) == [held(7, 7)]
    assert shelf.reads == []


def test_payloads_are_digested_where_that_is_asked_for() -> None:
    facts = Shelf(0, 2).walked(info(0, 2), digests=True)
    found = [each.digest for each in facts if isinstance(each, StoredFact)]
    assert found == [sha256(b"0").digest(), sha256(b"1").digest()]


def test_the_moment_of_a_message_is_told_to_the_microsecond() -> None:
    (_, fact) = Shelf(0, 1).walked(info(0, 1))
    assert isinstance(fact, StoredFact)
    assert datetime.fromtimestamp(fact.timestamp / 1e6, UTC).microsecond == 123_457


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ((0, 3), [skipped(3, accepted=True), *stored(3, 4, 5)]),
        ((2, 4), [*stored(0, 1), skipped(4, accepted=True), *stored(4, 5)]),
        ((4, 6), [*stored(0, 1, 2, 3), skipped(6, accepted=True)]),
    ],
)
def test_a_hole_is_passed_over_and_never_read(lost: tuple[int, int], expected: list[Fact]) -> None:
    shelf = Shelf(0, 6)
    assert shelf.walked(info(0, 6, lost)) == [held(0, 6), *expected]
    asked = {each for offset, limit in shelf.reads for each in range(offset, offset + limit)}
    assert asked == set(range(6)) - set(range(*lost))
    assert all(limit > 0 for _, limit in shelf.reads)


DAMAGE = {
    "at the beginning": ({0}, [skipped(1, "t@0 is broken"), *stored(1, 2, 3, 4, 5)]),
    "two together": ({2, 3}, [*stored(0, 1), skipped(4, "t@2 is broken"), *stored(4, 5)]),
    "two apart": (
        {1, 4},
        [*stored(0), skipped(2, "t@1 is broken"), *stored(2, 3),
         skipped(5, "t@4 is broken"), *stored(5)],
    ),
    "at the end": ({4, 5}, [*stored(0, 1, 2, 3), skipped(6, "t@4 is broken")]),
    "everywhere": (set(range(6)), [skipped(6, "t@0 is broken")]),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "expected"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_with_where_it_ends_and_the_rest_is_read(
    bad: set[int], expected: list[Fact]
) -> None:
    shelf = Shelf(0, 6)
    shelf.bad = bad
    assert shelf.walked(info(0, 6)) == [held(0, 6), *expected]
    assert max(offset for offset, _ in shelf.reads) < 6


def test_around_damage_messages_are_read_one_by_one_and_behind_it_together_again() -> None:
    shelf = Shelf(0, 9)
    shelf.bad = {1, 2}
    assert shelf.walked(info(0, 9)) == [
        held(0, 9), *stored(0), skipped(3, "t@1 is broken"), *stored(*range(3, 9))
    ]  # fmt: skip
    assert shelf.reads == [(0, 9), (0, 1), (1, 1), (2, 1), (3, 1), (4, 5)]


def test_damage_that_is_not_met_again_is_read_over() -> None:
    """A page was damaged on its way: one by one all of it is there, up to where nothing is yet."""
    shelf = Shelf(0, 4)
    shelf.bad = {2}
    shelf.before_a_read = lambda: shelf.bad.clear() if shelf.reads else None
    assert shelf.walked(info(0, 6)) == [held(0, 6), *stored(0, 1, 2, 3)]
    assert shelf.reads[:6] == [(0, 6), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]


def test_what_retention_takes_meanwhile_is_told_with_where_the_topic_begins() -> None:
    shelf = Shelf(5, 8)
    assert shelf.walked(info(2, 8)) == [held(2, 8), skipped(5), *stored(5, 6, 7)]


def test_a_topic_that_was_made_anew_meanwhile_is_told_of() -> None:
    """It does not begin behind what is gone: its offsets are of other messages."""
    shelf = Shelf(0, 9)

    def refuse() -> None:
        raise InvalidRequest("other offsets", code="offset_out_of_range")

    shelf.before_a_read = refuse
    for low in (0, 2):
        shelf.low = low
        with pytest.raises(InvalidRequest, match="'t' was deleted while the audit looked"):
            shelf.walked(info(2, 9))


def test_another_refusal_ends_the_walk() -> None:
    shelf = Shelf(0, 9)

    def refuse() -> None:
        raise InvalidRequest("no such thing", code="invalid")

    shelf.before_a_read = refuse
    with pytest.raises(InvalidRequest, match="no such thing"):
        shelf.walked(info(0, 9))


def test_what_is_about_to_be_durable_is_waited_for(clock: list[float]) -> None:
    """As long as something comes now and then, however long all of it takes."""
    shelf = Shelf(0, 0)
    reads = iter(range(10_000))

    def come() -> None:
        if next(reads) % 80 == 79:  # after 1.6 seconds
            shelf.end += 1

    shelf.before_a_read = come
    assert shelf.walked(info(0, 3)) == [held(0, 3), *stored(0, 1, 2)]
    assert clock[0] > 1_000 + 2 * walking.PATIENCE_SECONDS


def test_what_does_not_come_in_time_is_a_gap(clock: list[float]) -> None:
    assert Shelf(0, 2).walked(info(0, 3)) == [held(0, 3), *stored(0, 1)]
    assert 0 < clock[0] - 1_000 - walking.PATIENCE_SECONDS < 0.1
    assert set(clock[1:]) == {0.02}
