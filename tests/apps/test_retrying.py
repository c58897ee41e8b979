"""When to try again, when no more, and what a start makes of what the last one left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.apps.retrying import AttemptNote, Backoff, RetryLimits, Trouble, Verdict

GONE = Verdict("it was no good", "", 1, "2026-01-01T00:00:00.000+00:00")


@given(st.integers(1, 1_000), st.floats(0, 0.999))
def test_waits_grow_stay_in_bounds_and_differ(attempt: int, chance: float) -> None:
    backoff = Backoff(first=0.5, factor=2, longest=60)
    seconds = backoff(attempt, chance)
    full = min(60, 0.5 * 2 ** min(attempt - 1, 64))
    assert full / 2 < seconds <= full
    assert backoff(attempt + 1, chance) >= seconds


def test_usually_many_at_once() -> None:
    trouble = Trouble(RetryLimits())
    assert trouble.limit(100) == 100
    trouble.take(0, 1, 3)
    trouble.settled(3)
    assert trouble.limit(100) == 100


def test_one_that_failed_among_others_is_tried_alone_and_then_all_is_as_usual() -> None:
    trouble = Trouble(RetryLimits())
    trouble.take(10, 1, 100)
    trouble.failed_among(3)
    for offset in (10, 11, 12):
        assert trouble.limit(100) == 1
        trouble.take(offset, 1, 1)
        trouble.settled(1)
    assert trouble.limit(100) == 100


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_the_last_attempt_is_the_one_after_the_retries(retries: int) -> None:
    trouble = Trouble(RetryLimits(retries=retries))
    for attempt in range(1, retries + 2):
        trouble.take(42, 1, 1)
        assert trouble.failed(final=False) is (attempt == retries + 1)
        assert trouble.note == AttemptNote(42, 1, attempts=attempt)


def test_what_no_retry_mends_is_not_retried() -> None:
    trouble = Trouble(RetryLimits(retries=5))
    trouble.take(42, 1, 1)
    assert trouble.failed(final=True)


def test_attempts_are_counted_across_starts() -> None:
    trouble = Trouble(RetryLimits(retries=5), AttemptNote(42, 1, attempts=5))
    assert trouble.limit(100) == 1
    assert trouble.take(42, 1, 1).attempts == 5
    assert trouble.failed(final=False)


def test_a_verdict_stands_after_a_start() -> None:
    trouble = Trouble(RetryLimits(), AttemptNote(42, 1, verdict=GONE))
    assert trouble.take(42, 1, 1).verdict == GONE


@pytest.mark.parametrize(("offset", "timestamp"), [(43, 1), (42, 2)], ids=["later", "made anew"])
def test_a_note_about_another_message_says_nothing(offset: int, timestamp: int) -> None:
    left = AttemptNote(42, 1, attempts=5, crashes=3, at_work=True, verdict=GONE)
    trouble = Trouble(RetryLimits(), left)
    assert trouble.take(offset, timestamp, 1) == AttemptNote(offset, timestamp)


def test_a_crash_with_a_message_in_hand_counts_and_a_stop_between_attempts_does_not() -> None:
    assert Trouble(RetryLimits(), AttemptNote(42, 1, at_work=True)).take(42, 1, 1).crashes == 1
    assert Trouble(RetryLimits(), AttemptNote(42, 1, attempts=2)).take(42, 1, 1).crashes == 0


def test_a_message_that_takes_every_process_along_is_given_up() -> None:
    left: AttemptNote | None = None
    for start in range(12):
        trouble = Trouble(RetryLimits(crashes=10), left)
        trouble.take(42, 1, 1)
        assert trouble.crashed_too_often is (start > 10)
        left = trouble.begin()


def test_a_crash_with_several_in_hand_makes_each_go_alone() -> None:
    trouble = Trouble(RetryLimits(), AttemptNote(10, 1, count=3, at_work=True))
    assert trouble.take(10, 1, 1) == AttemptNote(10, 1)
    trouble.settled(1)
    assert [trouble.limit(100), trouble.alone] == [1, 2]
