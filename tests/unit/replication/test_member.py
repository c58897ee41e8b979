"""A candidate: when it stands, when it leads, when it leaves it to others."""

import pytest
from msgspec import structs

from oncemq.protocol.names import LeaderEpoch, Micros, ServerId
from oncemq.protocol.replicas.messages import Life
from oncemq.replication.actions import AskCoordinator, PromiseEpoch, StartLeading
from oncemq.replication.member import Member
from oncemq.replication.view import Elect, ReplicationLimits, Resign, ShardView

A, B, C = ServerId("a"), ServerId("b"), ServerId("c")
LIVES = {name: Life(name.encode(), 2) for name in (A, B, C)}
VIEW = ShardView(4, A, LeaderEpoch(3), (A, B, C), frozenset((A, B, C)), None, LIVES)
NOBODY_LEADS = structs.replace(VIEW, leader=None)
ALL = frozenset((A, B, C))
LATER = Micros(1_000_000)


def member(name: ServerId = B, life: Life | None = None) -> Member:
    return Member(name, life or LIVES[name], ReplicationLimits())


def test_nothing_is_done_before_the_coordinator_knows_of_the_opening() -> None:
    who = member()
    assert not who.may_follow
    assert who.tick(LeaderEpoch(0), Micros(0)) == []


def test_the_epoch_that_is_found_at_the_start_is_promised_and_not_led() -> None:
    view = structs.replace(VIEW, leader=B)
    who = member()
    assert who.told(view, ALL, LeaderEpoch(0), Micros(0)) == [PromiseEpoch(LeaderEpoch(3))]
    elect = AskCoordinator(Elect(B, LeaderEpoch(4)), 4)
    assert who.tick(LeaderEpoch(3), LATER) == []  # the first candidate goes first
    assert who.tick(LeaderEpoch(3), Micros(2_000_000)) == [elect]


def test_an_epoch_that_is_given_later_is_promised_and_led() -> None:
    who = member()
    who.told(VIEW, ALL, LeaderEpoch(3), Micros(0))
    given = structs.replace(VIEW, revision=5, leader=B, leader_epoch=LeaderEpoch(4))
    expected = [PromiseEpoch(LeaderEpoch(4)), StartLeading(given)]
    assert who.told(given, ALL, LeaderEpoch(3), LATER) == expected
    assert who.tick(LeaderEpoch(4), LATER) == []


@pytest.mark.parametrize(
    "life", [Life(b"other", 2), Life(b"b", 3)], ids=["another directory", "another opening"]
)
def test_who_is_not_the_one_in_sync_does_not_stand(life: Life) -> None:
    who = member(life=life)
    who.told(NOBODY_LEADS, ALL, LeaderEpoch(3), Micros(0))
    assert who.tick(LeaderEpoch(3), LATER) == []


def test_who_is_not_in_sync_does_not_stand() -> None:
    who = member(C)
    view = structs.replace(NOBODY_LEADS, in_sync=frozenset((A, B)))
    who.told(view, ALL, LeaderEpoch(3), Micros(0))
    assert who.tick(LeaderEpoch(3), LATER) == []


def test_a_leader_with_a_lease_is_left_alone_and_one_without_is_replaced() -> None:
    who = member()
    assert who.told(VIEW, ALL, LeaderEpoch(3), Micros(0)) == []
    ask = [AskCoordinator(Elect(B, LeaderEpoch(4)), 4)]
    assert who.told(VIEW, frozenset((B, C)), LeaderEpoch(3), LATER) == ask
    assert who.tick(LeaderEpoch(3), Micros(LATER + 1)) == []  # it has asked
    who.refused(Micros(LATER + 2))
    assert who.tick(LeaderEpoch(3), Micros(LATER + 3)) == []
    assert who.tick(LeaderEpoch(3), Micros(LATER + 2_000_000)) == ask


def test_who_was_given_the_shard_and_is_not_whole_gives_it_to_one_that_is() -> None:
    who = member(A, Life(b"new", 1))
    view = structs.replace(VIEW, lives={C: LIVES[C]})
    assert who.told(view, ALL, LeaderEpoch(3), Micros(0)) == [AskCoordinator(Resign(C), 4)]
