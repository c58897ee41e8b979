"""A cluster as people have it: started by hand, looked at, drained, grown, lost, begun again."""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.cli.cluster.asking import ANSWER_SECONDS
from tests.e2e.clusters import HandStarted
from tests.e2e.processes import until
from tests.harness.etcd import Etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path: Path, etcd: Etcd) -> Iterator[HandStarted]:
    made = HandStarted(tmp_path, etcd.access)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def three(cluster: HandStarted) -> HandStarted:
    """Three servers in sync, and a topic that keeps what is put."""
    for each in "abc":
        cluster.start(each)
    cluster.until_in_sync("a", "b", "c")
    cluster.done("topic", "create", "orders", "--retain", "forever")
    return cluster


def follower_of(leader: str) -> str:
    return next(each for each in "abc" if each != leader)


# ------------------------------------------------------------------ day by day


def test_a_killed_leader_is_replaced_and_the_status_says_what_is_lacking(
    three: HandStarted,
) -> None:
    three.done("put", "orders", "one")
    leader = three.until_in_sync("a", "b", "c")
    three.kill(leader)
    three.done("put", "orders", "two", "--timeout", "30")
    assert three.done("peek", "orders") == "one\ntwo\n"
    rest = [each for each in "abc" if each != leader]
    three.until_in_sync(*rest)
    status = three.status()
    assert status["may_fail"] == 0
    assert status["leader"] in rest
    told = three.once("cluster", "status")
    assert told.code == 1
    assert f"! {leader} does not answer" in told.text
    assert f"`once cluster remove {leader}`" in told.text
    assert "joining  " + leader in told.text
    three.start(leader)
    three.until_in_sync("a", "b", "c")
    told = three.once("cluster", "status")
    assert told.code == 0
    assert told.text.endswith("in order: 1 more server may fail, and puts go on\n")


def test_a_server_is_told_to_end_and_does_so_in_words(three: HandStarted) -> None:
    assert three.stop("a", "b", "c") == [0, 0, 0]
    for each in "abc":
        assert f"as {each} of the cluster {three.name}, data in {each}" in three.log(each)
        assert "Traceback" not in three.log(each)


def test_a_leader_is_drained_and_leads_again(three: HandStarted) -> None:
    leader = three.until_in_sync("a", "b", "c")
    assert f"{leader} leads nothing; it may be stopped" in three.done("cluster", "drain", leader)
    status = three.status()
    assert status["leader"] != leader
    assert three.server(leader)["draining"]
    three.done("put", "orders", "one", "--timeout", "30")
    assert "as before" in three.done("cluster", "drain", leader)
    assert three.done("cluster", "drain", leader, "--undo") == f"{leader} may lead again\n"
    others = [each for each in "abc" if each != leader]
    for each in others:
        three.done("cluster", "drain", each)
    assert three.until_in_sync("a", "b", "c") == leader
    refused = three.once("cluster", "drain", leader)
    assert refused.code == 1
    assert f"{leader} leads, and nobody else can" in refused.err


def test_a_server_is_removed_and_another_takes_its_place(three: HandStarted) -> None:
    three.done("put", "orders", "one")
    leader = three.until_in_sync("a", "b", "c")
    refused = three.once("cluster", "remove", leader)
    assert refused.code == 1
    assert f"{leader} leads: `once cluster drain {leader}`, stop it" in refused.err
    gone = follower_of(leader)
    assert f"{gone} runs: stop it first" in three.once("cluster", "remove", gone).err
    three.start("d")
    assert "remove one of them before d joins" in three.until_wrong("d serves nothing")
    three.stop(gone)
    assert three.done("cluster", "remove", gone).startswith(f"{gone} is removed; left are ")
    rest = [each for each in "abc" if each != gone]
    three.until_in_sync(*rest, "d")
    three.start(gone)  # there is no room for it any more
    assert "has its 3 replicas" in three.until_wrong(f"{gone} serves nothing")
    three.stop(gone, rest[0])
    three.done("put", "orders", "two", "--timeout", "30")
    assert three.done("peek", "orders") == "one\ntwo\n"
    leader = three.until_in_sync(rest[1], "d")
    needed = rest[1] if leader == "d" else "d"
    three.stop(needed)
    refused = three.once("cluster", "remove", needed)
    assert refused.code == 1
    assert f"{needed} has what was acknowledged, as only {leader} else has" in refused.err


def test_a_server_that_hangs_holds_up_no_status(three: HandStarted) -> None:
    leader = three.until_in_sync("a", "b", "c")
    frozen = follower_of(leader)
    three.signal(frozen, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        wrong = three.until_wrong(f"{frozen} does not answer")
        assert "or hangs: it says nothing within" in wrong
        assert time.monotonic() - begun < 20 * ANSWER_SECONDS
    finally:
        three.signal(frozen, signal.SIGCONT)
    three.until_in_sync("a", "b", "c")


def test_a_status_needs_no_etcd(three: HandStarted) -> None:
    status = three.status(ONCEMQ_ETCD="127.0.0.1:9")
    assert status["serving"]
    assert len(status["servers"]) == 3
    assert "etcd does not answer here" in status["wrong"][0]
    refused = three.once("cluster", "drain", "a", ONCEMQ_ETCD="127.0.0.1:9")
    assert refused.code == 3
    assert "is --etcd right" in refused.err
    unsaid = three.once("cluster", "drain", "a", ONCEMQ_ETCD="", ONCEMQ_CLUSTER="")
    assert unsaid.code == 2
    assert "--cluster NAME --etcd ADDRESS" in unsaid.err


# ------------------------------------------------------------------ growing


def test_a_single_servers_directory_becomes_the_first_replica(cluster: HandStarted) -> None:
    cluster.start_alone("a")
    cluster.once("subscribe", "orders", "--timeout", "30")
    for each in ("one", "two", "three"):
        cluster.done("put", "orders", each)
    assert cluster.done("get", "orders") == "one\n"
    cluster.stop("a")
    cluster.start("a")
    assert "start 1 more, for 2 must be in sync" in cluster.until_wrong("a was elected")
    cluster.start("b")
    cluster.start("c")
    cluster.until_in_sync("a", "b", "c")
    assert cluster.done("get", "orders") == "two\n"  # the cursor goes on
    leader = cluster.until_in_sync("a", "b", "c")
    cluster.kill(leader)
    assert cluster.done("get", "orders", "--timeout", "30") == "three\n"
    cluster.done("put", "orders", "four", "--timeout", "30")
    assert cluster.done("get", "orders") == "four\n"


def test_a_cluster_that_began_with_the_wrong_directory_is_begun_again(cluster: HandStarted) -> None:
    cluster.start_alone("a")
    cluster.once("subscribe", "orders", "--timeout", "30")
    cluster.done("put", "orders", "one")
    cluster.stop("a")
    for each in "bc":  # empty ones, and first
        cluster.start(each)
    cluster.until_in_sync("b", "c")
    cluster.start("a")
    assert "another log" in cluster.until_wrong("a serves nothing")
    assert "stop it, and try again with --replace" in cluster.once("cluster", "found", "a").err
    cluster.stop("b", "c")
    assert "--replace takes it away" in cluster.once("cluster", "found", "a").err
    cluster.done("cluster", "found", "a", "--replace")
    for each in "bc":
        shutil.rmtree(cluster.directory / each)
        cluster.start(each)
    cluster.until_in_sync("a", "b", "c")
    assert cluster.done("get", "orders") == "one\n"


# ------------------------------------------------------------------ etcd lost its data


def test_etcd_lost_its_data_and_the_longest_log_begins_again(three: HandStarted) -> None:
    leader = three.until_in_sync("a", "b", "c")
    short = follower_of(leader)
    three.done("put", "orders", "one")
    three.stop(short)
    three.done("put", "orders", "two", "--timeout", "30")
    rest = [each for each in "abc" if each != short]
    refused = three.once("cluster", "found", rest[0])
    assert refused.code == 1
    assert "the cluster goes on" in refused.err
    three.stop(*rest)
    three.forget_in_etcd()
    three.start(short)
    assert "etcd lost its data" in three.until_wrong("the cluster serves nothing")
    refused = three.once("cluster", "found", short)
    assert "1 server of this cluster answered" in refused.err
    for each in rest:
        three.start(each)

    def refused_for_more() -> bool:
        refused = three.once("cluster", "found", short)
        assert refused.code == 1
        return f"has more than {short}" in refused.err

    until(refused_for_more, what="all wait")
    assert "begins with the directory of" in three.done("cluster", "found", rest[0])
    three.until_in_sync("a", "b", "c")
    assert three.done("peek", "orders") == "one\ntwo\n"
    three.done("put", "orders", "three", "--timeout", "30")
    for each in "abc":
        assert "Traceback" not in three.log(each)


# ------------------------------------------------------------------ wrong use


def test_two_servers_with_one_id_are_told_apart(three: HandStarted) -> None:
    three.start("a", known_as="twin")
    found = three.until_wrong("2 processes run as a")
    assert three.addresses["a"] in found
    assert three.addresses["twin"] in found
    assert "give each server an id of its own" in found
    three.stop("twin")


def test_a_directory_is_of_one_server_of_one_cluster(three: HandStarted) -> None:
    three.start("d", data="a")
    assert three.processes["d"].wait(30) == 7
    assert "lock is held by process" in three.log("d")
    three.stop("a")
    three.start_alone("a")
    assert three.processes["a"].wait(30) == 7
    assert "is a replica of a cluster" in three.log("a")


def test_a_directory_of_another_cluster_does_not_join(three: HandStarted, tmp_path: Path) -> None:
    three.stop("c")
    three.done("cluster", "remove", "c")
    other = HandStarted(tmp_path, three.access)
    try:
        for each in ("x", "y"):
            other.start(each)
        other.until_in_sync("x", "y")
        other.stop("x", "y")
    finally:
        other.end()
    three.start("c", data="x", known_as="x")
    wrong = three.until_wrong("c serves nothing")
    assert "another log" in wrong
    assert "start c with an empty one" in wrong
    assert "not in order server=c why=the data directory of c has another log" in three.log("x")


def test_a_server_that_finds_no_etcd_says_so_and_waits(cluster: HandStarted) -> None:
    cluster.start("a", "--etcd", "127.0.0.1:9")
    wrong = cluster.until_wrong("wait for etcd")
    assert "without it nobody knows who may lead" in wrong
    refused = cluster.once("put", "orders", "one", "--timeout", "1")
    assert refused.code == 3
    assert "`once cluster status` says why" in refused.err
    lines = [line for line in cluster.log("a").splitlines() if "etcd's watch broke" in line]
    assert len(lines) == 1  # and not five a second


def test_the_status_in_json_has_stable_keys(three: HandStarted) -> None:
    status = json.loads(three.once("cluster", "status", "--json").out)
    keys = (
        "cluster shard leader leader_epoch serving refuses founded founder replicas_max "
        "min_in_sync in_sync joining proposed older commit last etcd etcd_asked servers twins "
        "strangers wrong may_fail"
    )
    assert list(status) == keys.split()
    keys = (
        "id address advertised role why leader_epoch in_sync joining behind_records behind_ms "
        "heard_ms stage filled_bytes last disk_full draining alive declined trouble etcd"
    )
    assert list(status["servers"][0]) == keys.split()
