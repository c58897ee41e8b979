"""A log cut above a serial, with a crash at every step of it."""

from random import Random
from typing import Any

import pytest

from oncemq.errors import Corrupt, StorageRefused
from oncemq.storage.segments.end import NOTHING, read_end
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from tests.harness.replicas import Replica, records


def long_log() -> Replica:
    log = Replica()
    for number in range(12):
        log.store(1, b"m%d " % number + b"x" * 400)
    log.log.close()
    log.open()
    assert len(log.log._catalog.segments) >= 4
    return log


@pytest.mark.parametrize(
    "cut", [None, *PowerCut], ids=lambda cut: cut.name.lower() if cut else "kill"
)
@pytest.mark.parametrize("serial", [0, 1, 4, 11])
def test_a_crash_at_any_step_of_a_cut_leaves_a_log_that_can_be_cut_again(
    cut: PowerCut | None, serial: int
) -> None:
    log = long_log()
    whole = records(log.log)
    log.log.close()
    disk: Any = log.disk
    forks: list[FaultyDisk] = []
    disk.faults.hook = lambda call, _, __: (
        forks.append(disk.fork(Random(len(forks)))) if call != "read" else None
    )
    log.open(cut_to=serial)
    disk.faults.hook = None
    assert records(log.log) == whole[:serial]
    lengths: set[int] = set()
    for each in forks:
        if cut is not None:
            each.crash(cut)
        log.disk = each  # type: ignore[assignment]
        log.open()
        lengths.add(log.log.last_serial)
        assert records(log.log) == whole[: log.log.last_serial]
        log.kill()
        log.open(cut_to=serial)
        assert records(log.log) == whole[:serial]
        log.store(2, b"it goes on")
        log.reopen()
        assert log.log.last_serial == serial + 1
        log.log.close()
        log.topics.pop(2)
    assert lengths >= {12, serial}
    assert min(lengths) == serial


def test_what_is_cut_is_kept_for_a_person() -> None:
    log = long_log()
    segments = {each.name: each.end for each in log.log._catalog.segments}
    log.log.close()
    report = log.open(cut_to=4).report
    first = log.log._catalog.segments[-1]
    assert report.cut[0] == f"/data/torn/{first.name}-{first.end}.cut"
    assert [path.rpartition("/")[2] for path in report.cut[1:]] == [
        f"{name}-0.cut" for name in segments if name > first.name
    ]
    kept = sum(log.disk.open(path).size() for path in report.cut)
    assert kept == sum(segments[name] for name in segments if name >= first.name) - first.end


def test_a_log_that_is_no_longer_than_that_is_not_cut() -> None:
    log = long_log()
    newest = log.log.newest
    log.log.close()
    for serial in (12, 13, 1000):
        assert log.open(cut_to=serial).report.cut == []
        assert log.log.newest == newest
        log.log.close()


def test_nothing_is_cut_that_a_checkpoint_stands_for() -> None:
    log = long_log()
    log.checkpoint(b"state")
    log.store(1, b"behind it")
    log.log.close()
    with pytest.raises(StorageRefused, match="has to be refilled") as caught:
        log.open(cut_to=11)
    assert caught.value.code == "cut_below_checkpoint"
    assert log.open(cut_to=12).states == [b"state"]
    assert log.log.last_serial == 12
    log.log.close()


def test_a_cut_needs_no_room() -> None:
    log = long_log()
    log.log.close()
    disk: Any = log.disk
    disk.faults.capacity = 0
    report = log.open(cut_to=5).report
    assert all(each.startswith("none: the disk is full; /data/log/") for each in report.cut)
    assert read_end(disk, "/data") == NOTHING  # what cannot be said anew is not said any more
    assert log.reopen().log.last_serial == 5


def test_damage_below_the_cut_is_still_damage() -> None:
    log = long_log()
    segment = log.log._catalog.segments[0]
    log.log.close()
    disk: Any = log.disk
    disk.flip_bit(segment.path, 100)
    with pytest.raises(Corrupt):
        log.open(cut_to=5)


def test_damage_above_the_cut_goes_with_it() -> None:
    """The leader's log is what counts: what it lacks is not wanted, sound or not."""
    log = long_log()
    segment = log.log._catalog.segments[-2]
    log.log.close()
    disk: Any = log.disk
    disk.flip_bit(segment.path, 100)
    assert log.open(cut_to=3).log.last_serial == 3
    log.reopen()


@pytest.mark.parametrize("cut", list(PowerCut))
@pytest.mark.parametrize("serial", [1, 4, 11])
def test_what_was_cut_stays_cut_whatever_becomes_of_the_power(cut: PowerCut, serial: int) -> None:
    log = long_log()
    whole = records(log.log)
    log.log.close()
    log.open(cut_to=serial)
    disk: Any = log.disk
    disk.crash(cut)
    log.open()
    assert records(log.log) == whole[:serial]
