"""The keys of a cluster as a server knows them: never older than they were, and never in part."""

import pytest
from msgspec import structs

from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination.coordinator import KeyEntry
from oncemq.coordination.values import Announcement, ClusterConfig, ServerState
from tests.harness.agreement import KEY, KEYS, SHARD, A, B, entry, replicas

CONFIG = ClusterConfig("c", replicas=5)
HERE = ServerState("s", "tcp://a:1")


@pytest.fixture
def known() -> KnownKeys:
    return KnownKeys(KEYS, SHARD)


def snapshot(known: KnownKeys, revision: int, *entries: KeyEntry) -> None:
    known.snapshot({each.key: each for each in entries}, revision)


def watched(known: KnownKeys, revision: int, *entries: KeyEntry, gone: str = "") -> None:
    known.watched({each.key: each for each in entries} | ({gone: None} if gone else {}), revision)


def answered(known: KnownKeys, *entries: KeyEntry) -> None:
    known.answered({each.key: each for each in entries})


def alive(name: str, revision: int) -> KeyEntry:
    return KeyEntry(f"{KEYS.prefix}alive/{name}", b"{}", revision)


# ------------------------------------------------------------------ what is there


def test_every_value_of_the_cluster_has_its_place(known: KnownKeys) -> None:
    assert not known.has_snapshot
    snapshot(
        known, 7, entry(KEY, replicas(A), 3), entry(KEYS.config, CONFIG, 4), alive("a", 5),
        entry(KEYS.server(A), HERE, 6),
    )  # fmt: skip
    assert known.has_snapshot
    assert (known.shard, known.shard_revision) == (replicas(A), 3)
    assert (known.config, known.servers, known.alive) == (CONFIG, {A: HERE}, {A})
    assert [known.revision(key) for key in (KEY, KEYS.config, KEYS.server(B))] == [3, 4, 0]


def test_what_is_gone_is_known_no_more(known: KnownKeys) -> None:
    there = [
        entry(KEY, replicas(A), 3), entry(KEYS.config, CONFIG, 4), alive("a", 5), alive("b", 5),
        entry(KEYS.server(A), HERE, 6), entry(KEYS.server(B), HERE, 6),
    ]  # fmt: skip
    snapshot(known, 7, *there)
    for revision, key in enumerate((KEY, KEYS.config, KEYS.alive(A), KEYS.server(A)), 8):
        before = known.changes
        watched(known, revision, gone=key)
        assert known.changes == before + 1
        assert known.revision(key) == 0
    assert (known.shard, known.shard_revision, known.config) == (None, 0, None)
    assert (known.servers, known.alive) == ({B: HERE}, {B})


def test_a_snapshot_without_a_key_says_that_it_is_gone(known: KnownKeys) -> None:
    snapshot(known, 7, alive("a", 5), alive("b", 6))
    snapshot(known, 9, alive("b", 6))
    assert known.alive == {B}


def test_what_a_server_announced_ends_with_its_lease(known: KnownKeys) -> None:
    snapshot(known, 7, KeyEntry(KEYS.alive(A), b'{"claim":"x","reads":4}', 5))
    assert known.announced == {A: Announcement("x", 4)}
    watched(known, 8, gone=KEYS.alive(A))
    assert known.announced == {}


def test_another_shard_is_passed_over(known: KnownKeys) -> None:
    snapshot(known, 7, entry(KEYS.shard(2), replicas(B), 3), KeyEntry("/else", b"", 4))
    assert known.shard is None
    watched(known, 8, gone=KEYS.shard(2))
    assert known.faults == {}


# ------------------------------------------------------------------ nothing goes back


def test_the_newest_that_was_heard_counts_whoever_said_it(known: KnownKeys) -> None:
    newer, newest = replicas(A, nonce="newer"), replicas(A, nonce="newest")
    snapshot(known, 7, entry(KEY, replicas(A), 3))
    answered(known, entry(KEY, newest, 9))
    before = known.changes
    watched(known, 8, entry(KEY, newer, 8))  # late: the answer came first
    watched(known, 9, entry(KEY, newest, 9))
    answered(known, entry(KEY, newer, 8))
    assert (known.shard, known.shard_revision, known.changes) == (newest, 9, before)


def test_what_an_answer_knew_first_is_not_taken_back_by_an_older_snapshot(
    known: KnownKeys,
) -> None:
    snapshot(known, 7)
    answered(known, entry(KEY, replicas(A), 9))
    snapshot(known, 8)
    assert known.shard_revision == 9
    watched(known, 9, gone=KEY)  # of before it was put
    assert known.shard_revision == 9
    watched(known, 10, gone=KEY)
    assert known.shard is None


def test_a_late_answer_does_not_bring_back_what_is_gone(known: KnownKeys) -> None:
    snapshot(known, 7, entry(KEY, replicas(A), 3))
    watched(known, 9, gone=KEY)
    answered(known, entry(KEY, replicas(A), 3), entry(KEYS.config, CONFIG, 8))
    assert (known.shard, known.revision(KEY), known.config) == (None, 0, None)


def test_a_late_answer_about_a_key_that_came_and_went_unseen_is_not_believed(
    known: KnownKeys,
) -> None:
    snapshot(known, 7)
    snapshot(known, 12)  # what was in between is not told
    answered(known, entry(KEY, replicas(A), 9))
    assert (known.shard, known.revision(KEY)) == (None, 0)
    answered(known, entry(KEY, replicas(A), 13))
    assert known.revision(KEY) == 13


def test_changes_of_one_revision_may_come_in_pieces(known: KnownKeys) -> None:
    snapshot(known, 7)
    watched(known, 8, entry(KEY, replicas(A), 8))
    watched(known, 8, entry(KEYS.config, CONFIG, 8))
    assert (known.shard, known.config) == (replicas(A), CONFIG)


def test_a_store_that_went_back_is_not_believed_any_more(known: KnownKeys) -> None:
    snapshot(known, 7, entry(KEY, replicas(A), 3), alive("a", 7))
    watched(known, 9, alive("b", 9))
    snapshot(known, 9, entry(KEY, replicas(A), 3), alive("a", 7), alive("b", 9))
    assert known.set_back is None
    snapshot(known, 8, entry(KEY, replicas(B), 4))
    assert known.set_back is not None
    assert "revision 8, after 9" in known.set_back
    snapshot(known, 20, entry(KEY, replicas(B), 15))
    watched(known, 21, gone=KEY)
    answered(known, entry(KEY, replicas(B), 22))
    assert (known.shard, known.shard_revision, known.alive) == (replicas(A), 3, {A, B})


# ------------------------------------------------------------------ values of other versions


def test_a_value_that_is_not_understood_leaves_what_was_known_and_is_a_fault(
    known: KnownKeys,
) -> None:
    snapshot(known, 7, entry(KEY, replicas(A), 3), entry(KEYS.config, CONFIG, 4))
    for revision, key in enumerate((KEY, KEYS.config, KEYS.server(A)), 8):
        watched(known, revision, KeyEntry(key, b'{"nonce":"x","more":1}', revision))
    assert (known.shard, known.shard_revision, known.config) == (replicas(A), 3, CONFIG)
    assert known.revision(KEY) == 8  # nothing may be asked by the older one
    assert known.faults.keys() == {KEY, KEYS.config, KEYS.server(A)}
    assert all(key in words for key, words in known.faults.items())


def test_a_fault_is_over_when_the_value_is_understood_or_gone(known: KnownKeys) -> None:
    snapshot(known, 7, KeyEntry(KEY, b"{}", 3), KeyEntry(KEYS.config, b"{}", 4))
    watched(known, 8, entry(KEY, replicas(A), 8))
    watched(known, 9, gone=KEYS.config)
    assert known.faults == {}
    assert known.shard_revision == 8


# ------------------------------------------------------------------ the cluster's secret


def test_the_secret_is_of_one_length_and_outlives_its_key(known: KnownKeys) -> None:
    assert known.unsealed is None  # nobody founded the shard yet
    snapshot(known, 3, entry(KEY, replicas(A), 2))
    assert "has no secret of this cluster" in (known.unsealed or "")
    settings = structs.replace(CONFIG, secret="s" * 1000)
    watched(known, 4, entry(KEYS.config, settings, 4))
    secret = known.secret
    assert secret is not None
    assert (len(secret), known.unsealed) == (32, None)
    watched(known, 5, gone=KEYS.config)
    watched(known, 6, entry(KEYS.config, CONFIG, 6))
    assert (known.secret, known.unsealed) == (secret, None)


def test_a_cluster_that_was_founded_before_there_were_seals_has_none(known: KnownKeys) -> None:
    snapshot(known, 3, entry(KEY, replicas(A), 2))
    assert known.secret is None
    watched(known, 4, entry(KEYS.config, CONFIG, 4))
    assert (known.secret, known.unsealed) == (b"", None)
