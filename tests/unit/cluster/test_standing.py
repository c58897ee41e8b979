"""What a server says of itself and its shard, in each part that it may have."""

from oncemq.cluster.standing import NOT_HEARD, Fact, standing
from oncemq.coordination.coordinator import StoreAway
from oncemq.coordination.values import ClusterConfig
from oncemq.protocol.names import LeaderEpoch, Micros
from oncemq.protocol.replicas.messages import RefillBegin, RefillFile
from tests.harness.agreement import FOUNDING, SHARD, A, B, C, D, replicas
from tests.harness.played_cluster import PlayedCluster
from tests.harness.replica_logs import LeaderLog

ALONE = ClusterConfig("", replicas=5, min_in_sync=1, founder=A)


def told(cluster: PlayedCluster) -> dict[str, Fact]:
    return standing(cluster.parts, cluster.agreement, Micros(cluster.now))


def says(cluster: PlayedCluster, **facts: Fact | None) -> bool:
    """Whether these are among what it says of the cluster; None: it says nothing of it."""
    said = told(cluster)
    wrong = {name: said.get(f"cluster_{name}") for name in facts}
    assert wrong == facts
    return True


def follows() -> PlayedCluster:
    """B leads epoch 3, and a has all of its log but the last record."""
    leader = LeaderLog(topics=3, epoch=3)
    cluster = PlayedCluster(shard=replicas(B, C, leader=B, epoch=3))
    cluster.led_by(B, 3)
    cluster.turns(0.3)
    cluster.says(*leader.append(commit=2))
    cluster.turn()
    return cluster


def leads() -> PlayedCluster:
    """A leads, and b has to have what is committed; c is a replica, and silent."""
    cluster = PlayedCluster(ALONE)
    cluster.until_served()
    cluster.join(B)
    cluster.change(joining=replicas(A, joining="c").joining)
    cluster.turns(0.1)
    cluster.has(B)
    cluster.turn()
    return cluster


def test_who_has_heard_of_nobody_waits_for_the_cluster() -> None:
    cluster = PlayedCluster()
    assert says(
        cluster, name="one", server=A, shard=1, role="waits for the cluster", leader="",
        leader_epoch=0, etcd=NOT_HEARD, trouble="", declined="", last=None, min_in_sync=None,
    )  # fmt: skip


def test_before_there_is_a_shard_it_says_what_the_cluster_is_to_be() -> None:
    cluster = PlayedCluster(ClusterConfig("", replicas=5, min_in_sync=3, founder=B))
    cluster.turns(0.3)
    assert says(cluster, min_in_sync=3, replicas_max=5, founder=B, in_sync=None)


def test_who_is_not_let_in_says_why_and_what_it_has() -> None:
    cluster = PlayedCluster(FOUNDING, shard=replicas(B, C, D))
    cluster.turns(0.3)
    assert says(cluster, role="waits for the cluster", last=0, synced=0, applied=0, promised=0)
    declined = told(cluster)["cluster_declined"]
    assert "remove one of them" in str(declined)
    assert told(cluster)["cluster_trouble"] == declined


def test_that_etcd_is_away_is_said() -> None:
    cluster = leads()
    cluster.agreement.heard(StoreAway("no route"), Micros(cluster.now))
    assert says(cluster, etcd="no route", role="leads")
    assert "etcd is away" in str(told(cluster)["cluster_trouble"])


def test_a_follower_says_how_far_it_is_and_when_it_heard_its_leader() -> None:
    cluster = follows()
    heard = cluster.now - 10_000
    cluster.now += 250_000
    assert says(
        cluster, role="follows", leader="tcp://b:1", leader_epoch=3, leader_id=B, last=4, synced=4,
        applied=2, commit=2, promised=3, last_epoch=3, log=(b"\5" * 16).hex(),
        leader_heard_ms=(cluster.now - heard) // 1000, in_sync="b,c", joining="a", proposed="",
    )  # fmt: skip


def test_a_follower_that_heard_no_leader_says_so() -> None:
    cluster = PlayedCluster(shard=replicas(B, C))
    cluster.turns(0.3)
    assert says(cluster, role="follows", leader_heard_ms=-1, last=0, commit=0, leader_id="")


def test_a_leader_says_how_it_is_with_each_other_replica() -> None:
    cluster = leads()
    last = int(cluster.directory.log.last_serial)
    assert says(
        cluster, role="leads", leader_id=A, commit=last, applied=last, last=last, refuses="",
        replicas_max=5, min_in_sync=1, founder=A, in_sync="a,b", joining="c",
    )  # fmt: skip
    said = told(cluster)
    assert (said["server.b.address"], said["server.b.alive"]) == ("tcp://b:1", True)
    assert (said["server.b.draining"], said["server.a.alive"]) == (False, True)
    of_b = {name: fact for name, fact in said.items() if name.startswith("member.b.")}
    assert of_b | {"member.b.heard_ms": 0, "member.b.caught_up_ms": 0} == {
        "member.b.in_sync": True, "member.b.proposed": False, "member.b.stage": "streaming",
        "member.b.acked": last, "member.b.behind_records": 0, "member.b.caught_up_ms": 0,
        "member.b.heard_ms": 0, "member.b.disk_full": False,
    }  # fmt: skip
    assert (said["member.c.in_sync"], said["member.c.acked"]) == (False, 0)
    assert (said["member.c.caught_up_ms"], said["member.c.behind_records"]) == (-1, last)


def test_who_is_elected_and_not_confirmed_begins_to_lead() -> None:
    cluster = PlayedCluster()
    cluster.turns(0.5)
    assert says(cluster, role="begins to lead", leader_id=A, commit=0)
    assert "has a new leader, not confirmed yet" in str(told(cluster)["cluster_refuses"])


def test_a_leader_that_has_to_wait_for_its_disk_steps_down() -> None:
    cluster = leads()
    cluster.worker.under_way = 1
    cluster.led_by(B, 7)
    cluster.turns(0.1)
    assert says(cluster, role="steps down", leader="tcp://b:1", leader_epoch=7)


def test_who_is_filled_says_how_much_it_has() -> None:
    cluster = follows()
    pinned = cluster.directory.log.pin()
    files = tuple(RefillFile(each.name, each.size, 0) for each in pinned.files)
    pinned.release()
    tail = cluster.directory.tail
    cluster.says(RefillBegin(SHARD, LeaderEpoch(4), tail, tail, files))
    cluster.turns(0.02)
    size = sum(each.size for each in files)
    assert says(cluster, role="is filled", filled_bytes=0, filled_of_bytes=size, last=None)
