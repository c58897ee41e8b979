"""What the rules ask for as a change of the value, and the value as the rules see it."""

import pytest
from msgspec.structs import replace

from oncemq.cluster.agreement.asked_changes import changed_by, view_of
from oncemq.coordination.transactions import Changed, Declined
from oncemq.coordination.values import ShardReplicas
from oncemq.protocol.names import LeaderEpoch
from oncemq.replication.view import (
    Ask,
    Elect,
    Expand,
    Propose,
    Resign,
    ShardView,
    Shrink,
    Withdraw,
)
from tests.harness.agreement import A, B, C, D, life, opened, replicas

LED = replicas(A, B, joining="c", leader=A, epoch=4)
FOUR = replicas(A, B, C, D, leader=A, epoch=4)
PROPOSED = replicas(A, B, joining="c", leader=A, epoch=4, proposed=C)


def asked(ask: Ask, shard: ShardReplicas, *, promised: int = 0) -> Changed:
    return changed_by(ask, shard, A, opened(A), promised_epoch=promised, nonce="new")


def changed(shard: ShardReplicas, ask: Ask) -> ShardReplicas:
    found = asked(ask, shard)
    assert isinstance(found, ShardReplicas), found
    return found


def why(shard: ShardReplicas, ask: Ask, *, promised: int = 0) -> str:
    found = asked(ask, shard, promised=promised)
    assert isinstance(found, Declined)
    return found.why


# ------------------------------------------------------------------ what is asked


def test_an_election_makes_this_server_the_leader_of_the_next_epoch() -> None:
    nobody = replace(LED, leader=None)
    elect = Elect(A, LeaderEpoch(5))
    assert changed(nobody, elect) == replace(nobody, nonce="new", leader=A, leader_epoch=5)
    assert "etcd was put back" in why(nobody, elect, promised=5)


def test_who_is_not_in_sync_as_it_is_open_is_not_elected() -> None:
    shard = replicas(B, C, joining="a")
    assert "a is not in sync" in why(shard, Elect(A, LeaderEpoch(1)))


def test_resigning_names_the_directory_that_the_member_has_now() -> None:
    assert changed(LED, Resign(B)) == replace(LED, nonce="new", leader=B, leader_epoch=5)
    assert "c is not in sync" in why(LED, Resign(C))
    replaced = replace(LED, joining={B: opened(B, disk="2")})  # it is in sync no more
    assert "b is not in sync" in why(replaced, Resign(B))


def test_a_member_is_proposed_with_the_directory_that_was_caught_up() -> None:
    assert changed(LED, Propose(C, b"c")) == replace(LED, nonce="new", proposed=C)
    assert "not joining with the directory" in why(LED, Propose(C, b"another"))
    assert "not joining with the directory" in why(LED, Propose(B, b"b"))


def test_a_member_comes_into_sync_with_the_directory_that_was_caught_up() -> None:
    both = replicas(A, B, C, leader=A, epoch=4, nonce="new")
    assert changed(PROPOSED, Expand(C, b"c")) == both
    assert "not joining with the directory" in why(PROPOSED, Expand(C, b"another"))
    assert "not proposed" in why(LED, Expand(C, b"c"))


def test_who_is_proposed_is_withdrawn() -> None:
    assert changed(PROPOSED, Withdraw()) == replace(LED, nonce="new")
    assert asked(Withdraw(), LED) is LED


def test_all_members_leave_or_nobody_does() -> None:
    both = frozenset((B, C))
    assert changed(FOUR, Shrink(both)) == replicas(
        A, D, joining="bc", leader=A, epoch=4, nonce="new"
    )
    assert "2 must be" in why(FOUR, Shrink(both | {D}))
    three = replicas(A, B, D, joining="c", leader=A, epoch=4)
    assert "c is not in sync" in why(three, Shrink(both))
    assert asked(Shrink(frozenset()), FOUR) is FOUR


@pytest.mark.parametrize(
    "ask", [Resign(B), Propose(C, b"c"), Withdraw(), Shrink(frozenset((B,)))], ids=repr
)
def test_who_does_not_lead_changes_nothing(ask: Ask) -> None:
    assert "a does not lead" in why(replace(LED, leader=B), ask)


def test_who_leads_no_more_expands_nothing() -> None:
    assert "a does not lead" in why(replace(PROPOSED, leader=None), Expand(C, b"c"))


# ------------------------------------------------------------------ what is seen


def seen(shard: ShardReplicas, **how: object) -> ShardView:
    directory = how.get("directory", opened(A))
    return view_of(shard, 8, A, directory, frozenset((D,)))  # type: ignore[arg-type]


def test_the_view_has_the_directories_that_are_in_sync() -> None:
    assert seen(PROPOSED) == ShardView(
        8, A, LeaderEpoch(4), (A, B, C), frozenset((A, B)), C, {A: life(A), B: life(B)},
        frozenset((D,)),
    )  # fmt: skip


def test_a_place_in_sync_whose_directory_was_replaced_is_empty() -> None:
    replaced = replace(LED, joining={B: opened(B, disk="2")})
    view = seen(replaced)
    assert (view.in_sync, view.lives) == ({A, B}, {A: life(A)})


def test_this_server_is_in_sync_only_as_it_is_open_now() -> None:
    for other in (opened(A, 2), opened(A, disk="2"), opened(A, claim="another start")):
        view = seen(LED, directory=other)
        assert (view.in_sync, view.lives) == ({A, B}, {B: life(B)})
