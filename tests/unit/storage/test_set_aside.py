"""A damaged log put aside whole: nothing of it is lost, whatever crashes."""

from random import Random
from typing import Any

import pytest

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.names import LeaderEpoch
from oncemq.storage.log.new_replica import holds_log, new_replica
from oncemq.storage.log.recovery import open_log
from oncemq.storage.log.set_aside import KEPT, WHY, kept_aside, remove_some, set_aside
from oncemq.storage.repair.repair import diagnose
from oncemq.storage.segments.promised_epoch import PromisedEpoch
from oncemq.testing.crash_points import CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.replicas import Replica
from tests.harness.storage import SMALL
from tests.harness.transfers import busy_log

LOG = ("FORMAT", "END", "OPENED")


def files_of(disk: Any, directory: str) -> dict[str, bytes]:
    """Every file of a log, by its place in it."""
    found: dict[str, bytes] = {}
    for folder in ("", "log/", "checkpoints/"):
        for name in disk.names(f"{directory}/{folder}"):
            if folder or name in LOG:
                found[folder + name] = bytes(disk._content(f"{directory}/{folder}{name}").shown)
    return found


def damaged_log() -> Any:
    """Of which a segment is damaged where it was durable; its promise is 7."""
    made = busy_log()
    made.log.close()
    disk: Any = made.disk
    assert PromisedEpoch(disk, "/data").promise(LeaderEpoch(7))
    disk.flip_bit(f"/data/log/{disk.names('/data/log')[-1]}", 100)
    with pytest.raises(Corrupt):
        open_log(disk, "/data", SMALL, random_bytes=bytes)
    return disk


def test_all_of_it_is_kept_as_it_was_and_the_directory_begins_anew() -> None:
    disk = damaged_log()
    before = files_of(disk, "/data")
    aside = set_aside(disk, "/data", "a bit was flipped")
    assert kept_aside(disk, "/data") == [aside] == ["/data/damaged/1"]
    assert files_of(disk, aside) == before
    assert bytes(disk._content(f"{aside}/{WHY}").shown) == b"a bit was flipped\n"
    assert holds_log(disk, "/data") is None
    assert PromisedEpoch(disk, "/data").leader_epoch == 7
    assert diagnose(disk, aside).damages  # a person can work on it there


def test_a_promise_that_cannot_be_read_goes_with_it() -> None:
    disk = damaged_log()
    for position in (4, 4_100):  # both slots
        disk.flip_bit("/data/EPOCH", position)
    aside = set_aside(disk, "/data", "three bits")
    assert "EPOCH" in disk.names(aside)
    assert PromisedEpoch(disk, "/data").leader_epoch == 0


def test_a_crash_at_any_step_leaves_a_log_that_is_put_aside_into_the_same_folder() -> None:
    disk = damaged_log()
    before = files_of(disk, "/data")

    def verify(crashed: FaultyDisk, _: Random) -> int:
        try:
            is_empty = holds_log(crashed, "/data") is None
            if not is_empty:
                open_log(crashed, "/data", SMALL, random_bytes=bytes)
                raise AssertionError("it is not whole")
        except Corrupt:
            crashed.kill()
            set_aside(crashed, "/data", "once more")
        (aside,) = kept_aside(crashed, "/data")
        assert files_of(crashed, aside) == before
        assert bytes(crashed._content(f"{aside}/{WHY}").shown) in (b"first\n", b"once more\n")
        assert holds_log(crashed, "/data") is None
        assert PromisedEpoch(crashed, "/data").leader_epoch == 7
        return 1

    points = CrashPoints(disk, verify)
    set_aside(disk, "/data", "first")
    points.crash_here()
    assert points.recoveries > 50


def test_a_disk_that_damages_everything_needs_a_person() -> None:
    disk = damaged_log()
    for number in range(KEPT):
        assert set_aside(disk, "/data", "again") == f"/data/damaged/{number + 1}"
        new_replica(disk, "/data", b"\5" * 16, tag=1, generation=1, random_bytes=bytes)
    with pytest.raises(StorageRefused, match="Give it another disk") as caught:
        set_aside(disk, "/data", "and again")
    assert caught.value.code == "damaged_again"
    assert "FORMAT" in disk.names("/data")


def test_what_is_not_needed_is_removed_a_file_at_a_time() -> None:
    disk = damaged_log()
    set_aside(disk, "/data", "again")
    new_replica(disk, "/data", b"\5" * 16, tag=1, generation=1, random_bytes=bytes)
    before = files_of(disk, "/data")
    aside = set_aside(disk, "/data", "and again")
    assert files_of(disk, aside) == before
    first, second = kept_aside(disk, "/data")
    steps = 1
    while not remove_some(disk, first):
        steps += 1
    assert steps > 5
    assert kept_aside(disk, "/data") == [second]
    while not remove_some(disk, second):
        assert kept_aside(disk, "/data") == [second]
    assert "damaged" not in disk.names("/data")


def test_there_is_nothing_aside_where_nothing_was_damaged() -> None:
    assert kept_aside(Replica().disk, "/data") == []
