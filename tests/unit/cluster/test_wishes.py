"""Transactions until their keys are others: the same to the byte, or decided anew."""

from itertools import count

import pytest

from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.cluster.agreement.wishes import ASK_AGAIN, Wishes
from oncemq.coordination.coordinator import (
    Found,
    Happened,
    Overtaken,
    Transact,
    Unanswered,
)
from oncemq.coordination.values import encoded
from oncemq.protocol.names import Micros
from tests.harness.agreement import KEY, KEYS, SHARD, A, B, entry, replicas

NOW = Micros(5_000_000)
PUTS = {KEY: encoded(replicas(A, B))}


@pytest.fixture
def known() -> KnownKeys:
    known = KnownKeys(KEYS, SHARD)
    known.snapshot({KEY: entry(KEY, replicas(A), 3)}, 7)
    return known


@pytest.fixture
def wishes(known: KnownKeys) -> Wishes:
    counted = count(1)
    return Wishes(known, lambda: f"nonce{next(counted)}")


def test_it_rests_on_the_revisions_that_are_known_and_uses_up_a_nonce(wishes: Wishes) -> None:
    assert wishes.nonce == "nonce1"
    both = {**PUTS, KEYS.config: b"{}"}
    wish = wishes.made(both)
    assert wishes.nonce == "nonce2"
    assert wishes.requests == [(Transact({KEY: 3, KEYS.config: 0}, both), 1)]
    assert wish.is_under_way


def test_what_happened_is_known_at_once(wishes: Wishes, known: KnownKeys) -> None:
    wish = wishes.made(PUTS)
    wishes.answered(1, Happened(9), NOW)
    assert (known.shard, known.shard_revision) == (replicas(A, B), 9)
    assert not wishes.is_open(wish)
    assert not wishes.repeated(wish, Micros(NOW + ASK_AGAIN))
    assert len(wishes.requests) == 1


def test_what_was_overtaken_is_known_as_it_is(wishes: Wishes, known: KnownKeys) -> None:
    wish = wishes.made(PUTS)
    wishes.answered(1, Overtaken({KEY: entry(KEY, replicas(B), 8)}), NOW)
    assert (known.shard, known.shard_revision) == (replicas(B), 8)
    assert not wishes.repeated(wish, Micros(NOW + ASK_AGAIN))


@pytest.mark.parametrize("answer", [Unanswered("late"), Found({}, 7), Overtaken({})])
def test_without_an_answer_that_brings_news_the_same_is_asked_again_when_due(
    wishes: Wishes, answer: Unanswered | Found | Overtaken
) -> None:
    wish = wishes.made(PUTS)
    assert wishes.repeated(wish, Micros(NOW + ASK_AGAIN))  # it is under way, whatever the time
    assert len(wishes.requests) == 1
    wishes.answered(1, answer, NOW)
    assert not wish.is_under_way
    assert wishes.repeated(wish, Micros(NOW + ASK_AGAIN - 1))
    assert len(wishes.requests) == 1
    assert wishes.repeated(wish, Micros(NOW + ASK_AGAIN))
    assert wishes.requests == [(wish.transaction, 1), (wish.transaction, 2)]
    assert wish.is_under_way


def test_a_late_answer_to_a_repeated_wish_is_heard_once(wishes: Wishes, known: KnownKeys) -> None:
    wishes.made(PUTS)
    wishes.answered(1, Happened(9), NOW)
    wishes.answered(1, Happened(11), NOW)
    wishes.answered(5, Happened(12), NOW)
    assert known.shard_revision == 9


def test_it_is_open_while_nobody_changed_any_of_its_keys(wishes: Wishes, known: KnownKeys) -> None:
    wish = wishes.made({**PUTS, KEYS.config: b"{}"})
    known.watched({KEYS.server(A): None}, 8)
    assert wishes.is_open(wish)
    known.watched({KEYS.config: entry(KEYS.config, replicas(A), 9)}, 9)
    assert not wishes.is_open(wish)


def test_no_wish_is_not_repeated(wishes: Wishes) -> None:
    assert not wishes.repeated(None, NOW)
    assert wishes.requests == []
