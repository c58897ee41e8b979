"""What FaultyDisk keeps, loses and refuses, fault by fault."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from oncemq.testing.faulty_disk import FaultyDisk, FaultyFile
from oncemq.testing.unsynced_changes import SECTOR_BYTES, PowerCut


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk(Random(7))
    disk.make_directory("/d")
    return disk


def durable_file(disk: FaultyDisk, data: bytes, path: str = "/d/a") -> FaultyFile:
    file = disk.open(path, create=True)
    file.write([data], 0)
    file.sync()
    disk.sync_directory("/d")
    return file


def content(disk: FaultyDisk, path: str = "/d/a") -> bytes:
    return disk.open(path).read(0, 1 << 20)


@pytest.mark.parametrize("cut", PowerCut)
def test_what_was_synced_survives_every_power_cut(disk: FaultyDisk, cut: PowerCut) -> None:
    file = durable_file(disk, b"x" * 2000)
    file.write([b"y" * 1500], 3000)
    disk.open("/d/b", create=True).write([b"z"], 0)
    disk.crash(cut)
    assert content(disk)[:2000] == b"x" * 2000


def test_a_new_name_lasts_only_by_its_directory(disk: FaultyDisk) -> None:
    file = disk.open("/d/a", create=True)
    file.write([b"x"], 0)
    file.sync()
    disk.crash(PowerCut.NOTHING)
    assert disk.names("/d") == []


def test_renamings_and_removals_wait_for_their_directory(disk: FaultyDisk) -> None:
    durable_file(disk, b"old")
    durable_file(disk, b"new", "/d/a.tmp")
    durable_file(disk, b"gone", "/d/b")
    disk.rename("/d/a.tmp", "/d/a")
    disk.remove("/d/b")
    lost, kept = disk.fork(Random(1)), disk.fork(Random(1))
    lost.crash(PowerCut.NOTHING)
    assert (lost.names("/d"), content(lost)) == (["a", "a.tmp", "b"], b"old")
    kept.sync_directory("/d")
    kept.crash(PowerCut.NOTHING)
    assert (kept.names("/d"), content(kept)) == (["a"], b"new")


def test_a_renaming_is_never_half_done(disk: FaultyDisk) -> None:
    durable_file(disk, b"old")
    for seed in range(50):
        again = disk.fork(Random(seed))
        file = again.open("/d/a.tmp", create=True)
        file.write([b"new"], 0)
        file.sync()
        again.rename("/d/a.tmp", "/d/a")
        again.crash(PowerCut.REORDERED)
        assert content(again) in (b"old", b"new")


def outcomes(disk: FaultyDisk, cut: PowerCut, seeds: int = 300) -> set[bytes]:
    found: set[bytes] = set()
    for seed in range(seeds):
        again = disk.fork(Random(seed))
        again.crash(cut)
        found.add(content(again))
    return found


def sectors(letters: bytes) -> bytes:
    return b"".join(bytes([letter]) * SECTOR_BYTES for letter in letters)


def test_a_prefix_holds_whole_calls_in_their_order(disk: FaultyDisk) -> None:
    file = durable_file(disk, sectors(b"..."))
    file.write([sectors(b"a")], 0)
    file.write([sectors(b"bc")], SECTOR_BYTES)
    expected = {sectors(b"..."), sectors(b"a.."), sectors(b"abc")}
    assert outcomes(disk, PowerCut.PREFIX) == expected


def test_a_torn_write_ends_at_a_sector(disk: FaultyDisk) -> None:
    file = durable_file(disk, sectors(b"..."))
    file.write([sectors(b"ab")], 0)
    file.write([b"c"], 2 * SECTOR_BYTES)
    # the last write is one sector: all or nothing, and nothing when it is the one that is torn
    expected = {sectors(b"..."), sectors(b"a.."), sectors(b"ab.")}
    assert outcomes(disk, PowerCut.TORN) == expected


def test_reordered_sectors_come_in_any_choice(disk: FaultyDisk) -> None:
    file = durable_file(disk, sectors(b"..."))
    file.write([sectors(b"abc")], 0)
    assert len(outcomes(disk, PowerCut.REORDERED)) == 8


def test_a_size_may_be_lost_and_bytes_may_be_zeros(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"x" * 100)
    file.write([b"y" * 1000], 100)
    assert outcomes(disk, PowerCut.SIZE_LOST, 1) == {b"x" * 100}
    assert outcomes(disk, PowerCut.ZEROED, 1) == {b"x" * 100 + bytes(1000)}


def test_bytes_behind_a_truncation_do_not_come_back(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"x" * 1000)
    file.truncate(10)
    file.allocate(1000)
    file.sync()
    disk.crash(PowerCut.NOTHING)
    assert content(disk) == b"x" * 10 + bytes(990)


def test_a_crash_ends_handles_and_locks(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"x")
    disk.lock("/d/lock")
    disk.crash(PowerCut.PREFIX)
    calls: list[Callable[[], object]] = [
        lambda: file.write([b"y"], 0),
        lambda: file.read(0, 1),
        file.sync,
        file.size,
        lambda: file.truncate(0),
        lambda: file.allocate(9),
    ]
    for call in calls:
        with pytest.raises(OSError, match="before a crash"):
            call()
    file.close()
    disk.lock("/d/lock").release()


def test_a_killed_process_leaves_its_page_cache_but_nothing_durable(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"old")
    file.write([b"new"], 0)
    disk.kill()
    assert content(disk) == b"new"
    disk.crash(PowerCut.NOTHING)
    assert content(disk) == b"old"


def test_a_failed_sync_drops_bytes_that_reads_still_show(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"old")
    file.write([b"new"], 0)
    disk.faults.failing_syncs = 1
    with pytest.raises(OSError, match="cannot sync") as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    assert content(disk) == b"new"
    file.sync()  # says yes, without writing: the pages count as clean
    disk.crash(PowerCut.NOTHING)
    assert content(disk) == b"old"


def test_bytes_written_again_after_a_failed_sync_are_durable(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"old")
    file.write([b"longer"], 0)
    disk.faults.failing_syncs = 1
    with pytest.raises(OSError, match="cannot sync"):
        file.sync()
    file.write([b"longer"], 0)
    file.sync()
    disk.crash(PowerCut.NOTHING)
    assert content(disk) == b"longer"


def test_a_lying_sync_makes_nothing_durable(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"old")
    disk.faults.lying = True
    file.write([b"new"], 0)
    file.sync()
    disk.open("/d/b", create=True)
    disk.sync_directory("/d")
    disk.crash(PowerCut.NOTHING)
    assert (disk.names("/d"), content(disk)) == (["a"], b"old")


def test_a_full_disk_takes_what_fits_and_refuses_the_rest(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"x" * 10)
    disk.faults.capacity = 14
    assert disk.free_bytes("/d") == 4
    with pytest.raises(OSError, match="no room") as raised:
        file.allocate(15)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="no room"):
        file.write([b"y" * 10], 8)
    assert content(disk) == b"x" * 8 + b"y" * 6
    file.write([b"z"], 0)  # inside: takes no room
    disk.remove("/d/a")
    assert disk.free_bytes("/d") == 14


def test_a_bit_flips_in_cache_and_on_the_platter(disk: FaultyDisk) -> None:
    durable_file(disk, bytes(100))
    position = disk.flip_bit("/d/a")
    flipped = content(disk)
    assert [at for at, byte in enumerate(flipped) if byte] == [position]
    disk.crash(PowerCut.NOTHING)
    assert content(disk) == flipped


def test_a_stale_block_is_what_was_durable_before(disk: FaultyDisk) -> None:
    file = durable_file(disk, b"old")
    assert disk.restore_stale_block("/d/a") is None
    file.write([b"newer"], 0)
    file.sync()
    assert disk.restore_stale_block("/d/a") == 0
    assert content(disk) == b"older"


def test_a_read_fails_as_often_as_it_was_told(disk: FaultyDisk) -> None:
    durable_file(disk, b"x")
    disk.faults.failing_reads = 1
    with pytest.raises(OSError, match="cannot read"):
        content(disk)
    assert content(disk) == b"x"


def test_the_hook_sees_every_call_and_its_error_fails_a_sync(disk: FaultyDisk) -> None:
    seen: list[tuple[str, str, int]] = []

    def hook(call: str, path: str, size: int) -> None:
        seen.append((call, path, size))
        if call == "sync" and len(seen) > 4:
            raise OSError(errno.EIO, "hooked", path)

    disk.faults.hook = hook
    file = durable_file(disk, b"old")
    file.write([b"new"], 0)
    with pytest.raises(OSError, match="hooked"):
        file.sync()
    assert seen == [
        ("create", "/d/a", 0),
        ("write", "/d/a", 3),
        ("sync", "/d/a", 0),
        ("sync_directory", "/d", 0),
        ("write", "/d/a", 3),
        ("sync", "/d/a", 0),
    ]
    disk.faults.hook = None
    file.sync()
    disk.crash(PowerCut.NOTHING)
    assert content(disk) == b"old"


def test_the_same_random_crashes_the_same_way(disk: FaultyDisk) -> None:
    file = durable_file(disk, sectors(b"........"))
    file.write([sectors(b"abcdefgh")], 0)
    for cut in PowerCut:
        one, two = disk.fork(Random(3)), disk.fork(Random(3))
        one.crash(cut)
        two.crash(cut)
        assert content(one) == content(two)


def test_a_move_between_directories_is_durable_in_both_at_once(disk: FaultyDisk) -> None:
    durable_file(disk, b"x")
    disk.make_directory("/e")
    disk.rename("/d/a", "/e/a")
    disk.sync_directory("/e")
    disk.crash(PowerCut.NOTHING)
    assert (disk.names("/d"), disk.names("/e")) == ([], ["a"])


def test_what_is_not_a_directory_and_what_is_not_empty(disk: FaultyDisk) -> None:
    durable_file(disk, b"x")
    with pytest.raises(IsADirectoryError):
        disk.open("/d")
    with pytest.raises(NotADirectoryError):
        disk.names("/d/a")
    with pytest.raises(NotADirectoryError):
        disk.open("/d/a/b")
    disk.make_directory("/e")
    for call in (lambda: disk.remove("/d"), lambda: disk.rename("/e", "/d")):
        with pytest.raises(OSError, match="not empty"):
            call()
    disk.remove("/e")
    disk.remove("/d/a")
    disk.remove("/d")
    assert disk.names("/") == []
