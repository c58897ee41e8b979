"""A replica as the loop drives it: whom it tells what, and what it answers to clients."""

import pytest
from msgspec.structs import replace

from oncemq.broker.expiry import Calendar
from oncemq.cluster.replica import STOP_MICROS, TICK
from oncemq.coordination.coordinator import ReadEntries, StoreAway
from oncemq.coordination.values import ClusterConfig, ServerState, encoded
from oncemq.protocol.names import Epoch, LeaderEpoch, Micros, ShardId, TopicId
from oncemq.protocol.replicas.messages import Appended, Stale
from oncemq.protocol.replies import RefusedReply, StatusReport, Subscribed, TopicList, not_leader
from oncemq.protocol.requests import ListTopics, Start, StatusRequest, Subscribe
from oncemq.server.clock import DOWN_MICROS
from oncemq.wire.codec import subject
from oncemq.wire.replica_codec import encode_replica
from oncemq.wire.replica_seal import sealed
from tests.harness.agreement import KEYS, SHARD, A, B, C, replicas, shard_in
from tests.harness.played_cluster import CLIENT, LEADER, TURN, PlayedCluster
from tests.harness.replica_logs import LeaderLog, topic
from tests.harness.server import GUEST

ALONE = ClusterConfig("", replicas=3, min_in_sync=1)
SUBSCRIBE = Subscribe(GUEST, Epoch(0), "t", Start())


@pytest.fixture
def follows() -> PlayedCluster:
    """B leads epoch 3; a, which founded the cluster, follows."""
    cluster = PlayedCluster()
    for _ in range(20):
        cluster.turn()
        if cluster.agreement.is_known:
            break
    cluster.led_by(B, 3)
    cluster.turns(0.1)
    return cluster


@pytest.fixture
def leads() -> PlayedCluster:
    """A leads, alone in sync, which is enough."""
    cluster = PlayedCluster(ALONE)
    cluster.until_served()
    return cluster


@pytest.fixture
def leads_b() -> PlayedCluster:
    """A leads, and b has to have what is committed."""
    cluster = PlayedCluster(ALONE)
    cluster.until_served()
    cluster.join(B)
    cluster.turns(0.1)
    cluster.has(B)
    cluster.turn()
    return cluster


def facts(cluster: PlayedCluster) -> dict[str, object]:
    answer = cluster.answer(StatusRequest())
    assert isinstance(answer, StatusReport)
    return dict(answer.facts)


# ------------------------------------------------------------------ who does not lead


def test_a_client_is_told_who_leads(follows: PlayedCluster) -> None:
    assert follows.answer(SUBSCRIBE) == not_leader("tcp://b:1", 3)


def test_nothing_a_follower_is_asked_changes_it(follows: PlayedCluster) -> None:
    last = follows.directory.log.last_serial
    follows.answer(SUBSCRIBE)
    assert follows.directory.log.last_serial == last


def test_a_server_never_names_itself(follows: PlayedCluster) -> None:
    follows.change(leader=A, leader_epoch=9)  # it is to lead, and does not yet
    for event in follows.coordinator.take():
        follows.agreement.heard(event, Micros(follows.now))
    token = follows.ask(SUBSCRIBE)
    follows.replica.take_news(Micros(follows.now))
    follows._take_outgoing()
    assert follows.answers[token] == not_leader("", 9)


def test_what_is_wrong_is_said_where_no_leader_is_known() -> None:
    cluster = PlayedCluster()
    cluster.replica._hear_agreement(
        cluster.agreement.heard(StoreAway("no route"), Micros(0)), Micros(0)
    )
    answer = cluster.answer(SUBSCRIBE)
    assert isinstance(answer, RefusedReply)
    assert (answer.code, answer.leader) == ("not_leader", "")
    assert answer.detail.startswith("does not lead: etcd is away (no route)")


def test_every_server_answers_for_itself(follows: PlayedCluster) -> None:
    told = facts(follows)
    assert (told["cluster_role"], told["cluster_leader"]) == ("follows", "tcp://b:1")
    assert told["checkpoint_written"] == 0


def test_what_is_no_request_is_refused_as_such(follows: PlayedCluster) -> None:
    follows.replica.receive(CLIENT, [b"no message of this protocol"], Micros(follows.now))
    follows.turn()
    (answer,) = follows.answers.values()
    assert isinstance(answer, RefusedReply)
    assert answer.code != "not_leader"


# ------------------------------------------------------------------ who says what


def test_messages_of_replicas_that_are_none_are_passed_over(follows: PlayedCluster) -> None:
    now = Micros(follows.now)
    good = follows.sealed(follows.heartbeat(3))
    elsewhere = follows.sealed(replace(follows.heartbeat(3), shard=ShardId(2)))
    of_a_member = follows.sealed(Stale(SHARD, LeaderEpoch(3), LeaderEpoch(9)))
    short = sealed([bytes(good[0])[:-3], b""], follows.agreement.secret)
    damaged = [short, [good[0]], elsewhere, of_a_member]
    for frames in damaged:
        follows.replica.receive(b"leader", frames, now)
        follows.links.said.append((B, frames))
    follows.turn()
    assert (follows.said, follows.answers) == ([], {})
    follows.replica.receive(b"leader", good, now)
    follows.turn()
    assert [route for route, _ in follows.said] == [b"leader"]


def test_a_stranger_is_neither_followed_nor_heard(follows: PlayedCluster) -> None:
    for frames in (
        encode_replica(follows.heartbeat(9)),
        sealed(encode_replica(follows.heartbeat(9)), b"another cluster's"),
    ):
        follows.replica.receive(b"leader", frames, Micros(follows.now))
        follows.links.said.append((B, frames))
    follows.turn()
    assert follows.said == []
    assert follows.directory.promised.leader_epoch == 3
    assert follows.replica.events.counts["stranger_refused"] == 4


def test_what_a_stranger_says_again_takes_no_answer_from_the_leader() -> None:
    """What was recorded has a seal that holds: syncs were told to whoever spoke last."""
    leader = LeaderLog(b"\5", topics=1, epoch=3)
    cluster = PlayedCluster(shard=replicas(B, C, leader=B, epoch=3))
    cluster.led_by(B, 3)
    cluster.turns(0.3)
    cluster.says(*leader.append())
    cluster.turn()
    recorded = cluster.sealed(cluster.heartbeat(3))
    after = leader.log.last_serial
    last = leader.write(topic(7))
    cluster.says(*leader.append(after))
    cluster.said.clear()
    for number in range(40):
        cluster.replica.receive(b"stranger%d" % number, recorded, Micros(cluster.now))
    cluster.turn()
    said = [message for route, message in cluster.said if route == LEADER]
    assert [each.synced for each in said if isinstance(each, Appended)] == [last]


def test_what_a_member_says_counts_only_on_the_connection_to_it(leads_b: PlayedCluster) -> None:
    stale = leads_b.sealed(Stale(SHARD, LeaderEpoch(1), LeaderEpoch(9)))
    leads_b.replica.receive(b"somebody", stale, Micros(leads_b.now))
    leads_b.turn()
    assert leads_b.parts.driver is not None
    other = leads_b.sealed(Stale(ShardId(2), LeaderEpoch(1), LeaderEpoch(9)))
    leads_b.links.said.extend([(B, other), (B, leads_b.sealed(leads_b.heartbeat(9)))])
    leads_b.turn()
    assert leads_b.parts.driver is not None
    leads_b.links.said.append((B, stale))
    leads_b.replica.take_news(Micros(leads_b.now))
    assert leads_b.parts.driver is None


def test_the_others_are_met_where_they_are(follows: PlayedCluster) -> None:
    assert follows.links.addresses == {B: "tcp://b:1"}
    follows.store.put(KEYS.server(C), encoded(ServerState("s", "tcp://c:1")))
    follows.turn()
    assert follows.links.addresses == {B: "tcp://b:1", C: "tcp://c:1"}


def test_a_new_connection_is_asked_anew(leads_b: PlayedCluster) -> None:
    leads_b.turn()
    leads_b.links.sent.clear()
    leads_b.links.new.append(B)
    leads_b.turn()
    assert [name for name, _, _ in leads_b.links.sent] == [B]


# ------------------------------------------------------------------ who leads


def test_a_leader_answers_its_clients(leads: PlayedCluster) -> None:
    assert isinstance(leads.answer(SUBSCRIBE), Subscribed)
    answer = leads.answer(ListTopics())
    assert isinstance(answer, TopicList)
    told = facts(leads)
    assert told["cluster_role"] == "leads"
    assert told["cluster_commit"] == leads.directory.log.last_serial


def test_what_others_have_to_have_is_answered_when_they_have_it(leads_b: PlayedCluster) -> None:
    token = leads_b.ask(SUBSCRIBE)
    leads_b.turn()
    leads_b.turn()
    assert token not in leads_b.answers
    leads_b.has(B)
    leads_b.turn()
    assert isinstance(leads_b.answers[token], Subscribed)


def test_who_waits_for_a_leader_that_steps_down_is_told_once(leads_b: PlayedCluster) -> None:
    token = leads_b.ask(SUBSCRIBE)
    answered = leads_b.ask(StatusRequest())
    leads_b.turn()
    leads_b.answers.pop(answered)
    leads_b.led_by(B, 7)
    leads_b.turn()
    assert leads_b.answers == {token: not_leader("tcp://b:1", 7)}
    leads_b.answers.clear()
    leads_b.turns(0.2)
    assert leads_b.answers == {}


def test_who_waits_for_a_leader_that_waits_for_others_is_told_whom(leads_b: PlayedCluster) -> None:
    leads_b.change(min_in_sync=2)
    token = leads_b.ask(SUBSCRIBE)
    leads_b.turns(2.9)
    assert token not in leads_b.answers
    leads_b.turns(0.2)
    answer = leads_b.answers[token]
    assert isinstance(answer, RefusedReply)
    assert answer.code == "not_leader"
    assert answer.detail.startswith("leads, and answers nobody: ")
    again = leads_b.answer(ListTopics())  # at once
    assert isinstance(again, RefusedReply)
    assert again.leader == ""
    assert facts(leads_b)["cluster_role"] == "leads"
    leads_b.has(B)
    leads_b.turns(0.1)
    leads_b.ask(ListTopics())
    leads_b.turn()
    leads_b.has(B, round=1)
    leads_b.turn()
    assert isinstance(leads_b.answers[max(leads_b.answers)], TopicList)


def test_who_listens_before_it_leads_is_pushed_to_then() -> None:
    one, two = subject(TopicId(1)), subject(TopicId(2))
    cluster = PlayedCluster(ALONE)
    cluster.replica.listens(joined=True, subject=one)
    cluster.replica.listens(joined=True, subject=two)
    cluster.replica.listens(joined=False, subject=two)
    cluster.until_served()
    assert cluster.replica.pushes.audience == {1}
    cluster.replica.listens(joined=True, subject=two)
    assert cluster.replica.pushes.audience == {1, 2}


def test_no_time_passes_while_nobody_leads() -> None:
    cluster = PlayedCluster(ALONE)
    cluster.until_served()
    cluster.answer(SUBSCRIBE)
    newest = cluster.directory.shard.last_timestamp
    cluster.kill()
    cluster.now = newest + DOWN_MICROS + 7_000_000
    cluster.start()
    cluster.replica.keep_time(Calendar(timestamps=5, passed=11), Micros(cluster.now))
    cluster.until_served()
    driver = cluster.parts.driver
    assert driver is not None
    quiet = driver.calendar.passed - 11
    assert 7_000_000 <= quiet + 11 <= cluster.now - newest - DOWN_MICROS + 5
    cluster.replica.keep_time(Calendar(timestamps=5, passed=12), Micros(cluster.now))
    assert driver.calendar == Calendar(timestamps=5, passed=quiet + 12)


# ------------------------------------------------------------------ the loop


def test_a_start_on_a_log_waits_for_news_and_does_not_spin(leads: PlayedCluster) -> None:
    leads.answer(SUBSCRIBE)
    leads.kill()
    leads.start()
    assert leads.replica.recovered == leads.directory.log.last_serial > 1
    assert leads.replica.next_commit() is None


def test_what_a_follower_gathered_is_written_at_once(follows: PlayedCluster) -> None:
    assert follows.replica.next_commit() is None
    follows.directory.log.append(topic(1))
    assert follows.replica.next_commit() == follows.replica._now
    follows.turn()
    assert follows.replica.next_commit() is None


def test_the_next_tick_is_due_soon(follows: PlayedCluster) -> None:
    follows.replica.tick(Micros(follows.now + TICK))
    assert follows.replica.next_deadline() == follows.now + 2 * TICK


def test_it_is_full_when_its_part_is(follows: PlayedCluster, leads: PlayedCluster) -> None:
    for cluster in (follows, leads):
        assert not cluster.replica.is_full
    assert follows.parts.following is not None
    follows.parts.following._waiting_bytes = 1 << 40
    assert leads.parts.leading is not None
    leads.parts.leading._held_bytes = 1 << 40
    assert follows.replica.is_full
    assert leads.replica.is_full


def test_who_follows_or_is_alone_may_stop_at_once(
    follows: PlayedCluster, leads: PlayedCluster
) -> None:
    assert follows.replica.may_stop(Micros(follows.now))
    assert leads.replica.may_stop(Micros(leads.now))


def test_a_leader_gives_the_shard_away_before_it_stops(leads_b: PlayedCluster) -> None:
    assert not leads_b.replica.may_stop(Micros(leads_b.now))
    for _ in range(60):
        leads_b.has(B)
        leads_b.turn()
        if shard_in(leads_b.store).leader == B:
            break
    assert shard_in(leads_b.store).leader == B
    leads_b.turn()
    assert leads_b.replica.may_stop(Micros(leads_b.now))


def test_a_leader_that_cannot_give_it_away_stops_anyway(leads_b: PlayedCluster) -> None:
    begun = Micros(leads_b.now)
    for ended in (begun + STOP_MICROS - 1, begun + STOP_MICROS):
        leads_b.now = ended - TURN
        leads_b.has(B)  # it is there, and could lead
        leads_b.replica.take_news(Micros(ended))
        assert leads_b.replica.may_stop(begun) is False
        assert leads_b.replica.may_stop(Micros(ended)) is (ended == begun + STOP_MICROS)


def test_closing_leaves_nothing_open(leads: PlayedCluster) -> None:
    leads.replica.close()
    assert leads.links.is_closed
    alive = KEYS.alive(A)
    assert leads.store.decide(ReadEntries((alive,))).entries == {}  # type: ignore[union-attr]
    leads.disk.lock("/data/lock").release()
