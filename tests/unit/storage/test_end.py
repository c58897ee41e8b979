"""The end of a log does not vanish without a refusal, and a power cut is never refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oncemq.errors import Corrupt
from oncemq.storage.repair.repair import accept_loss, diagnose
from oncemq.storage.segments.end import NOTHING, End, EndNote, lower_end, read_end
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut


def half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def zero_tail(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


TROUBLES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "truncated": half,
    "its tail zeroed": zero_tail,
    "only its header": lambda path: path.write_bytes(path.read_bytes()[:68]),
    "yesterday's": lambda path: shutil.copy(path.parent.parent / "yesterday", path),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_last_segment_that_is_not_what_it_was_is_refused(scribe: Any, trouble: str) -> None:
    for number in range(20):
        scribe.store(1, b"m%d " % number + b"x" * 100)
        if number == 18:
            shutil.copy(scribe.segments[-1], scribe.directory / "yesterday")
    assert len(scribe.segments) > 2
    last = scribe.segments[-1]
    assert last.stat().st_size > 400
    scribe.log.close()
    TROUBLES[trouble](last)
    with pytest.raises(Corrupt, match="run `once repair`"):
        scribe.open()
    assert not diagnose(scribe.disk, str(scribe.directory)).healthy

    accept_loss(scribe.disk, str(scribe.directory), random_bytes=lambda size: b"\x07" * size)
    assert diagnose(scribe.disk, str(scribe.directory)).healthy
    scribe.open()
    left = scribe.log.last_serial
    assert 0 < left < 20
    scribe.topics[1] = scribe.topics[1][:left]
    scribe.store(1, b"it goes on")
    scribe.reopen()
    assert scribe.payloads(1)[left] == b"it goes on"


@pytest.mark.parametrize("trouble", ["deleted", "emptied", "zeroed"])
def test_a_segment_that_was_begun_is_missed_after_a_kill_too(scribe: Any, trouble: str) -> None:
    while len(scribe.segments) < 3:
        scribe.store(1, b"x" * 100)
    scribe.kill()
    TROUBLES[trouble](scribe.segments[-1])
    before = {path: path.read_bytes() for path in scribe.directory.glob("log/*")}
    with pytest.raises(Corrupt, match="run `once repair`"):
        scribe.open()
    assert {path: path.read_bytes() for path in scribe.directory.glob("log/*")} == before
    accept_loss(scribe.disk, str(scribe.directory), random_bytes=lambda size: b"\x07" * size)
    scribe.open()


def test_records_behind_a_header_that_does_not_hold_are_no_segment_that_was_never_begun(
    scribe: Any,
) -> None:
    """Without a note nothing else says that it was begun."""
    while len(scribe.segments) < 3:
        scribe.store(1, b"x" * 100)
    scribe.kill()
    (scribe.directory / "END").unlink()
    last = scribe.segments[-1]
    last.write_bytes(bytes(64) + last.read_bytes()[64:])
    before = last.read_bytes()
    with pytest.raises(Corrupt) as refused:
        scribe.open()
    assert refused.value.detail == (
        f"{last} is damaged at byte 0: the header does not hold but records follow; serials from "
        f"{int(last.stem)} on cannot be trusted: run `once repair`"
    )
    assert last.read_bytes() == before


def test_a_note_that_does_not_hold_proves_nothing(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.log.close()
    note = scribe.directory / "END"
    good = note.read_bytes()
    assert read_end(scribe.disk, str(scribe.directory)).serial == 1
    for bad in (b"", b"{}", good[:-3], good.replace(b'"serial":1', b'"serial":9')):
        assert bad != good
        note.write_bytes(bad)
        assert read_end(scribe.disk, str(scribe.directory)) == End()
        scribe.reopen()
        scribe.log.close()


def test_a_full_disk_keeps_the_older_note() -> None:
    disk = FaultyDisk(Random(1))
    disk.make_directory("d")
    note = EndNote(disk, "d")
    note.write(1, 5)
    disk.faults.capacity = 0
    note.write(6, 9)
    assert (read_end(disk, "d").segment, read_end(disk, "d").serial) == (1, 5)
    assert disk.names("d") == ["END"]


def test_a_note_that_says_the_same_is_not_written_again(tmp_path: Path, quick_disk: Any) -> None:
    note = EndNote(quick_disk, str(tmp_path))
    note.write(1, 5)
    (tmp_path / "END").unlink()
    note.write(1, 5)
    assert list(tmp_path.iterdir()) == []
    note.write(1, 6)
    assert read_end(quick_disk, str(tmp_path)).serial == 6


def test_an_index_without_its_segment_is_damage(scribe: Any) -> None:
    for _ in range(30):
        scribe.store(1, b"x" * 100)
    scribe.checkpoint(b"one")
    scribe.log.close()
    scribe.segments[1].unlink()  # a checkpoint covers it: nobody reads it at the start
    with pytest.raises(Corrupt, match="is missing, its index"):
        scribe.open()
    (damage,) = diagnose(scribe.disk, str(scribe.directory)).damages
    assert damage.why == "its segment is missing"
    accept_loss(scribe.disk, str(scribe.directory), random_bytes=lambda size: b"\x07" * size)
    scribe.open()


def test_a_note_that_a_full_disk_cannot_lower_is_gone_for_good() -> None:
    disk = FaultyDisk(Random("full"))
    disk.make_directory("/data")
    EndNote(disk, "/data").write(1, 9)
    assert read_end(disk, "/data").serial == 9
    disk.faults.capacity = 0
    lower_end(disk, "/data", 1, 4)
    disk.crash(PowerCut.NOTHING)
    assert read_end(disk, "/data") == NOTHING
