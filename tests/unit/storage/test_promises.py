"""What a directory knows of itself: the epoch it promised to follow, how often it was opened."""

import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from oncemq.errors import Corrupt
from oncemq.protocol.names import LeaderEpoch
from oncemq.storage.segments.layout import replace_file
from oncemq.storage.segments.openings import count_opening, reserve_openings
from oncemq.storage.segments.promised_epoch import PromisedEpoch, promised_in
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut

ONE, TWO = b"1" * 16, b"2" * 16


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk(Random("promises"))
    disk.make_directory("/data")
    return disk


def forked_at_each_step(disk: FaultyDisk, work: Callable[[], Any]) -> list[FaultyDisk]:
    forks: list[FaultyDisk] = []
    disk.faults.hook = lambda *_: forks.append(disk.fork(Random(len(forks))))
    work()
    disk.faults.hook = None
    return [*forks, disk]


def test_a_promise_only_grows(disk: FaultyDisk) -> None:
    promised = PromisedEpoch(disk, "/data")
    assert promised.leader_epoch == 0
    assert promised.promise(LeaderEpoch(3))
    assert promised.promise(LeaderEpoch(3))
    assert not promised.promise(LeaderEpoch(2))
    again = PromisedEpoch(disk, "/data")
    assert again.leader_epoch == promised.leader_epoch == 3


@pytest.mark.parametrize("cut", list(PowerCut))
def test_a_promise_is_durable_when_it_was_given(disk: FaultyDisk, cut: PowerCut) -> None:
    PromisedEpoch(disk, "/data").promise(LeaderEpoch(3))
    promised = PromisedEpoch(disk, "/data")
    *before, after = forked_at_each_step(disk, lambda: promised.promise(LeaderEpoch(9)))
    for each in before:
        each.crash(cut)
        assert PromisedEpoch(each, "/data").leader_epoch in (3, 9)
    after.crash(cut)
    assert PromisedEpoch(after, "/data").leader_epoch == 9


def test_a_promise_that_was_read_after_a_kill_is_durable(disk: FaultyDisk) -> None:
    promised = PromisedEpoch(disk, "/data")
    for each in forked_at_each_step(disk, lambda: promised.promise(LeaderEpoch(9))):
        each.kill()
        epoch = PromisedEpoch(each, "/data").leader_epoch
        each.crash(PowerCut.NOTHING)
        assert PromisedEpoch(each, "/data").leader_epoch == epoch


def test_a_damaged_promise_is_refused_in_words(disk: FaultyDisk) -> None:
    PromisedEpoch(disk, "/data").promise(LeaderEpoch(3))
    file = disk.open("/data/EPOCH")
    whole = file.read(0, 10_000)
    for damaged in (b"", whole[:11], bytes(len(whole)), b"[]", whole.replace(b"\3", b"\4")):
        file.truncate(0)
        file.write([damaged], 0)
        with pytest.raises(Corrupt, match="which leaders this replica must refuse is not known"):
            PromisedEpoch(disk, "/data")


FIRST_SERVERS = b'{"leader_epoch":7,"checksum":%d}' % zlib.crc32(b"epoch 7")  # wrote this


@pytest.mark.parametrize("cut", list(PowerCut))
def test_what_the_first_servers_promised_is_kept(disk: FaultyDisk, cut: PowerCut) -> None:
    replace_file(disk, "/data/EPOCH", FIRST_SERVERS)
    forks = forked_at_each_step(disk, lambda: PromisedEpoch(disk, "/data"))
    for each in forks:
        each.crash(cut)
        promised = PromisedEpoch(each, "/data")
        assert promised.leader_epoch == 7
        assert promised.promise(LeaderEpoch(8))
        assert PromisedEpoch(each, "/data").leader_epoch == 8


def test_damage_to_what_the_first_servers_promised_is_refused(disk: FaultyDisk) -> None:
    replace_file(disk, "/data/EPOCH", FIRST_SERVERS.replace(b"7", b"8", 1))
    with pytest.raises(Corrupt, match="which leaders this replica must refuse is not known"):
        PromisedEpoch(disk, "/data")


def test_damage_to_one_slot_loses_no_promise(disk: FaultyDisk) -> None:
    promised = PromisedEpoch(disk, "/data")
    promised.promise(LeaderEpoch(3))
    promised.promise(LeaderEpoch(9))
    for start in (0, 4096):
        for position in range(start, start + 12):
            damaged = disk.fork(Random(position))
            damaged.flip_bit("/data/EPOCH", position)
            assert PromisedEpoch(damaged, "/data").leader_epoch == 9
            damaged.flip_bit("/data/EPOCH", 4096 - start)  # mended meanwhile
            assert PromisedEpoch(damaged, "/data").leader_epoch == 9


def test_a_promise_can_be_made_on_a_full_disk(disk: FaultyDisk) -> None:
    PromisedEpoch(disk, "/data")
    disk.faults.capacity = 0
    for leader_epoch in (1, 2, 300):
        assert PromisedEpoch(disk, "/data").promise(LeaderEpoch(leader_epoch))


def test_a_failed_write_leaves_the_promise_as_it_was_known(disk: FaultyDisk) -> None:
    promised = PromisedEpoch(disk, "/data")
    disk.faults.failing_syncs = 1
    with pytest.raises(OSError, match="cannot sync"):
        promised.promise(LeaderEpoch(3))
    assert promised.leader_epoch == 0


def test_a_promise_is_durable_where_its_file_was_made_by_a_process_that_was_killed(
    disk: FaultyDisk,
) -> None:
    """Its name may be only in the page cache then."""
    for each in forked_at_each_step(disk, lambda: PromisedEpoch(disk, "/data")):
        each.kill()
        assert PromisedEpoch(each, "/data").promise(LeaderEpoch(9))
        each.crash(PowerCut.NOTHING)
        assert PromisedEpoch(each, "/data").leader_epoch == 9


def test_openings_are_counted_for_one_incarnation(disk: FaultyDisk) -> None:
    assert [count_opening(disk, "/data", ONE) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert count_opening(disk, "/data", TWO) == 1
    assert count_opening(disk, "/data", TWO) == 2
    disk.remove("/data/OPENED")
    assert count_opening(disk, "/data", TWO) == 1


@pytest.mark.parametrize("cut", list(PowerCut))
def test_a_count_that_was_given_is_never_given_again(disk: FaultyDisk, cut: PowerCut) -> None:
    for number in range(1, 4):
        *before, after = forked_at_each_step(disk, lambda: count_opening(disk, "/data", ONE))
        for each in before:
            each.crash(cut)
            assert count_opening(each, "/data", ONE) in (number, number + 1)
        crashed = after.fork(Random(number))
        crashed.crash(cut)
        assert count_opening(crashed, "/data", ONE) == number + 1


def test_a_damaged_count_says_less_and_never_more(disk: FaultyDisk) -> None:
    for _ in range(4):
        count_opening(disk, "/data", ONE)
    for position in range(28):
        damaged = disk.fork(Random(position))
        damaged.flip_bit("/data/OPENED", position)  # the newer slot
        assert count_opening(damaged, "/data", ONE) == 4
        damaged.flip_bit("/data/OPENED", 4096 + position)
        assert count_opening(damaged, "/data", ONE) in (1, 5)


def test_the_two_slots_lie_where_every_version_looks_for_them(disk: FaultyDisk) -> None:
    for _ in range(2):
        count_opening(disk, "/data", ONE)
    file = disk.open("/data/OPENED")
    for place, number in ((0, 2), (4096, 1)):
        assert file.read(place, 24) == ONE + number.to_bytes(8, "little")
    assert file.size() == 8192


def test_a_directory_with_room_for_its_count_is_opened_on_a_full_disk(disk: FaultyDisk) -> None:
    reserve_openings(disk, "/data")
    disk.faults.capacity = 0
    assert [count_opening(disk, "/data", ONE) for _ in range(3)] == [1, 2, 3]


def test_the_room_for_the_count_outlives_a_power_cut(disk: FaultyDisk) -> None:
    reserve_openings(disk, "/data")
    disk.sync_directory("/data")  # as the directory's FORMAT is made
    disk.crash(PowerCut.NOTHING)
    disk.faults.capacity = 0
    assert count_opening(disk, "/data", ONE) == 1


def test_who_only_looks_writes_nothing(disk: FaultyDisk) -> None:
    before = disk.names("/data")
    assert promised_in(disk, "/data") == 0
    assert disk.names("/data") == before
    PromisedEpoch(disk, "/data").promise(LeaderEpoch(7))
    assert promised_in(disk, "/data") == 7
    disk.flip_bit("/data/EPOCH", 3)
    assert promised_in(disk, "/data") == 7
    disk.flip_bit("/data/EPOCH", 4096 + 3)
    with pytest.raises(Corrupt, match="cannot be read"):
        promised_in(disk, "/data")
