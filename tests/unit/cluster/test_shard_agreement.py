"""One server's part in what the cluster agrees on: to be known, to be found, and what it asks."""

from hashlib import sha256

import pytest
from msgspec.structs import replace

from oncemq.cluster.agreement.shard_agreement import AskRefused, ViewTold
from oncemq.coordination import transactions
from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    Found,
    Happened,
    KeyEntry,
    Overtaken,
    ReadEntries,
    Snapshot,
    StoreAway,
    StoreBack,
    Transact,
)
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import (
    ClusterConfig,
    ServerState,
    ShardReplicas,
    Value,
    decoded,
    encoded,
)
from oncemq.protocol.names import LeaderEpoch, ServerId
from oncemq.replication.view import Elect, Resign, Withdraw
from tests.harness.agreement import (
    FOUNDING,
    IDENTITY,
    KEY,
    KEYS,
    TAG,
    A,
    AgreeingServer,
    B,
    C,
    D,
    entry,
    life,
    opened,
    replicas,
    server_in,
    shard_in,
    stored,
)


@pytest.fixture
def store() -> LocalStore:
    return LocalStore()


def put(store: LocalStore, key: str, value: Value) -> None:
    """Somebody else changes a key."""
    store.put(key, encoded(value))


def delete(store: LocalStore, key: str, puts: dict[str, bytes] | None = None) -> None:
    """Somebody deletes a key, and changes others with it."""
    found = store.decide(ReadEntries((key, *(puts or {}))))
    assert isinstance(found, Found)
    revisions = {name: entry.revision for name, entry in found.entries.items()}
    assert isinstance(store.decide(Transact(revisions, puts or {}, (key,))), Happened)


def started(store: LocalStore, shard: ShardReplicas, name: ServerId = A) -> AgreeingServer:
    """A server that the shard's value knows, at rest."""
    put(store, KEYS.config, replace(FOUNDING, secret="drawn by the founder"))
    put(store, KEY, shard)
    return AgreeingServer(store, name).open().settle()


def leading(store: LocalStore) -> AgreeingServer:
    """Server a leads epoch 4, and b is there, too."""
    put(store, KEYS.alive(B), FOUNDING)
    return started(store, replicas(A, B, joining="c", leader=A, epoch=4))


def last_view(server: AgreeingServer) -> ViewTold:
    found = [each for each in server.told if isinstance(each, ViewTold)]
    return found[-1]


# ------------------------------------------------------------------ the first server


def test_nothing_is_asked_before_anything_was_heard(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    assert server.tick(10) == []
    assert server.take() == []
    assert not server.agreement.has_snapshot


def test_nothing_is_asked_before_a_directory_is_open(store: LocalStore) -> None:
    server = AgreeingServer(store).settle()
    assert server.agreement.has_snapshot
    assert (server.asked, server.agreement.view) == ([], None)


def test_the_first_server_founds_the_cluster_in_one_transaction(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    server.hear()
    ((request, _),) = server.take()
    founded = transactions.found(
        A, opened(A), identity=IDENTITY.hex(), tag=TAG, generation=0, leader_epoch=0,
        config=FOUNDING, nonce="a-claim.1",
    )  # fmt: skip
    config = replace(FOUNDING, nonce="a-claim.1", secret="a-claim.2a-claim.3")
    puts = {KEY: encoded(founded), KEYS.config: encoded(config)}
    assert request == Transact({KEY: 0, KEYS.config: 0}, puts)


def test_a_server_is_announced_and_found_once_its_opening_is_known(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    server.hear()
    assert server.agreement.announcements == []
    server.settle()
    assert server.agreement.alive == {A}
    state = server_in(store, A)
    assert state is not None
    assert (state.address, state.draining) == ("tcp://a:1", False)
    assert server.agreement.is_known
    assert len(server.asked) == 2  # to be known, and to be found


def test_of_two_founders_one_joins_the_other(store: LocalStore) -> None:
    first, second = AgreeingServer(store).open(), AgreeingServer(store, B).open()
    first.hear()
    second.hear()
    first.settle()
    second.settle()
    assert shard_in(store).replicas == [A, B]
    assert list(shard_in(store).joining) == [B]
    config = stored(store, KEYS.config, ClusterConfig)
    assert config == replace(FOUNDING, nonce="a-claim.1", secret="a-claim.2a-claim.3")
    secret = sha256(b"a-claim.2a-claim.3").digest()
    assert first.agreement.secret == second.agreement.secret == secret


def test_another_log_is_declined_until_a_new_directory_is_open(store: LocalStore) -> None:
    AgreeingServer(store).open().settle()
    server = AgreeingServer(store, B).open(identity=b"\6" * 16).settle()
    assert server.agreement.declined is not None
    assert "another log" in server.agreement.declined
    assert server.agreement.trouble == [server.agreement.declined]
    assert server.agreement.view is None
    server.open(life(B, disk="2")).tick()
    server.settle()
    assert (server.agreement.declined, server.agreement.trouble) == (None, [])
    assert shard_in(store).joining == {B: opened(B, disk="2")}


def test_a_cluster_begins_with_the_directory_of_its_founder(store: LocalStore) -> None:
    put(store, KEYS.config, ClusterConfig("c", founder=B))
    server = AgreeingServer(store).open().settle()
    assert server.agreement.declined == (
        "the cluster is to begin with the directory of b: start it"
    )
    AgreeingServer(store, B).open(promised=3).settle()
    server.settle()
    shard = shard_in(store)
    assert (list(shard.in_sync), list(shard.joining)) == ([B], [A])
    assert shard.leader_epoch >= 3
    config = stored(store, KEYS.config, ClusterConfig)
    assert config is not None
    assert config.secret != ""
    assert replace(config, nonce="c", secret="") == ClusterConfig("c", founder=B)


def test_a_replica_of_before_does_not_found_a_cluster_by_itself(store: LocalStore) -> None:
    server = AgreeingServer(store).open(promised=3).settle()
    assert server.agreement.declined is not None
    assert "a replica up to epoch 3" in server.agreement.declined
    assert stored(store, KEY, ShardReplicas) is None


def test_a_configuration_that_is_not_understood_founds_nothing(store: LocalStore) -> None:
    store.put(KEYS.config, b'{"nonce":"x","more":1}')
    server = AgreeingServer(store).open().settle()
    assert server.agreement.declined is not None
    assert KEYS.config in server.agreement.declined
    assert len(server.agreement.trouble) == 1  # said once
    assert stored(store, KEY, ShardReplicas) is None
    put(store, KEYS.config, ClusterConfig("c", min_in_sync=1))
    server.settle()
    assert server.agreement.trouble == []
    assert shard_in(store).min_in_sync == 1


# ------------------------------------------------------------------ answers that do not come


def test_a_lost_answer_is_repeated_as_the_same_transaction(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    server.hear()
    first = server.lose(happens=False)
    server.tick(0.9)
    assert server.take() == []
    server.tick(0.1)
    assert server.lose(happens=False) == first
    server.tick(1)
    server.settle()
    assert server.asked[:3] == first * 3
    assert shard_in(store).in_sync == {A: opened(A)}


def test_what_happened_without_an_answer_is_not_asked_again(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    server.hear()
    first = server.lose(happens=True)
    server.settle()
    server.tick(10)
    server.settle()
    assert server.asked.count(first[0]) == 1  # type: ignore[arg-type]
    assert server.agreement.is_known


def test_an_overtaken_wish_is_decided_anew(store: LocalStore) -> None:
    put(store, KEY, replicas(B))
    server = AgreeingServer(store).open()
    server.hear()
    ((before, token),) = server.take()
    later = replicas(B, joining="c")
    put(store, KEY, later)
    server.hear(Answered(token, Overtaken({KEY: entry(KEY, later, 2)})))
    ((after, _),) = server.take()
    assert isinstance(before, Transact)
    assert isinstance(after, Transact)
    assert (before.expected, after.expected) == ({KEY: 1}, {KEY: 2})
    joined = replicas(B, joining="ac", nonce="a-claim.2")
    assert decoded(after.puts[KEY], ShardReplicas, key=KEY) == joined


def test_the_answer_may_come_before_the_watch(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    server.hear()
    ((request, token),) = server.take()
    assert isinstance(request, Transact)
    told = server.hear(Answered(token, Happened(7)))
    (view,) = [each for each in told if isinstance(each, ViewTold)]
    assert view.view.revision == 7
    changes = {key: KeyEntry(key, value, 7) for key, value in request.puts.items()}
    assert server.hear(Changes(dict(changes), 7)) == []


# ------------------------------------------------------------------ views


def test_no_view_is_told_before_this_opening_is_known(store: LocalStore) -> None:
    put(store, KEY, replicas(B))
    server = AgreeingServer(store).open()
    assert server.hear() == []
    ((_, token),) = server.take()
    joined = replicas(B, joining="a")
    (told,) = server.hear(Answered(token, Overtaken({KEY: entry(KEY, joined, 5)})))
    assert told == ViewTold(server.agreement.view, frozenset())  # type: ignore[arg-type]
    assert server.agreement.view is not None
    assert (server.agreement.view.revision, server.agreement.view.replicas) == (5, (A, B))


def test_a_view_of_an_earlier_opening_is_not_told(store: LocalStore) -> None:
    server = started(store, replicas(A, B))
    server.open(life(A, 2))
    assert server.agreement.view is None
    assert server.tick() == []
    server.settle()
    assert shard_in(store).in_sync[A] == opened(A, 2)
    assert server.agreement.view is not None
    assert server.agreement.view.lives[A] == life(A, 2)


def test_views_never_go_back(store: LocalStore) -> None:
    server = started(store, replicas(A, B))
    newer, older = replicas(A, B, joining="c", nonce="2"), replicas(A, B, nonce="1")
    server.hear(Changes({KEY: entry(KEY, newer, 20)}, 20))
    assert server.hear(Changes({KEY: entry(KEY, older, 19)}, 19)) == []
    assert last_view(server).view.revision == 20


def test_the_same_is_told_once_and_whatever_the_rules_go_by_is_news(store: LocalStore) -> None:
    server = started(store, replicas(A, B))
    told = len(server.told)
    server.tick(1)
    store.put(KEYS.shard(2), b"{}")  # of another shard
    server.settle()
    assert len(server.told) == told
    put(store, KEYS.alive(B), FOUNDING)
    server.settle()
    assert last_view(server).alive == {A, B}
    put(store, KEYS.server(B), ServerState("s", "tcp://b:1"))
    server.settle()
    assert len(server.told) == told + 2  # others may have to be met
    put(store, KEYS.server(B), ServerState("t", "tcp://b:1", draining=True))
    server.settle()
    assert last_view(server).view.draining == {B}


def test_a_shard_of_another_log_is_no_view(store: LocalStore) -> None:
    server = started(store, replicas(A, B))
    put(store, KEY, replace(replicas(A, B), identity="ff"))
    server.settle()
    assert server.agreement.view is None


# ------------------------------------------------------------------ who is there no more


def test_who_was_removed_does_not_claim_its_place_again(store: LocalStore) -> None:
    server = started(store, replicas(A, B))
    asked = len(server.asked)
    put(store, KEY, replicas(B))
    server.settle()
    server.tick(10)
    assert server.take() == []
    assert len(server.asked) == asked
    assert server.agreement.declined is not None
    assert "a was removed from the cluster: stop it" in server.agreement.declined
    assert not server.agreement.is_known


def test_of_two_processes_with_one_id_the_earlier_is_told(store: LocalStore) -> None:
    first = AgreeingServer(store, claim="first").open().settle()
    second = AgreeingServer(store, claim="second", address="tcp://a:2").open(life(A, 2)).settle()
    first.settle()
    assert shard_in(store).in_sync == {A: opened(A, 2, claim="second")}
    here, there = first.agreement.trouble
    assert "another process, or another directory, runs as a (incarnation 61, opening 2)" in here
    assert "at tcp://a:2 (this one is at tcp://a:1)" in there
    assert second.agreement.trouble == []
    first.tick(10)
    assert first.take() == []


def test_a_copy_of_the_disk_is_told_from_the_disk_by_its_claim(store: LocalStore) -> None:
    first = AgreeingServer(store, claim="first").open().settle()
    AgreeingServer(store, claim="second").open().settle()
    first.settle()
    shard = shard_in(store)
    assert shard.in_sync == {A: opened(A, claim="first")}
    assert shard.joining == {A: opened(A, claim="second")}
    assert first.agreement.is_known  # its place is there, and empty: nobody is elected there
    view = first.agreement.view
    assert view is not None
    assert view.lives == {}


def test_a_shard_that_etcd_lost_is_not_founded_again(store: LocalStore) -> None:
    server = AgreeingServer(store).open().settle()
    store.decide(Transact({KEY: 1}, {}, (KEY,)))
    assert stored(store, KEY, ShardReplicas) is None
    server.settle()
    server.tick(10)
    assert server.take() == []
    assert server.agreement.declined is not None
    assert "etcd has lost the shard" in server.agreement.declined


# ------------------------------------------------------------------ a store that is not itself


def test_a_store_that_was_set_back_is_not_believed_and_nothing_is_asked(
    store: LocalStore,
) -> None:
    server = leading(store)
    view = server.agreement.view
    server.hear(Snapshot({KEY: entry(KEY, replicas(B), 1)}, 1))
    assert server.agreement.view == view
    assert view is not None
    server.agreement.ask(Withdraw(), view.revision)
    server.agreement.ask(Resign(B), view.revision)
    assert server.tick(10) == []
    assert server.take() == []
    (trouble,) = server.agreement.trouble
    assert "etcd was put back to an older copy" in trouble


def test_a_value_of_another_version_leaves_the_view_and_nothing_is_asked(
    store: LocalStore,
) -> None:
    server = leading(store)
    view = server.agreement.view
    assert view is not None
    store.put(KEY, b'{"nonce":"x","more":1}')
    server.settle()
    assert server.agreement.view == view
    server.agreement.ask(Resign(B), view.revision)
    assert (server.take(), server.tick()) == ([], [])
    (trouble,) = server.agreement.trouble
    assert "this version cannot read" in trouble


def test_a_newcomer_that_cannot_read_the_shard_is_declined_in_words(store: LocalStore) -> None:
    store.put(KEY, b'{"nonce":"x","more":1}')
    server = AgreeingServer(store).open().settle()
    assert server.agreement.declined is not None
    assert "this version cannot read" in server.agreement.declined
    assert len(server.agreement.trouble) == 1
    assert server_in(store, A) is not None  # it may say where it is


def test_that_etcd_is_away_is_said_while_it_is(store: LocalStore) -> None:
    server = leading(store)
    view = server.agreement.view
    server.hear(StoreAway("no route"))
    (trouble,) = server.agreement.trouble
    assert trouble.startswith("etcd is away (no route)")
    assert (server.agreement.away, server.agreement.view) == ("no route", view)
    server.hear(StoreBack())
    assert (server.agreement.away, server.agreement.trouble) == (None, [])


# ------------------------------------------------------------------ where servers are


def test_who_moved_says_so_and_stays_what_an_operator_made_of_it(store: LocalStore) -> None:
    put(store, KEYS.server(A), ServerState("s", "tcp://old:1", draining=True))
    server = started(store, replicas(A, B))
    assert server_in(store, A) == ServerState("a-claim.1", "tcp://a:1", draining=True)
    assert server.agreement.is_draining
    assert server.agreement.trouble == []


def test_who_did_not_move_says_nothing(store: LocalStore) -> None:
    put(store, KEYS.server(A), ServerState("s", "tcp://a:1"))
    server = started(store, replicas(A, B))
    assert server.asked == []
    assert not server.agreement.is_draining


def test_who_is_not_let_in_does_not_move_a_server_that_is_there(store: LocalStore) -> None:
    put(store, KEY, replicas(A, B, C))
    put(store, KEYS.server(D), ServerState("s", "tcp://old:1"))
    server = AgreeingServer(store, D).open().settle()
    assert server.agreement.declined is not None
    assert "remove one of them" in server.agreement.declined
    assert server_in(store, D) == ServerState("s", "tcp://old:1")
    assert server.agreement.announcements == []
    assert server.agreement.alive == frozenset()


def test_where_it_is_is_said_again_when_that_had_no_answer(store: LocalStore) -> None:
    put(store, KEY, replicas(A, B))
    server = AgreeingServer(store).open()
    server.hear()
    first = server.lose(happens=False)
    server.tick(1)
    assert server.lose(happens=False) == first
    assert server_in(store, A) is None


def test_where_it_is_is_said_again_when_somebody_deleted_it(store: LocalStore) -> None:
    """Others had no address of it, and waited for good."""
    server = started(store, replicas(A, B))
    said = server_in(store, A)
    assert said is not None
    delete(store, KEYS.server(A))
    server.settle()
    again = server_in(store, A)
    assert again is not None
    assert again.address == said.address


def test_who_was_removed_does_not_say_where_it_is(store: LocalStore) -> None:
    server = started(store, replicas(B, C, joining="a"))
    asked = len(server.asked)
    delete(store, KEYS.server(A), {KEY: encoded(replace(shard_in(store), joining={}))})
    server.settle()
    assert server_in(store, A) is None
    assert len(server.asked) == asked


def test_a_state_of_another_version_is_left_as_it_is(store: LocalStore) -> None:
    store.put(KEYS.server(A), b"{}")
    server = started(store, replicas(A, B))
    assert server.asked == []
    assert "this version cannot read" in server.agreement.trouble[0]


def test_the_leader_is_named_with_its_address_and_epoch(store: LocalStore) -> None:
    server = AgreeingServer(store)
    assert server.agreement.leader_address() == ("", LeaderEpoch(0))
    put(store, KEY, replicas(A, B, leader=B, epoch=4))
    server.hear()
    assert server.agreement.leader_address() == ("", LeaderEpoch(4))
    put(store, KEYS.server(B), ServerState("s", "tcp://b:1"))
    server.hear()
    assert server.agreement.leader_address() == ("tcp://b:1", LeaderEpoch(4))
    put(store, KEY, replicas(A, B, epoch=4, nonce="m"))
    server.hear()
    assert server.agreement.leader_address() == ("", LeaderEpoch(4))


# ------------------------------------------------------------------ what the rules ask


def revision(server: AgreeingServer) -> int:
    view = server.agreement.view
    assert view is not None
    return view.revision


def test_what_is_asked_rests_on_the_revision_that_it_was_decided_at(store: LocalStore) -> None:
    server = leading(store)
    at = revision(server)
    server.agreement.ask(Resign(B), at)
    ((request, _),) = server.take()
    assert isinstance(request, Transact)
    assert request.expected == {KEY: at}
    resigned = replicas(A, B, joining="c", leader=B, epoch=5, nonce="a-claim.2")
    assert decoded(request.puts[KEY], ShardReplicas, key=KEY) == resigned


def test_at_any_other_revision_nothing_is_asked(store: LocalStore) -> None:
    server = leading(store)
    for other in (revision(server) - 1, revision(server) + 1):
        server.agreement.ask(Resign(B), other)
    assert (server.take(), server.tick()) == ([], [])


def test_nothing_is_asked_of_a_shard_that_is_not_there(store: LocalStore) -> None:
    server = AgreeingServer(store).open()
    server.agreement.ask(Elect(A, LeaderEpoch(1)), 0)
    assert (server.take(), server.tick()) == ([], [])


def test_nothing_is_asked_without_a_directory(store: LocalStore) -> None:
    put(store, KEY, replicas(A, B))
    server = AgreeingServer(store).settle()
    server.agreement.ask(Elect(A, LeaderEpoch(1)), 1)
    assert (server.take(), server.tick()) == ([], [])


def test_an_ask_is_under_way_once_and_repeated_as_it_was(store: LocalStore) -> None:
    server = leading(store)
    at = revision(server)
    server.agreement.ask(Resign(B), at)
    server.agreement.ask(Resign(B), at)
    server.agreement.ask(Withdraw(), at)  # the other may happen: nothing else meanwhile
    first = server.lose(happens=False)
    assert len(first) == 1
    server.agreement.ask(Resign(B), at)
    assert server.lose(happens=False) == first
    assert server.tick() == []


def test_what_was_asked_before_a_directory_was_opened_anew_is_forgotten(
    store: LocalStore,
) -> None:
    server = leading(store)
    server.agreement.ask(Resign(B), revision(server))
    server.lose(happens=False)
    server.agreement.ask(Resign(D), revision(server))
    server.open(life(A, 2)).settle()
    assert not any(isinstance(each, AskRefused) for each in server.told)
    assert shard_in(store).in_sync[A] == opened(A, 2)


def test_the_lead_is_not_given_to_who_has_no_lease(store: LocalStore) -> None:
    server = started(store, replicas(A, B, leader=A, epoch=4))
    at = revision(server)
    server.agreement.ask(Resign(B), at)
    assert server.take() == []
    assert server.tick() == [AskRefused(at)]
    assert server.tick() == []


def test_what_is_against_the_rules_or_is_so_already_is_refused(store: LocalStore) -> None:
    server = leading(store)
    at = revision(server)
    for ask in (Resign(A), Withdraw()):
        server.agreement.ask(ask, at)
        assert (server.take(), server.tick()) == ([], [AskRefused(at)])


def test_an_election_is_asked_with_what_the_directory_promised(store: LocalStore) -> None:
    put(store, KEY, replicas(A, B, epoch=4))
    server = AgreeingServer(store).open(promised=4).settle()
    server.agreement.ask(Elect(A, LeaderEpoch(5)), revision(server))
    server.settle()
    shard = shard_in(store)
    assert (shard.leader, shard.leader_epoch) == (A, 5)


def test_a_directory_that_promised_more_than_etcd_knows_is_not_let_in(store: LocalStore) -> None:
    put(store, KEY, replicas(B, joining="a", epoch=4))
    server = AgreeingServer(store).open(life(A, 2), promised=5).settle()
    assert server.agreement.declined is not None
    assert "etcd was put back to an older copy" in server.agreement.declined
    assert server.asked == [] or KEY not in server.asked[0].puts
