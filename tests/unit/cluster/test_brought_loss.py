"""A log that went back in time, beside a cluster whose log did not: it is filled, not believed."""

import pytest

from oncemq.cli.cluster.found import founded
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination.coordinator import Snapshot, Transact
from oncemq.coordination.values import ClusterConfig, ClusterKeys, ServerState, encoded
from oncemq.protocol.names import ShardId
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.restore import restore
from oncemq.storage.log.set_aside import kept_aside
from oncemq.storage.repair.findings import Diagnosis
from oncemq.storage.segments.layout import FormatHole, raise_generation
from tests.harness.trio import DATA, SERVERS, Trio

OTHER, LEADER, THIRD = SERVERS
GONE = "/gone"


@pytest.fixture
def trio() -> Trio:
    made = Trio()
    made.until(made.are_in_sync)
    made.subscribe("kept")
    for _ in range(20):
        made.put("kept")
    return made


def go_back(trio: Trio) -> None:
    """THIRD's directory is made of its own backup, as `once restore` does."""
    trio.kill(THIRD)
    disk = trio.disks[THIRD]
    disk.make_directory(GONE)
    back_up(disk, DATA, "/backup", progress=lambda *_: None, judge=Diagnosis.faults)
    for _ in range(5):
        trio.put("kept")
    disk.rename(DATA, f"{GONE}/data")
    restore(disk, "/backup", DATA, random_bytes=trio.random.randbytes, progress=lambda *_: None)


def generations(trio: Trio) -> set[int]:
    """Of the log, as each server has it."""
    opened = [each.replica._parts.opened for each in trio.running.values()]
    return {each.shard.generation for each in opened if each is not None}


def leads_now(trio: Trio) -> None:
    """The others are drained."""
    for name in (OTHER, LEADER):
        state = ServerState("drained", f"tcp://{name}:1", draining=True)
        trio.store.put(ClusterKeys("one").server(name), encoded(state))
    trio.until(lambda: trio.leader() == THIRD)


def test_a_restored_backup_is_put_aside_and_filled_and_raises_nothing(trio: Trio) -> None:
    """It told every client of a loss that did not happen, once it led."""
    go_back(trio)
    trio.start(THIRD)
    trio.until(trio.are_in_sync)
    leads_now(trio)
    trio.put("kept")
    assert generations(trio) == {1}
    assert not trio.ended
    assert {each.messages["kept"][1] for each in trio.until_equal().values()} == {26}


def test_it_is_kept_until_its_server_is_in_sync(trio: Trio) -> None:
    go_back(trio)
    log = trio.disks[THIRD].names(f"{DATA}/log")
    trio.start(THIRD)
    trio.until(lambda: kept_aside(trio.disks[THIRD], DATA))
    (aside,) = kept_aside(trio.disks[THIRD], DATA)
    assert trio.disks[THIRD].names(f"{aside}/log") == log
    trio.until(lambda: not kept_aside(trio.disks[THIRD], DATA))
    assert trio.are_in_sync(THIRD)


def test_loss_that_was_accepted_in_one_replica_is_not_the_clusters(trio: Trio) -> None:
    trio.kill(THIRD)
    topic_id = next(iter(generation_topics(trio)))
    raise_generation(
        trio.disks[THIRD], DATA, trio.random.randbytes, agreed=[FormatHole(topic_id, 3, 7)]
    )
    trio.start(THIRD)
    trio.until(trio.are_in_sync)
    leads_now(trio)
    assert generations(trio) == {1}
    messages = trio.get("kept", 0)
    assert isinstance(messages, list)
    assert len(messages) == 20


def generation_topics(trio: Trio) -> list[int]:
    opened = trio.running[LEADER].replica._parts.opened
    assert opened is not None
    return [each.id for each in opened.shard.topics.values()]


def test_it_waits_while_nobody_in_sync_is_there_for_it_may_be_all_that_is_left(trio: Trio) -> None:
    go_back(trio)
    for name in (OTHER, LEADER):
        trio.kill(name)
    trio.start(THIRD)
    for _ in range(1_000):
        trio.turn()
    assert kept_aside(trio.disks[THIRD], DATA) == []
    facts = trio.facts(THIRD)
    assert facts["cluster_role"] == "waits for the cluster"
    assert "`once cluster found c --replace`" in str(facts["cluster_declined"])
    assert int(str(facts["cluster_last"])) > 20
    for name in (OTHER, LEADER):
        trio.start(name)
    assert {each.messages["kept"][1] for each in trio.until_equal().values()} == {25}


def test_a_person_may_begin_with_it_and_then_it_is_the_clusters_loss(trio: Trio) -> None:
    go_back(trio)
    for name in (OTHER, LEADER):
        trio.kill(name)
    trio.start(THIRD)
    for _ in range(100):
        trio.turn()
    known = KnownKeys(ClusterKeys("one"), ShardId(1))
    for event in trio.store.coordinator(known.keys.prefix, lambda: None).take():
        assert isinstance(event, Snapshot)
        known.snapshot(event.entries, event.revision)
    change = founded(known, THIRD, known.config or ClusterConfig(""), replace=True, nonce="n")
    assert isinstance(change, Transact)
    trio.store.decide(change)
    for name in (OTHER, LEADER):
        trio.start(name)
    trio.until(trio.are_in_sync)
    trio.until(lambda: len(generations(trio)) == 1)
    assert min(generations(trio)) > 1
    assert not trio.ended
    assert {each.messages["kept"][1] for each in trio.until_equal().values()} == {20}
