"""An empty log of a shard that is there already, in a directory that has nothing to lose."""

from random import Random
from typing import Any

import pytest

from oncemq.errors import Corrupt, Locked, StorageRefused
from oncemq.protocol.names import LeaderEpoch
from oncemq.storage.log.new_replica import holds_log, new_replica
from oncemq.storage.log.recovery import open_log
from oncemq.storage.log.refill import Refill
from oncemq.storage.segments.layout import RESTORING, Format, replace_file
from oncemq.storage.segments.promised_epoch import PromisedEpoch
from oncemq.testing.crash_points import CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.replicas import Replica
from tests.harness.storage import SMALL

SHARD = b"s" * 16


def make(disk: FaultyDisk, incarnation: bytes = b"\x0b") -> Format:
    return new_replica(
        disk, "/data", SHARD, tag=7, generation=3, random_bytes=lambda size: incarnation * size
    )


def opened(disk: FaultyDisk) -> Any:
    return open_log(disk, "/data", SMALL, random_bytes=bytes)


def test_a_new_replica_has_the_shards_identity_and_its_own_incarnation() -> None:
    disk = FaultyDisk(Random("new"))
    assert holds_log(disk, "/data") is None
    made = make(disk)
    assert (made.identity, made.tag, made.generation) == (SHARD, 7, 3)
    assert made.incarnation == b"\x0b" * 16
    assert holds_log(disk, "/data") is None
    log = opened(disk).log
    assert (log.form, log.last_serial, log.openings) == (made, 0, 1)
    log.close()


def test_an_empty_log_is_taken_over_whoever_made_it() -> None:
    replica = Replica()
    with pytest.raises(Locked):
        make(replica.disk)  # type: ignore[arg-type]
    replica.log.room.secure()
    replica.log.close()
    assert holds_log(replica.disk, "/data") is None
    assert PromisedEpoch(replica.disk, "/data").promise(LeaderEpoch(4))
    make(replica.disk)  # type: ignore[arg-type]
    assert replica.open().log.identity == SHARD
    assert PromisedEpoch(replica.disk, "/data").leader_epoch == 4
    replica.log.close()


def test_a_follower_that_begins_so_gets_all_from_its_leader() -> None:
    leader, follower = Replica(), Replica(b"\6")
    for replica in (leader, follower):
        replica.log.close()
        make(replica.disk, replica.identity)  # type: ignore[arg-type]
        replica.open()
    leader.lead(1)
    leader.store(1, b"first")
    follower.follow(leader)
    assert follower.log.newest == leader.log.newest
    assert follower.log.form.incarnation != leader.log.form.incarnation


@pytest.mark.parametrize("how", ["record", "checkpoint", "cold", "lost end"])
def test_a_log_that_has_or_had_a_record_is_refused(how: str) -> None:
    replica = Replica()
    disk: Any = replica.disk
    replica.store(1, b"kept")
    if how == "checkpoint":
        replica.checkpoint(b"state")
    replica.log.close()
    if how == "lost end":  # the note says that there was something
        file = disk.open(f"/data/log/{1:020d}.log")
        file.truncate(68)
        file.close()
    if how == "cold":
        disk.rename(f"/data/log/{1:020d}.log", f"/data/log/{1:020d}-000001.cold")
    before = {name: disk.names(f"/data/{name}") for name in ("log", "checkpoints")}
    assert holds_log(disk, "/data") == replica.log.form
    with pytest.raises(StorageRefused, match="holds a log with records, of the shard 0505") as why:
        make(disk)
    assert why.value.code == "not_empty"
    assert before == {name: disk.names(f"/data/{name}") for name in ("log", "checkpoints")}
    if how in ("record", "checkpoint"):
        assert replica.open().log.last_serial == 1  # its lock is free


def test_half_a_restore_and_a_log_without_its_format_are_refused() -> None:
    replica = Replica()
    disk: Any = replica.disk
    replica.store(1, b"kept")
    replica.log.close()
    disk.remove("/data/FORMAT")
    with pytest.raises(Corrupt, match="there is no FORMAT file beside it"):
        holds_log(disk, "/data")
    with pytest.raises(Corrupt, match="there is no FORMAT file beside it"):
        make(disk)
    replace_file(disk, f"/data/{RESTORING}", b"")
    with pytest.raises(StorageRefused, match="a restore into /data was cut off"):
        make(disk)


def test_a_directory_that_is_half_filled_may_be_begun_anew() -> None:
    replica = Replica()
    replica.store(1, b"of before")
    replica.log.close()
    disk: Any = replica.disk
    Refill(disk, "/data", []).give_up()
    assert holds_log(disk, "/data") is None
    make(disk)
    assert replica.open().log.last_serial == 0
    replica.log.close()


@pytest.mark.parametrize("before", ["nothing", "an empty log", "half a refill"])
def test_a_crash_at_any_call_leaves_what_may_be_tried_again(before: str) -> None:
    disk = FaultyDisk(Random(before))
    disk.make_directory("/data")
    if before != "nothing":
        opened(disk).log.close()
    if before == "half a refill":
        Refill(disk, "/data", []).give_up()
    assert PromisedEpoch(disk, "/data").promise(LeaderEpoch(9))

    def verify(crashed: FaultyDisk, _: Random) -> int:
        assert PromisedEpoch(crashed, "/data").leader_epoch == 9
        assert holds_log(crashed, "/data") is None
        made = make(crashed, b"\x0c")
        log = opened(crashed).log
        assert (log.form, log.last_serial) == (made, 0)
        log.close()
        return 1

    points = CrashPoints(disk, verify)
    make(disk)
    points.crash_here()
    assert points.points > 10
    disk.faults.hook = None
    assert opened(disk).log.form.incarnation == b"\x0b" * 16
