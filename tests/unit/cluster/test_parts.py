"""The parts that a server has, one after the other: what ends one, and what comes next."""

import pytest

from oncemq.coordination.values import ClusterConfig, encoded
from oncemq.errors import StorageRefused
from oncemq.protocol.names import Epoch, LeaderEpoch, Micros, Serial
from oncemq.protocol.replicas.messages import (
    Append,
    Appended,
    Cut,
    Life,
    Mismatch,
    Place,
    RefillBegin,
    RefillFile,
    Stale,
)
from oncemq.protocol.requests import Start, Subscribe
from oncemq.replication.actions import StepDown
from oncemq.replication.view import Ask, Resign
from oncemq.storage.segments.promised_epoch import PromisedEpoch
from tests.harness.agreement import IDENTITY, KEY, SHARD, TAG, A, B, C, replicas, shard_in
from tests.harness.played_cluster import DATA, LEADER, PlayedCluster
from tests.harness.replica_logs import LeaderLog
from tests.harness.server import GUEST

ALONE = ClusterConfig("", min_in_sync=1)
SUBSCRIBE = Subscribe(GUEST, Epoch(0), "t", Start())
ANOTHER = Subscribe(GUEST, Epoch(0), "u", Start())


def leading() -> PlayedCluster:
    """A leads epoch 1, with records that are committed; b is in sync."""
    cluster = PlayedCluster(ALONE)
    cluster.until_served()
    cluster.answer(SUBSCRIBE)
    cluster.join(B)
    cluster.turns(0.1)
    cluster.has(B)
    cluster.turn()
    return cluster


def following(*, topics: int = 0) -> PlayedCluster:
    """B leads epoch 3 with such a log, and a, which is empty, follows."""
    leader = LeaderLog(b"\5", topics=topics, epoch=3)
    shard = replicas(B, C, leader=B, epoch=3)
    cluster = PlayedCluster(shard=shard)
    cluster.led_by(B, 3)
    cluster.turns(0.3)
    cluster.says(*leader.append())
    cluster.turn()
    cluster.said.clear()
    return cluster


def promised(cluster: PlayedCluster) -> int:
    """On the disk."""
    return PromisedEpoch(cluster.disk, DATA).leader_epoch


def role(cluster: PlayedCluster) -> str:
    parts = cluster.parts
    has = {
        "leads": parts.leading, "follows": parts.following, "is filled": parts.filling,
    }  # fmt: skip
    return next((name for name, part in has.items() if part is not None), "has none")


# ------------------------------------------------------------------ nothing yet


def test_a_server_without_a_log_waits_to_hear_of_the_cluster() -> None:
    cluster = PlayedCluster()
    for _ in range(10):
        cluster.replica.tick(Micros(cluster.now))
        cluster.now += 100_000
    assert (cluster.parts.opened, role(cluster)) == (None, "has none")


def test_without_a_cluster_it_begins_with_a_log_of_its_own() -> None:
    cluster = PlayedCluster()
    cluster.turns(0.3)
    assert cluster.directory.log.identity.hex() == shard_in(cluster.store).identity
    assert shard_in(cluster.store).in_sync.keys() == {A}
    assert (role(cluster), cluster.parts.driver) == ("leads", None)  # with too few to commit


def test_in_a_cluster_it_begins_with_an_empty_log_of_the_shard() -> None:
    cluster = PlayedCluster(shard=replicas(B, C))
    cluster.turns(0.2)
    log = cluster.directory.log
    assert (log.identity, log.tag, log.last_serial) == (IDENTITY, TAG, 0)
    assert shard_in(cluster.store).joining.keys() == {A}


def test_a_new_log_is_given_up_when_another_server_founded_the_shard_first() -> None:
    cluster = PlayedCluster()
    cluster.replica.take_news(Micros(cluster.now))
    cluster.parts.tick(Micros(cluster.now))  # it has heard of nobody, and begins
    own = cluster.directory.log.identity
    cluster.store.put(KEY, encoded(replicas(B, C)))
    cluster.turns(0.2)
    assert own != IDENTITY
    assert cluster.directory.log.identity == IDENTITY
    assert shard_in(cluster.store).joining.keys() == {A}


def test_a_log_with_records_is_never_given_up() -> None:
    cluster = leading()
    cluster.kill()
    identity = cluster.directory.log.identity
    cluster.store.put(KEY, encoded(replicas(B, C)))
    cluster.start()
    cluster.turns(0.5)
    assert cluster.directory.log.identity == identity
    assert "another log" in str(cluster.agreement.declined)
    assert shard_in(cluster.store).replicas == [B, C]


def test_a_log_is_open_before_anything_is_heard_and_nothing_is_said_of_it() -> None:
    cluster = leading()
    cluster.led_by(B, 7)
    cluster.kill()
    cluster.start()
    assert role(cluster) == "follows"
    cluster.says(cluster.heartbeat(9))
    assert cluster.parts.outgoing == []
    assert promised(cluster) == 1
    cluster.turns(0.2)
    cluster.says(cluster.heartbeat(9))
    cluster.turn()
    assert [route for route, _ in cluster.said] == [LEADER]


# ------------------------------------------------------------------ elected


def test_what_a_server_finds_at_its_start_it_promises_and_does_not_lead() -> None:
    cluster = leading()
    cluster.kill()
    cluster.start()
    cluster.change(leader=A, leader_epoch=6)
    for _ in range(30):
        cluster.turn()
        if promised(cluster) != 1:
            break
    assert (promised(cluster), role(cluster)) == (6, "follows")
    cluster.turns(0.5)
    assert shard_in(cluster.store).leader_epoch == 7
    assert (promised(cluster), role(cluster)) == (7, "leads")


def test_who_is_elected_promises_then_leads() -> None:
    cluster = PlayedCluster(ALONE)
    cluster.until_served()
    assert promised(cluster) == 1
    assert shard_in(cluster.store).leader == A
    assert cluster.directory.epochs().newest == 1
    assert (role(cluster), cluster.parts.housekeeping is not None) == ("leads", True)


def test_the_least_in_sync_is_the_shards_and_not_the_servers_own() -> None:
    cluster = PlayedCluster(ClusterConfig("", min_in_sync=2))
    cluster.turns(1)
    cluster.change(min_in_sync=1)
    cluster.kill()
    cluster.start()
    cluster.until_served()


# ------------------------------------------------------------------ stepping down


def test_who_steps_down_opens_its_log_anew_and_follows_with_the_same_life() -> None:
    cluster = leading()
    before, life = cluster.directory, cluster.directory.life
    token = cluster.ask(ANOTHER)
    cluster.turn()
    cluster.led_by(B, 7)
    cluster.turns(0.1)
    assert role(cluster) == "follows"
    assert cluster.directory is not before
    assert cluster.directory.life == life
    assert promised(cluster) == 7
    assert token in cluster.answers


def test_that_waits_until_nothing_is_under_way_to_the_disk() -> None:
    cluster = leading()
    before = cluster.directory
    cluster.ask(ANOTHER)
    cluster.now += 100_000
    group = cluster.replica.commit(Micros(cluster.now))
    assert group is not None
    cluster.led_by(B, 7)
    cluster.turns(0.2)
    assert (cluster.directory, cluster.parts.driver) == (before, None)
    assert isinstance(cluster.parts.closing, StepDown)
    cluster.replica.log.write(group)
    cluster.replica.written(group, Micros(cluster.now))
    cluster.worker.under_way = 1  # nor to the janitor
    cluster.turn()
    assert cluster.directory is before
    cluster.worker.under_way = 0
    cluster.turn()
    assert cluster.directory is not before
    assert cluster.directory.log.last_serial == group.last_serial


def test_while_it_closes_nothing_is_heard_written_or_answered() -> None:
    cluster = leading()
    cluster.worker.under_way = 1
    cluster.led_by(B, 7)
    cluster.turn()
    closing, before = cluster.parts.closing, cluster.directory
    assert closing is not None
    cluster.ask(ANOTHER)
    cluster.says(cluster.heartbeat(7))
    cluster.says(cluster.heartbeat(1))
    cluster.has(B)
    cluster.led_by(B, 8)
    cluster.links.sent.clear()
    cluster.said.clear()
    cluster.turns(0.3)
    assert (cluster.parts.closing, cluster.directory) == (closing, before)
    assert (cluster.links.sent, cluster.said) == ([], [])
    assert promised(cluster) == 1
    assert cluster.replica.next_commit() is None


def test_what_was_not_committed_is_not_in_the_state_of_who_stepped_down() -> None:
    cluster = leading()
    cluster.ask(ANOTHER)
    cluster.turn()
    cluster.led_by(B, 7)
    cluster.turns(0.1)
    assert cluster.directory.log.last_serial > cluster.directory.applied
    assert cluster.directory.shard.by_name == {}


def test_answers_are_numbered_on_over_all_parts() -> None:
    cluster = following(topics=2)
    cluster.says(cluster.heartbeat(3))
    cluster.turn()
    ((_, said),) = cluster.said
    assert isinstance(said, Appended)
    cluster.says(Cut(SHARD, LeaderEpoch(4), cluster.directory.tail, Serial(2)))
    cluster.turns(0.1)
    cluster.said.clear()
    cluster.says(cluster.heartbeat(4))
    cluster.turn()
    ((_, later),) = cluster.said
    assert isinstance(later, Appended)
    assert later.answered.life == said.answered.life
    assert later.answered.number > said.answered.number


def test_who_led_was_proven_and_leads_again_without_asking() -> None:
    cluster = leading()
    cluster.led_by(B, 7)
    cluster.turns(0.1)
    assert cluster.parts.following is not None
    assert cluster.parts.following.rules.is_proven
    cluster.change(leader=A, leader_epoch=8)
    cluster.turns(0.1)
    assert cluster.parts.leading is not None
    assert cluster.directory.epochs().newest == 8  # though nobody has answered


def test_a_restarted_server_that_is_elected_asks_first() -> None:
    cluster = leading()
    cluster.kill()
    cluster.start()
    cluster.turns(0.2)
    cluster.change(leader=A, leader_epoch=8)
    cluster.turns(0.1)
    assert cluster.parts.leading is not None
    assert cluster.directory.epochs().newest == 1
    cluster.has(B)
    cluster.turn()
    assert cluster.directory.epochs().newest == 8


# ------------------------------------------------------------------ other leaders


def test_a_leader_tells_one_of_a_lower_epoch_and_yields_to_a_higher_one() -> None:
    cluster = leading()
    cluster.change(leader_epoch=4)
    cluster.turns(0.2)
    cluster.until_served()  # of epoch 4 or higher
    assert cluster.parts.leading is not None
    mine = cluster.parts.leading.rules.leader_epoch
    cluster.said.clear()
    cluster.says(cluster.heartbeat(mine - 1), route=b"old")
    cluster.says(cluster.heartbeat(mine), route=b"same")
    cluster.turn()
    assert cluster.said == [(b"old", Stale(SHARD, LeaderEpoch(mine - 1), mine))]
    cluster.says(cluster.heartbeat(mine + 1))
    assert cluster.parts.leading.stepped_down is not None
    assert cluster.parts.driver is None


def test_a_follower_takes_what_its_leader_sends() -> None:
    cluster = following(topics=3)
    assert cluster.directory.log.durable_serial == 4
    assert (promised(cluster), role(cluster)) == (3, "follows")
    cluster.says(cluster.heartbeat(3, commit=4))
    cluster.turn()
    assert sorted(cluster.directory.shard.topics) == [1, 2, 3]


def test_a_follower_that_is_cut_goes_on_with_the_rest() -> None:
    cluster = following(topics=3)
    life = cluster.directory.life
    cluster.says(Cut(SHARD, LeaderEpoch(3), Place(Serial(1), LeaderEpoch(1), 9), Serial(1)))
    cluster.turns(0.1)
    assert cluster.directory.log.last_serial == 4  # it is matched: that was a late copy
    cluster.says(Cut(SHARD, LeaderEpoch(4), cluster.directory.tail, Serial(2)))
    cluster.turns(0.1)
    assert (cluster.directory.log.last_serial, cluster.directory.life) == (2, life)
    assert (role(cluster), promised(cluster)) == ("follows", 4)
    cluster.said.clear()
    cluster.says(Append(SHARD, LeaderEpoch(4), Place(Serial(9), LeaderEpoch(4), 1), 0, Serial(0)))
    cluster.turn()
    ((_, said),) = cluster.said  # it is let in still: its opening is the same
    assert isinstance(said, Mismatch)
    assert said.tail == cluster.directory.tail


def test_who_is_damaged_halts_in_words() -> None:
    cluster = following(topics=3)
    tail = cluster.directory.tail
    other = Place(tail.serial, tail.leader_epoch, tail.chain ^ 1)
    cluster.says(cluster.heartbeat(3, at=other))
    with pytest.raises(StorageRefused, match="one of the two disks changed it") as halted:
        cluster.turn()
    assert halted.value.code == "replica_halted"


def test_who_is_filled_has_no_part_in_the_shard_meanwhile() -> None:
    cluster = following(topics=1)
    pinned = cluster.directory.log.pin()
    files = tuple(RefillFile(each.name, each.size, 0) for each in pinned.files)
    pinned.release()
    tail = cluster.directory.tail
    cluster.says(RefillBegin(SHARD, LeaderEpoch(3), tail, tail, files))
    cluster.turn()
    cluster.turn()
    assert (role(cluster), cluster.parts.driver) == ("is filled", None)
    assert cluster.parts.following is None


# ------------------------------------------------------------------ asked and refused


def asked(cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch) -> list[Ask]:
    """What the rules ask of the coordinator from now on."""
    found: list[Ask] = []
    ask = cluster.agreement.ask

    def noted(wanted: Ask, revision: int) -> None:
        found.append(wanted)
        ask(wanted, revision)

    monkeypatch.setattr(cluster.agreement, "ask", noted)
    return found


def test_who_promised_more_than_etcd_knows_does_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = leading()
    cluster.directory.promise(LeaderEpoch(50))
    cluster.kill()
    cluster.coordinator.close()
    cluster.start()
    found = asked(cluster, monkeypatch)
    cluster.turns(0.5)
    assert (found, role(cluster)) == ([], "follows")
    assert "etcd was put back" in str(cluster.agreement.declined)


def test_a_leader_that_was_refused_decides_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PlayedCluster(ALONE)
    found = asked(cluster, monkeypatch)
    cluster.until_served()
    found.clear()
    cluster.join(B, alive=False)  # the lead is not given to who has no lease
    cluster.join(C)
    cluster.turns(0.1)
    cluster.replica.may_stop(Micros(cluster.now))  # it drains
    for later in (B, C):  # the one that was heard of last is to lead
        for name in (B, C, later):
            cluster.has(name)
        cluster.turns(1.1)
    assert found == [Resign(B), Resign(C)]
    assert shard_in(cluster.store).leader == C


def test_a_server_that_is_removed_goes_on_as_it_was_and_says_so() -> None:
    cluster = leading()
    cluster.led_by(B, 7)
    cluster.turns(0.1)
    shard = shard_in(cluster.store)
    rest = {name: there for name, there in shard.in_sync.items() if name != A}
    cluster.change(in_sync=rest)
    cluster.turns(0.3)
    assert "a was removed from the cluster" in str(cluster.agreement.declined)
    assert shard_in(cluster.store).replicas == [B]
    assert role(cluster) == "follows"


def test_the_end_leaves_the_directory_to_others() -> None:
    for cluster in (leading(), following(topics=1)):
        cluster.replica.close()
        cluster.disk.lock(f"{DATA}/lock").release()
    nobody = PlayedCluster()
    nobody.replica.close()
    assert nobody.parts.opened is None


def test_another_life_is_let_in_anew() -> None:
    cluster = following(topics=1)
    first = cluster.directory.life
    cluster.kill()
    cluster.start()
    assert cluster.directory.life == Life(first.incarnation, first.openings + 1)
    cluster.turns(0.2)
    assert shard_in(cluster.store).joining[A].openings == first.openings + 1
