"""A log and the journals of its effects: whole, in order, once; and how findings are told."""

from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

from oncemq.audit.checker import Audit
from oncemq.audit.course import SeenOffsets
from oncemq.audit.facts import (
    DISCARDED,
    Fact,
    GivenFact,
    Held,
    PutFact,
    SettledFact,
    Skipped,
    StoredFact,
)
from oncemq.audit.findings import FINDINGS_KEPT, KINDS
from oncemq.audit.log import FORGOTTEN_AFTER
from oncemq.protocol.names import Micros, Offset, Sequence

SECOND = 1_000_000


def held(low: int, end: int, topic: str = "t") -> Held:
    return Held(topic, Offset(low), Offset(end))


def stored(
    offset: int, sequence: int | None = None, *, producer: str = "p", at: int | None = None,
    digest: bytes = b"",
) -> StoredFact:  # fmt: skip
    number = offset + 1 if sequence is None else sequence
    time = Micros(offset * SECOND if at is None else at)
    return StoredFact("t", Offset(offset), producer, Sequence(number), time, digest)


def given(offset: int, *, topic: str = "t", digest: bytes = b"") -> GivenFact:
    return GivenFact("ledger", topic, Offset(offset), digest)


def log_of(low: int, end: int) -> list[Fact]:
    return [held(low, end), *(stored(offset) for offset in range(low, end))]


def found(facts: list[Fact]) -> list[tuple[str, int, int]]:
    """(kind, offset, count) of every finding."""
    audit = Audit()
    for fact in facts:
        audit.see(fact)
    findings = audit.finish()
    assert sum(findings.counts.values()) == sum(each.count for each in findings.kept)
    return [(each.kind, each.offset, each.count) for each in findings.kept]


def effects(*offsets: int) -> list[tuple[str, int, int]]:
    """What is found when a log of 0 to 5 took effect like this."""
    return found([*log_of(0, 5), *(given(offset) for offset in offsets)])


# ------------------------------------------------------------------ nothing is wrong


def test_an_empty_topic_is_clean() -> None:
    assert found([held(0, 0)]) == []


def test_a_whole_log_and_its_effects_are_clean() -> None:
    assert effects(0, 1, 2, 3, 4) == []


def test_a_log_may_begin_where_retention_left_it() -> None:
    assert found(log_of(1_000, 1_003)) == []


def test_effects_of_messages_that_retention_took_are_counted_and_compared_with_nothing() -> None:
    audit = Audit()
    for fact in [*log_of(3, 5), *(given(offset) for offset in range(5))]:
        audit.see(fact)
    assert audit.finish().kept == []
    assert [(each.course.count, each.uncompared) for each in audit.journals] == [(5, 3)]


def test_producers_take_turns_each_with_its_own_numbers() -> None:
    turns = [stored(0, 1), stored(1, 7, producer="q"), stored(2, 2), stored(3, 8, producer="q")]
    assert found([held(0, 4), *turns]) == []


def test_messages_of_one_put_share_a_time() -> None:
    assert found([held(0, 2), stored(0, at=5), stored(1, at=5)]) == []


def test_a_guest_that_was_forgotten_counts_from_one_again() -> None:
    assert found([held(0, 2), stored(0, 9, at=0), stored(1, 1, at=FORGOTTEN_AFTER)]) == []


def test_effects_of_messages_that_were_let_go_are_not_phantoms() -> None:
    facts = [*log_of(3, 5), *(given(offset) for offset in range(5))]
    assert found(facts) == []


def test_a_journal_is_held_only_to_the_range_it_was_expected_to_have() -> None:
    audit = Audit()
    for fact in log_of(0, 9):
        audit.see(fact)
    audit.expect("ledger", "t", start=2, end=4)
    for offset in (2, 3, 4):
        audit.see(given(offset))
    assert audit.finish().kept == []


# ------------------------------------------------------------------ the log


def test_a_gap_in_the_log_is_found_with_its_length() -> None:
    facts = [held(0, 9), stored(0, 1), stored(4, 2), stored(5, 3)]
    assert found(facts) == [("gap", 1, 3), ("gap", 6, 3)]


def test_an_offset_stored_twice_is_found() -> None:
    assert found([held(0, 1), stored(0, 1), stored(0, 2)]) == [("duplicate", 0, 1)]


def test_a_number_that_is_missing_is_found() -> None:
    assert found([held(0, 2), stored(0, 1), stored(1, 4)]) == [("lost_sequence", 1, 2)]


def test_a_number_stored_twice_is_found() -> None:
    assert found([held(0, 2), stored(0, 3), stored(1, 3)]) == [("duplicate", 1, 1)]


def test_numbers_from_one_again_within_a_day_are_found() -> None:
    facts = [held(0, 2), stored(0, 9, at=0), stored(1, 1, at=FORGOTTEN_AFTER - 1)]
    assert found(facts) == [("duplicate", 1, 1)]


def test_a_time_that_goes_back_is_found() -> None:
    assert found([held(0, 2), stored(0, at=9), stored(1, at=8)]) == [("time_back", 1, 1)]


def test_an_offset_that_comes_late_says_behind_which() -> None:
    audit = Audit()
    for fact in [held(0, 3), stored(0, 1), stored(2, 2), stored(1, 3)]:
        audit.see(fact)
    assert [str(each) for each in audit.finish().kept] == [
        "gap: t@1: nothing is stored from 1 up to 2",
        "duplicate: t@1: comes after t@2",
        "time_back: t@1: 1000000 µs before the message before it",
    ]


def test_a_promise_that_was_not_kept_is_found() -> None:
    facts = [
        held(0, 1),
        PutFact(topic="t", offset=Offset(0)),
        PutFact(topic="t", offset=Offset(1)),
        stored(0),
    ]
    assert found(facts) == [("lost", 1, 1)]


def test_a_promise_on_a_topic_that_is_not_there_is_found() -> None:
    assert found([PutFact(topic="u", offset=Offset(0))]) == [("lost", 0, 1)]


def test_a_receipt_of_what_was_discarded_promises_nothing() -> None:
    assert found([PutFact(topic="u", told=DISCARDED), PutFact(topic="t", told=DISCARDED)]) == []


def test_a_stored_payload_other_than_the_one_put_is_found() -> None:
    facts = [
        held(0, 1),
        PutFact(topic="t", offset=Offset(0), digests=(b"a",)),
        stored(0, digest=b"b"),
    ]
    assert found(facts) == [("corrupt", 0, 1)]


def test_damage_is_found_once_and_the_walk_goes_on_behind_it() -> None:
    facts = [held(0, 9), stored(0), Skipped("t", Offset(5), "bad checksum")]
    assert found([*facts, *(stored(offset) for offset in range(5, 9))]) == [("corrupt", 1, 4)]


def test_what_was_let_go_during_the_walk_is_no_gap() -> None:
    facts = [held(0, 9), stored(0), PutFact(topic="t", offset=Offset(3)), Skipped("t", Offset(5))]
    assert found([*facts, *(stored(offset) for offset in range(5, 9))]) == []


# ------------------------------------------------------------------ the effects


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((0, 1, 2, 3), [("lost_tail", 4, 1)]),
        ((2, 3, 4), [("lost_prefix", 0, 2)]),
        ((0, 1, 3, 4), [("lost_middle", 2, 1)]),
        ((0, 1, 1, 2, 3, 4), [("redelivered", 1, 1)]),
        ((0, 2, 1, 3, 4), [("reordered", 1, 1)]),
        ((0, 1, 2, 3, 4, 5), [("phantom", 5, 1)]),
        ((0, 2, 0, 4), [("redelivered", 0, 1), ("lost_middle", 1, 1), ("lost_middle", 3, 1)]),
    ],
)
def test_an_effect_that_is_not_once_and_in_order_is_found(
    order: tuple[int, ...], expected: list[tuple[str, int, int]]
) -> None:
    assert effects(*order) == expected


def test_a_journal_that_mentions_nothing_misses_everything() -> None:
    audit = Audit()
    for fact in log_of(0, 3):
        audit.see(fact)
    audit.expect("ledger", "t")
    assert audit.finish().counts == {"lost_tail": 3}


def test_what_a_killed_process_could_not_note_is_settled_by_its_own_state() -> None:
    facts = [*log_of(0, 5), given(0), SettledFact("ledger", "t", Offset(3)), given(3), given(4)]
    assert found(facts) == []
    assert found([*facts, given(2)]) == [("redelivered", 2, 1)]


def test_an_effect_on_a_topic_that_is_not_there_is_a_phantom() -> None:
    assert found([given(7, topic="u")]) == [("phantom", 7, 1)]


def test_an_effect_with_other_bytes_is_found() -> None:
    facts = [held(0, 1), stored(0, digest=b"a"), given(0, digest=b"b")]
    assert found(facts) == [("corrupt", 0, 1)]


# ------------------------------------------------------------------ the telling


def test_findings_are_all_counted_and_the_first_are_told() -> None:
    audit = Audit()
    audit.see(held(0, 1))
    audit.see(stored(0))
    for _ in range(FINDINGS_KEPT + 31):
        audit.see(given(0))
    findings = audit.finish()
    assert findings.counts == {"redelivered": FINDINGS_KEPT + 30}
    assert len(findings.kept) == FINDINGS_KEPT


def test_a_finding_names_the_promise_it_breaks() -> None:
    audit = Audit()
    for fact in [held(0, 2), stored(0)]:
        audit.see(fact)
    (finding,) = audit.finish().kept
    assert finding.promise == "G3" == KINDS[finding.kind][0]


# ------------------------------------------------------------------ laws


@hypothesis.given(st.lists(st.integers(0, 30)))
def test_an_extent_is_a_set_of_offsets(offsets: list[int]) -> None:
    extent, model = SeenOffsets(), set[int]()
    for offset in offsets:
        assert extent.add(offset) is (offset not in model)
        model.add(offset)
    unseen = [each for start, end in extent.unseen(5, 25) for each in range(start, end)]
    assert unseen == [each for each in range(5, 25) if each not in model]


@hypothesis.given(st.lists(st.integers(0, 12), max_size=40))
def test_the_effects_of_a_journal_are_counted_as_a_model_counts_them(order: list[int]) -> None:
    audit = Audit()
    for fact in log_of(0, 10):
        audit.see(fact)
    audit.expect("ledger", "t")
    for offset in order:
        audit.see(given(offset))
    counts = Counter(audit.finish().counts)
    real = [each for each in order if each < 10]
    assert counts["phantom"] == len(order) - len(real)
    assert counts["redelivered"] == len(real) - len(set(real))
    lost = sum(count for kind, count in counts.items() if kind.startswith("lost_"))
    assert lost == 10 - len(set(real))
