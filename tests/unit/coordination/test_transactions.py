"""Each change of a shard's state: what comes of it, and what it is declined for."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from oncemq.coordination.transactions import (
    Changed,
    Declined,
    drain,
    elect,
    expand,
    found,
    join,
    propose,
    raise_version,
    register,
    remove,
    resign,
    shrink,
    withdraw,
)
from oncemq.coordination.values import (
    ClusterConfig,
    ClusterKeys,
    NotUnderstood,
    OpenedDirectory,
    ServerState,
    ShardReplicas,
    decoded,
    encoded,
)
from oncemq.protocol.generations import FIRST, continued
from oncemq.protocol.names import ServerId

A, B, C, D = (ServerId(name) for name in "ABCD")
CONFIG = ClusterConfig(nonce="0")
DISK = {server: OpenedDirectory(f"disk-{server}", 3, f"claim-{server}") for server in (A, B, C, D)}


def shard(members: str, others: str = "", /, **more: Any) -> ShardReplicas:
    """In epoch 7."""
    state = ShardReplicas(
        nonce="before",
        identity="log",
        tag=9,
        generation=0,
        leader=A,
        leader_epoch=7,
        in_sync={ServerId(each): DISK[ServerId(each)] for each in members},
        joining={ServerId(each): DISK[ServerId(each)] for each in others},
        proposed=None,
        min_in_sync=2,
    )
    return replace(state, **more)


def again(server: ServerId) -> OpenedDirectory:
    """The server's directory, opened once more."""
    return OpenedDirectory(f"disk-{server}", 4, "another claim")


def joined(before: Changed, server: ServerId, directory: OpenedDirectory, **more: Any) -> Changed:
    assert isinstance(before, ShardReplicas)
    how: dict[str, Any] = {
        "identity": "log",
        "promised_epoch": 7,
        "config": CONFIG,
        "nonce": "n",
        **more,
    }
    return join(before, server, directory, **how)


def why(outcome: object) -> str:
    assert isinstance(outcome, Declined)
    return outcome.why


# ------------------------------------------------------------------ found and join


def test_a_cluster_is_founded_from_one_directory_and_goes_on_from_its_epoch() -> None:
    assert found(
        A,
        DISK[A],
        identity="log",
        tag=9,
        generation=0,
        leader_epoch=7,
        config=CONFIG,
        nonce="before",
    ) == shard("A", leader=None)


def test_who_opens_the_directory_that_was_in_sync_stays_in_sync() -> None:
    after = joined(shard("ABC"), B, again(B))
    assert after == shard("ABC", nonce="n", in_sync={A: DISK[A], B: again(B), C: DISK[C]})


def test_a_leader_that_starts_again_has_to_be_elected_again() -> None:
    after = joined(shard("AB", "C", proposed=C), A, again(A))
    assert after == shard(
        "AB", "C", nonce="n", leader=None, proposed=C, in_sync={A: again(A), B: DISK[B]}
    )


def test_a_join_that_was_stored_already_changes_nothing() -> None:
    before = shard("AB", "C")
    assert joined(before, B, DISK[B]) is before
    assert joined(before, C, DISK[C]) is before


@pytest.mark.parametrize(
    "other",
    [
        OpenedDirectory("empty disk", 1, "x"),
        OpenedDirectory("disk-B", 2, "restored from a copy of the opening before"),
        OpenedDirectory("disk-B", 3, "a copy that counts the same"),
    ],
)
def test_another_disk_or_an_older_one_joins_and_its_place_in_sync_stays_empty(
    other: OpenedDirectory,
) -> None:
    after = joined(shard("ABC"), B, other)
    assert after == shard("ABC", nonce="n", joining={B: other})
    assert isinstance(after, ShardReplicas)
    assert not after.has_in_sync(B, other)
    assert why(elect(after, B, other, promised_epoch=7, nonce="n")).startswith("what B has open")


def test_after_a_copy_came_the_disk_that_was_in_sync_has_to_join_too() -> None:
    copy = OpenedDirectory("disk-B", 3, "a copy")
    before = joined(shard("ABC"), B, copy)
    assert joined(before, B, again(B)) == shard("ABC", nonce="n", joining={B: again(B)})


def test_the_disk_that_was_in_sync_may_come_back_after_an_empty_one() -> None:
    before = joined(shard("ABC"), B, OpenedDirectory("empty disk", 1, "x"))
    after = joined(before, B, again(B))
    assert after == shard("ABC", nonce="n", in_sync={A: DISK[A], B: again(B), C: DISK[C]})


def test_a_leader_whose_disk_is_lost_does_not_lead() -> None:
    empty = OpenedDirectory("empty disk", 1, "x")
    after = joined(shard("ABC"), A, empty)
    assert after == shard("ABC", nonce="n", leader=None, joining={A: empty})


def test_who_is_proposed_and_starts_again_is_not_proposed_any_more() -> None:
    after = joined(shard("AB", "C", proposed=C), C, again(C))
    assert after == shard("AB", nonce="n", joining={C: again(C)})


def test_a_new_server_joins_while_there_is_room_for_it() -> None:
    assert joined(shard("AB"), C, DISK[C], identity=None) == shard("AB", "C", nonce="n")
    assert why(joined(shard("AB", "C"), D, DISK[D])) == (
        "the shard has its 3 replicas (A, B, C); remove one of them before D joins"
    )


def test_a_directory_with_another_log_does_not_join() -> None:
    assert why(joined(shard("AB"), C, DISK[C], identity="else")) == (
        "the data directory of C has another log (else) than the cluster (log): start C with an "
        "empty one, or, if the cluster was to begin with this one, see `once cluster found --help`"
    )


def test_a_new_directory_that_says_of_a_loss_does_not_join() -> None:
    raised = continued(FIRST, 5)
    assert why(joined(shard("AB"), C, DISK[C], generation=raised)).startswith(
        "the log of C was restored from a backup, or loss was accepted in it, and the cluster's "
        "was not"
    )
    others = replace(shard("AB"), generation=continued(FIRST, 6))
    assert isinstance(joined(others, C, DISK[C], generation=raised), Declined)


def test_what_tells_of_no_loss_that_the_shard_has_not_joins() -> None:
    raised = continued(FIRST, 5)
    whole = replace(shard("AB"), generation=raised)
    for generation in (raised, FIRST, None):
        assert not isinstance(joined(whole, C, DISK[C], generation=generation), Declined)
    known = shard("AB", "C")  # it was let in with that before
    assert joined(known, C, DISK[C], generation=raised) == known
    assert not isinstance(joined(known, B, again(B), generation=raised), Declined)


def test_a_store_that_was_put_back_to_an_older_copy_is_seen_by_a_promise() -> None:
    said = "B promised to follow epoch 8, and the cluster knows of 7 only: etcd was put back"
    assert why(joined(shard("AB"), B, again(B), promised_epoch=8)).startswith(said)
    assert why(elect(shard("AB"), B, DISK[B], promised_epoch=8, nonce="n")).startswith(said)


# ------------------------------------------------------------------ elect and resign


def test_a_member_that_is_elected_fences_the_leader_before() -> None:
    after = elect(shard("ABC", proposed=None), B, DISK[B], promised_epoch=7, nonce="n")
    assert after == shard("BC", "A", nonce="n", leader=B, leader_epoch=8)


def test_an_election_leaves_the_leader_before_in_sync_where_too_few_would_remain() -> None:
    after = elect(shard("AB", "C", proposed=C), B, DISK[B], promised_epoch=6, nonce="n")
    assert after == shard("AB", "C", nonce="n", leader=B, leader_epoch=8)


def test_a_leader_that_started_again_is_elected_into_a_new_epoch() -> None:
    after = elect(shard("AB", leader=None), A, DISK[A], promised_epoch=7, nonce="n")
    assert after == shard("AB", nonce="n", leader_epoch=8)


def test_who_is_not_in_sync_or_proposed_only_is_not_elected() -> None:
    before = shard("AB", "C", proposed=C)
    outcome = elect(before, C, DISK[C], promised_epoch=7, nonce="n")
    assert why(outcome) == "C is not in sync; in sync are A, B"


def test_a_leader_resigns_to_a_member_in_a_new_epoch() -> None:
    after = resign(
        shard("AB", "C", proposed=C), A, leader_epoch=7, to=B, directory=DISK[B], nonce="n"
    )
    assert after == shard("AB", "C", nonce="n", leader=B, leader_epoch=8)


@pytest.mark.parametrize(
    ("to", "directory", "said"),
    [
        (A, DISK[A], "A leads already; name another member"),
        (C, DISK[C], "C is not in sync; in sync are A, B"),
        (B, again(B), "what B has open is not the directory that was in sync"),
    ],
)
def test_a_leader_does_not_resign_to(to: ServerId, directory: OpenedDirectory, said: str) -> None:
    before = shard("AB", "C")
    assert why(resign(before, A, leader_epoch=7, to=to, directory=directory, nonce="n")) == said


# ------------------------------------------------------------------ the in-sync set


def test_a_replica_is_proposed_then_in_sync() -> None:
    how: dict[str, Any] = {"leader_epoch": 7, "server": C, "directory": DISK[C], "nonce": "n"}
    proposed = propose(shard("AB", "C"), A, **how)
    assert proposed == shard("AB", "C", nonce="n", proposed=C)
    assert isinstance(proposed, ShardReplicas)
    assert propose(proposed, A, **how) is proposed
    assert expand(proposed, A, **how) == shard("ABC", nonce="n")


def test_an_emptied_member_that_was_caught_up_takes_its_place_again() -> None:
    new = OpenedDirectory("empty disk", 1, "x")
    how: dict[str, Any] = {"leader_epoch": 7, "server": B, "directory": new, "nonce": "n"}
    proposed = propose(shard("AB", joining={B: new}), A, **how)
    assert isinstance(proposed, ShardReplicas)
    assert expand(proposed, A, **how) == shard("AB", nonce="n", in_sync={A: DISK[A], B: new})


def test_who_is_not_proposed_is_not_taken_in() -> None:
    how: dict[str, Any] = {"leader_epoch": 7, "nonce": "n"}
    said = "is not proposed with the directory that was caught up"
    assert why(expand(shard("AB", "C"), A, server=C, directory=DISK[C], **how)) == f"C {said}"
    before = shard("AB", "C", proposed=C)
    assert why(expand(before, A, server=C, directory=again(C), **how)) == f"C {said}"


def test_one_is_proposed_at_a_time_and_only_who_joins() -> None:
    how: dict[str, Any] = {"leader_epoch": 7, "nonce": "n"}
    before = shard("AB", "CD", proposed=C)
    assert why(propose(before, A, server=D, directory=DISK[D], **how)) == (
        "C is proposed; one at a time"
    )
    assert why(propose(shard("AB", "C"), A, server=C, directory=again(C), **how)) == (
        "C is not joining with the directory that was caught up"
    )


def test_a_proposal_is_withdrawn() -> None:
    before = shard("AB", "C")
    assert withdraw(before, A, leader_epoch=7, nonce="n") is before
    proposed = replace(before, proposed=C)
    assert withdraw(proposed, A, leader_epoch=7, nonce="n") == shard("AB", "C", nonce="n")


def test_a_member_that_is_too_slow_leaves_while_enough_remain() -> None:
    assert shrink(shard("ABC"), A, leader_epoch=7, server=C, nonce="n") == shard(
        "AB", "C", nonce="n"
    )
    assert why(shrink(shard("AB"), A, leader_epoch=7, server=B, nonce="n")) == (
        "in sync are A, B, and 2 must be: nothing is committed until B is back or another "
        "replica was caught up"
    )


def test_a_member_whose_disk_was_lost_leaves_with_its_new_one_still_joining() -> None:
    new = OpenedDirectory("empty disk", 1, "x")
    before = shard("ABC", joining={C: new})
    after = shrink(before, A, leader_epoch=7, server=C, nonce="n")
    assert after == shard("AB", nonce="n", joining={C: new})


def test_a_leader_does_not_leave_and_nobody_leaves_twice() -> None:
    how: dict[str, Any] = {"leader_epoch": 7, "nonce": "n"}
    assert why(shrink(shard("ABC"), A, server=A, **how)) == (
        "A leads and has all that is committed; it resigns instead"
    )
    assert why(shrink(shard("AB", "C"), A, server=C, **how)) == "C is not in sync"


CHANGES: dict[str, Callable[[ShardReplicas, ServerId, int], Changed]] = {
    "resign": lambda s, by, e: resign(
        s, by, leader_epoch=e, to=C, directory=DISK[C], nonce="n"
    ),
    "propose": lambda s, by, e: propose(
        s, by, leader_epoch=e, server=D, directory=DISK[D], nonce="n"
    ),
    "expand": lambda s, by, e: expand(
        s, by, leader_epoch=e, server=D, directory=DISK[D], nonce="n"
    ),
    "withdraw": lambda s, by, e: withdraw(s, by, leader_epoch=e, nonce="n"),
    "shrink": lambda s, by, e: shrink(s, by, leader_epoch=e, server=C, nonce="n"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_only_the_leader_in_its_epoch_changes(change: str) -> None:
    before = shard("ABC", "D", proposed=D)
    assert isinstance(CHANGES[change](before, A, 7), ShardReplicas)
    assert why(CHANGES[change](before, B, 7)) == ("B does not lead in epoch 7: A does, in epoch 7")
    assert why(CHANGES[change](before, A, 6)) == ("A does not lead in epoch 6: A does, in epoch 7")
    nobody = replace(before, leader=None)
    assert why(CHANGES[change](nobody, A, 7)) == (
        "A does not lead in epoch 7: nobody does, in epoch 7"
    )


def test_a_replica_that_is_given_up_is_removed() -> None:
    assert remove(shard("AB", "C", proposed=C), C, nonce="n") == shard("AB", nonce="n")
    assert remove(shard("AB", "CD", proposed=D), C, nonce="n") == shard(
        "AB", "D", nonce="n", proposed=D
    )
    assert why(remove(shard("AB"), A, nonce="n")) == "A leads the shard; drain it first"
    assert why(remove(shard("AB"), B, nonce="n")).startswith("B is in sync, and the leader has")
    assert why(remove(shard("AB"), D, nonce="n")) == "D has no replica; these have: A, B"


# ------------------------------------------------------------------ servers, keys, bytes


def test_a_server_that_says_where_it_is_stays_draining() -> None:
    first = register(None, address="tcp://a:1", nonce="1")
    assert first == ServerState(nonce="1", address="tcp://a:1")
    draining = drain(first, draining=True, nonce="2")
    assert register(draining, address="tcp://a:2", nonce="3") == ServerState(
        nonce="3", address="tcp://a:2", draining=True
    )


def test_values_are_read_as_they_were_written() -> None:
    before = shard("AB", "C", proposed=C)
    assert decoded(encoded(before), ShardReplicas, key="shard/0") == before


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"nonce":"n","replicas":3,"later":1}', b"\xff"])
def test_a_value_of_another_version_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(NotUnderstood, match="cannot read cfg of the cluster"):
        decoded(data, ClusterConfig, key="cfg")


def test_keys_are_below_the_cluster_and_names_cannot_leave_it() -> None:
    keys = ClusterKeys("prod")
    assert [keys.config, keys.shard(0), keys.server(A), keys.alive(A)] == [
        "/oncemq/prod/cfg",
        "/oncemq/prod/shard/0",
        "/oncemq/prod/server/A",
        "/oncemq/prod/alive/A",
    ]
    for name in ("", "a/b", ".a", "a b", "x" * 65):
        with pytest.raises(ValueError, match="1 to 64"):
            ClusterKeys(name)


# ------------------------------------------------------------------ what may be written


READS = {DISK[server].claim: 3 for server in DISK}


def test_the_leader_may_write_what_every_replica_reads() -> None:
    before = shard("AB", "C")
    reads = {**READS, DISK[C].claim: 2}
    after = raise_version(before, A, leader_epoch=7, reads=reads, nonce="n")
    assert after == shard("AB", "C", nonce="n", version=2)
    assert raise_version(before, A, leader_epoch=7, reads=READS, nonce="n") == replace(
        before, nonce="n", version=3
    )


@pytest.mark.parametrize("server", [A, B, C])
def test_a_start_of_which_nothing_is_known_is_waited_for(server: ServerId) -> None:
    before = shard("AB", "C")
    reads = {claim: 3 for claim in READS if claim != DISK[server].claim}
    assert raise_version(before, A, leader_epoch=7, reads=reads, nonce="n") is before


def test_a_directory_that_was_replaced_is_waited_for() -> None:
    before = shard("AB", in_sync={A: DISK[A], B: again(B)}, joining={B: DISK[B]})
    assert raise_version(before, A, leader_epoch=7, reads=READS, nonce="n") is before


def test_the_version_is_never_lowered() -> None:
    before = shard("AB", "C", version=4)
    assert raise_version(before, A, leader_epoch=7, reads=READS, nonce="n") is before
    assert isinstance(after := remove(before, C, nonce="n"), ShardReplicas)
    assert after.version == 4


def test_only_who_leads_raises_it() -> None:
    words = why(raise_version(shard("AB"), B, leader_epoch=7, reads=READS, nonce="n"))
    assert words == "B does not lead in epoch 7: A does, in epoch 7"


def test_who_reads_less_than_is_written_cannot_join() -> None:
    before = shard("AB", "C", version=3)
    assert isinstance(joined(before, C, again(C), reads=3), ShardReplicas)
    words = why(joined(before, C, again(C), reads=2))
    assert "write version 3, and C runs a OnceMQ that reads versions up to 2" in words
