"""What a cluster's status says of what its servers and etcd told: who leads, what is wrong."""

from typing import Any

from oncemq.cli.cluster.findings import findings_of
from oncemq.cli.cluster.report import (
    ClusterReport,
    EtcdAnswer,
    ServerAnswer,
    report_of,
)
from oncemq.cli.cluster.status import shown
from oncemq.coordination.values import ClusterConfig, OpenedDirectory, ServerState, ShardReplicas
from oncemq.protocol.names import ServerId

EVERYBODY = ("a", "b", "c")


def address(name: str) -> str:
    return f"tcp://{name}:5556"


def facts(name: str, **more: Any) -> dict[str, Any]:
    """Of a follower of the leader a, where all is well."""
    found: dict[str, Any] = {
        "cluster_name": "main", "cluster_server": name, "cluster_shard": 1,
        "cluster_role": "follows", "cluster_leader_id": "a", "cluster_leader": address("a"),
        "cluster_leader_epoch": 3, "cluster_etcd": "there", "cluster_trouble": "",
        "cluster_declined": "", "cluster_replicas_max": 3, "cluster_min_in_sync": 2,
        "cluster_founder": "", "cluster_in_sync": "a,b,c", "cluster_joining": "",
        "cluster_proposed": "", "cluster_log": "f0", "cluster_promised": 3,
        "cluster_last_epoch": 3, "cluster_last": 120, "cluster_leader_heard_ms": 40,
    }  # fmt: skip
    for each in EVERYBODY:
        found[f"server.{each}.address"] = address(each)
        found[f"server.{each}.alive"], found[f"server.{each}.draining"] = True, False
    return found | more


def leads(**more: Any) -> dict[str, Any]:
    found = facts("a", cluster_role="leads", cluster_commit=120, cluster_refuses="")
    for each in ("b", "c"):
        found |= member(each)
    return found | more


def member(name: str, *, behind: int = 0, caught_up_ms: int = 5, **more: Any) -> dict[str, Any]:
    found = {
        "stage": "streaming", "behind_records": behind, "caught_up_ms": caught_up_ms,
        "heard_ms": 5, "disk_full": False,
    }  # fmt: skip
    return {f"member.{name}.{fact}": value for fact, value in (found | more).items()}


def told(**given: dict[str, Any] | str) -> list[ServerAnswer]:
    """Facts, or why there are none."""
    return [
        ServerAnswer(address(name), None, each)
        if isinstance(each, str)
        else ServerAnswer(address(name), each)
        for name, each in given.items()
    ]


def seen(etcd: EtcdAnswer | None = None, **given: dict[str, Any] | str) -> ClusterReport:
    report = report_of(told(**given), etcd)
    report.wrong = findings_of(report)
    return report


def all_well(**more: dict[str, Any] | str) -> dict[str, Any]:
    return {"a": leads(), "b": facts("b"), "c": facts("c")} | more


def only(report: ClusterReport) -> str:
    assert len(report.wrong) == 1, report.wrong
    return report.wrong[0]


# ------------------------------------------------------------------ in order


def test_a_cluster_in_order_says_who_leads_and_how_many_may_fail() -> None:
    report = seen(**all_well())
    assert report.wrong == []
    assert (report.leader, report.leader_epoch, report.may_fail) == ("a", 3, 1)
    assert report.in_sync == ["a", "b", "c"]
    text = shown(report)
    assert "leader   a, in epoch 3\n" in text
    assert text.endswith("in order: 1 more server may fail, and puts go on")


def test_one_address_is_enough_to_know_of_all_servers() -> None:
    report = seen(a=leads())
    assert [each.id for each in report.servers] == ["a", "b", "c"]
    assert [each.address for each in report.servers] == [address(each) for each in EVERYBODY]


def test_who_is_behind_for_a_moment_is_nobodys_trouble() -> None:
    busy = leads(**member("b", behind=7, caught_up_ms=300))
    assert seen(**all_well(a=busy)).wrong == []


# ------------------------------------------------------------------ what may be wrong


def test_a_replica_that_is_lost() -> None:
    report = seen(**all_well(a=leads(cluster_in_sync="a,b", cluster_joining="c"), c="refused"))
    lost, lacking = report.wrong
    assert lost == (
        "c does not answer at tcp://c:5556 (refused): start it; if it runs, its --advertise is "
        "wrong, or the network to it is cut; gone for good: `once cluster remove c`, then start "
        "another"
    )
    assert "no further server may fail" in lacking


def test_a_follower_that_does_not_keep_up() -> None:
    slow = leads(**member("b", behind=7_000, caught_up_ms=4_000))
    assert only(seen(**all_well(a=slow))) == (
        "b is 7,000 records behind for 4.0 s: its disk or its network is slow"
    )


def test_a_server_that_says_it_is_where_nobody_is() -> None:
    """It was said to wait, for good."""
    both = {"cluster_in_sync": "a,b", "cluster_joining": "c"}
    wrong = both | {"server.c.address": "tcp://nowhere:1"}
    leader = leads(**wrong, **member("c", behind=120, caught_up_ms=-1, heard_ms=60_000))
    c = facts("c", **wrong, cluster_leader_heard_ms=-1)
    report = seen(a=leader, b=facts("b", **wrong), c=c)
    assert report.wrong[0] == (
        "a has not heard of c for 60.0 s, at tcp://nowhere:1, where c says that it is: start c "
        "with an --advertise that the others reach, or mend the network between them"
    )
    assert not any("wait" in each for each in report.wrong)


def test_a_server_whose_address_somebody_deleted() -> None:
    gone: dict[str, Any] = {"cluster_in_sync": "a,b", "cluster_joining": "c"}
    told = {name: facts(name) | gone for name in ("b", "c")} | {"a": leads(**gone)}
    for each in told.values():
        del each["server.c.address"]
    assert seen(None, **told).wrong[0].startswith("the others do not know where c is (etcd has no")


def test_two_servers_that_say_they_are_at_one_place() -> None:
    one = {"server.c.address": address("b"), "cluster_in_sync": "a,b", "cluster_joining": "c"}
    report = seen(a=leads(**one), b=facts("b", **one), c=facts("c", **one))
    assert report.wrong[0].startswith("b and c are to be found at tcp://b:5556, all of them")


def test_a_replica_that_is_half_filled() -> None:
    half = facts("c", cluster_role="is filled", cluster_filled_bytes=5_000)
    both = {"cluster_in_sync": "a,b", "cluster_joining": "c"}
    report = seen(a=leads(**both), b=facts("b", **both), c=half | both)
    assert "c is filled with the leader's files (5,000 bytes so far)" in report.wrong[0]


def test_a_full_disk() -> None:
    report = seen(**all_well(a=leads(**member("b", disk_full=True))))
    assert "the disk of b is full, so it stores nothing" in only(report)
    report = seen(**all_well(a=leads(cluster_disk_full=True)))
    assert "the disk of a is full, so puts are refused" in only(report)


def test_below_min_in_sync_the_leaders_own_words_come_first() -> None:
    why = "shard 1 needs 2 servers that store and waits for b: start what is down"
    alone = leads(cluster_refuses=why, cluster_in_sync="a,b", cluster_joining="c")
    report = seen(a=alone, b="refused", c="refused")
    assert report.wrong[0] == f"puts are refused: {why}"
    assert report.may_fail == 0
    assert "takes no puts" in shown(report)


def test_etcd_away_is_said_once() -> None:
    away = {"cluster_etcd": "refused", "cluster_trouble": "etcd is away (refused): …"}
    report = seen(a=leads(**away), b=facts("b", **away), c=facts("c", **away))
    assert only(report).startswith("etcd is away (refused): puts and gets go on while")


def test_one_server_that_does_not_reach_etcd() -> None:
    report = seen(**all_well(b=facts("b", cluster_etcd="refused")))
    assert only(report).startswith("b does not reach etcd (refused), and others do")


def test_etcd_that_only_this_command_does_not_reach() -> None:
    report = seen(EtcdAnswer(away="no route"), **all_well())
    assert only(report).startswith("etcd does not answer here (no route), and the servers reach it")


def test_servers_that_all_wait_for_an_etcd_that_is_there() -> None:
    waits = {"cluster_role": "waits for the cluster", "cluster_etcd": "refused"}
    lost = {name: facts(name, **waits) for name in ("a", "b")}
    for each in lost.values():
        del each["cluster_in_sync"]
    report = seen(EtcdAnswer(), **lost)
    assert "the servers wait for etcd" in report.wrong[0]
    assert report.wrong[1].startswith("a does not reach etcd (refused), and this command does")


def test_no_leader_because_the_one_that_has_everything_is_down() -> None:
    nobody = {"cluster_leader_id": "", "cluster_leader": "", "cluster_in_sync": "a"}
    rest = {"cluster_joining": "b,c"}
    report = seen(a="refused", b=facts("b", **nobody, **rest), c=facts("c", **nobody, **rest))
    assert "only a has everything that was acknowledged, and may lead" in report.wrong[0]


def test_no_leader_while_etcd_is_away() -> None:
    nobody = {"cluster_leader_id": "", "cluster_etcd": "refused"}
    report = seen(a="refused", b=facts("b", **nobody), c=facts("c", **nobody))
    assert "nobody can take the lead while etcd is away" in report.wrong[0]


def test_a_leader_that_was_started_again_while_etcd_is_away() -> None:
    away = {"cluster_etcd": "refused"}
    waits = facts("a", cluster_role="waits for the cluster", cluster_etcd="nothing heard of it yet")
    del waits["cluster_in_sync"]
    report = seen(a=waits, b=facts("b", **away), c=facts("c", **away))
    assert report.wrong == [
        "a led, and was started again: nobody can take the lead without etcd",
        (
            "etcd is away (refused): nobody takes the lead, joins or leaves: start "
            "etcd's members, or mend the network to them"
        ),
    ]


def test_a_leader_that_is_dead_and_not_replaced_yet() -> None:
    report = seen(a="refused", b=facts("b"), c=facts("c"))
    assert report.wrong[0] == (
        "a leads as far as the others know, and does not answer (refused): another takes over "
        "within seconds, as soon as its lease is over"
    )


def test_a_server_that_is_declined() -> None:
    no_room = "the shard has its 3 replicas (a, b, c); remove one of them before d joins"
    stranger = facts("d", cluster_role="waits for the cluster", cluster_declined=no_room)
    assert only(seen(**all_well(d=stranger))) == f"d serves nothing: {no_room}"


def test_what_is_wrong_with_a_servers_own_copy() -> None:
    damaged = facts("b", cluster_faults="segment 3 is damaged, and is mended from a")
    assert only(seen(**all_well(b=damaged))) == "b: segment 3 is damaged, and is mended from a"


def test_who_is_to_be_upgraded_is_named_and_is_no_trouble() -> None:
    report = seen(**all_well(a=leads(cluster_older="b, c")))
    assert report.wrong == []
    assert "older    b, c; nothing newer is written" in shown(report)


def test_a_cluster_whose_etcd_lost_its_data_says_what_the_servers_say() -> None:
    lost = {
        name: facts(name, cluster_role="waits for the cluster", cluster_declined=f"{name}: found")
        for name in EVERYBODY
    }
    for each in lost.values():
        del each["cluster_in_sync"]
    report = seen(EtcdAnswer(), **lost)
    assert report.founded is False
    assert report.wrong == ["the cluster serves nothing: a: found"]


def test_two_processes_with_one_id() -> None:
    twin = facts("b", cluster_declined="another process runs as b")
    report = report_of(
        [*told(**all_well()), ServerAnswer("tcp://elsewhere:1", twin)], None, cluster="main"
    )
    report.wrong = findings_of(report)
    assert only(report) == (
        "2 processes run as b, at tcp://b:5556, tcp://elsewhere:1: stop one of them, and give "
        "each server an id of its own"
    )
    assert report.server("b").address == address("b")  # type: ignore[union-attr]


def test_a_drained_server_that_leads_on() -> None:
    report = seen(**all_well(a=leads(**{"server.a.draining": True})))
    assert only(report).startswith("a is to lead nothing and still leads")


def test_room_for_a_replica() -> None:
    two = {"cluster_in_sync": "a,b", "cluster_joining": ""}
    report = seen(a=leads(**two), b=facts("b", **two))
    assert any(each.startswith("the cluster has 2 of its 3 replicas") for each in report.wrong)


def test_servers_of_no_cluster_and_of_other_versions_are_told_apart() -> None:
    old: dict[str, Any] = {"cluster_server": "x", "cluster_role": "leads"}
    report = report_of(
        [ServerAnswer("tcp://x:1", old), ServerAnswer("tcp://y:1", {"topics": 3})], None
    )
    assert report.strangers == [
        "tcp://x:1 is x, a server of another version",
        "tcp://y:1 is a server of no cluster",
    ]


def test_nobody_answers() -> None:
    report = seen(a="refused", b="refused")
    assert only(report).startswith("no server answers")


def test_what_etcd_has_counts_before_what_servers_heard() -> None:
    directory = OpenedDirectory("aa", 1, "claim")
    shard = ShardReplicas(
        nonce="n", identity="f0", tag=1, generation=1, leader=ServerId("b"), leader_epoch=4,
        in_sync={ServerId("b"): directory, ServerId("c"): directory},
        joining={ServerId("a"): directory}, proposed=None, min_in_sync=2,
    )  # fmt: skip
    servers = {ServerId(each): ServerState("n", address(each)) for each in EVERYBODY}
    alive = frozenset(map(ServerId, ("b", "c")))
    etcd = EtcdAnswer(None, shard, ClusterConfig("n"), servers, alive)
    report = seen(etcd, a="refused", b=facts("b"), c=facts("c"))
    assert (report.leader, report.leader_epoch) == ("b", 4)
    assert report.in_sync == ["b", "c"]
    assert report.wrong[0].startswith("b was given the lead and has not begun")
