"""Room on the disk: the reserve outlives a restart, and steps shrink to what there is."""

# pyright: reportArgumentType=false

import errno
from pathlib import Path
from typing import Any

import pytest

from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.restore import restore
from oncemq.storage.log.log import LogOptions
from oncemq.storage.repair.findings import Diagnosis

KIBIBYTE = 1 << 10
OPTIONS = LogOptions(
    segment_bytes=256 * KIBIBYTE, allocate_bytes=128 * KIBIBYTE, reserve_bytes=16 * KIBIBYTE
)


class SmallDisk:
    """The quick disk, as large as said; what others take of it is a number."""

    def __init__(self, disk: Any, directory: Path, size: int) -> None:
        self._disk, self._directory, self.size, self.others = disk, directory, size, 0
        files = type(disk.open(__file__))
        allocate, write = files.allocate, files.write
        small = self

        class SmallFile(files):  # type: ignore[misc,valid-type]
            def allocate(self, size: int) -> None:
                small.take(size - self.size())
                allocate(self, size)

            def write(self, buffers: Any, position: int) -> None:
                small.take(position + sum(map(len, buffers)) - self.size())
                write(self, buffers, position)

        self._file = SmallFile

    def take(self, size: int) -> None:
        if size > 0 and size > self.free_bytes(""):
            raise OSError(errno.ENOSPC, "no room")

    def free_bytes(self, _directory: str) -> int:
        used = sum(each.stat().st_size for each in self._directory.rglob("*") if each.is_file())
        return max(0, self.size - self.others - used)

    def open(self, path: str, create: bool = False) -> Any:
        file = self._disk.open(path, create)
        file.__class__ = self._file
        return file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


@pytest.fixture
def small(tmp_path: Path, quick_disk: Any) -> SmallDisk:
    return SmallDisk(quick_disk, tmp_path / "data", 1024 * KIBIBYTE)


def fill(scribe: Any, now_ms: int = 0) -> int:
    """Store batches until there is no room; how many."""
    stored = 0
    while scribe.log.has_room(4000, now_ms=now_ms):
        scribe.store(1, b"x" * 4000)
        stored += 1
    return stored


def take_facts(scribe: Any, now_ms: int = 0) -> int:
    """Write facts until there is no room; how many."""
    written = 0
    while scribe.log.has_room(0, now_ms=now_ms, fact=True):
        scribe.fact(written)
        scribe.commit()
        written += 1
    return written


def test_a_restart_keeps_the_reserve_though_others_took_the_rest(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    assert fill(scribe) > 100
    small.others = small.free_bytes("")
    scribe.reopen()
    small.others += small.free_bytes("")  # also of what the restart gave free
    assert not scribe.log.has_room(4000, now_ms=0)
    assert take_facts(scribe) > 100
    scribe.log.close()


def test_a_restart_keeps_the_reserve_behind_a_torn_tail(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    fill(scribe)
    scribe.log.close()
    last = max((tmp_path / "data/log").glob("*.log"))
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    last.write_bytes(data[:end] + b"torn" * 100 + data[end + 400 :])
    small.others = small.free_bytes("")  # no room for a copy of it either
    opened = scribe.open()
    assert "disk is full" in opened.report.torn[0]
    small.others += small.free_bytes("")
    assert take_facts(scribe) > 100
    scribe.reopen()
    assert scribe.opened.report.torn == []
    scribe.log.close()


def test_a_log_that_was_just_made_has_its_reserve_before_its_first_write(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    scribe.log.room.secure()
    small.others = small.free_bytes("")
    assert take_facts(scribe) > 100
    scribe.log.close()


def test_a_full_disk_is_left_as_it_is_where_there_is_no_reserve(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    small.others = small.free_bytes("") - 4 * KIBIBYTE
    scribe.log.room.secure()
    assert small.free_bytes("") == 4 * KIBIBYTE
    assert take_facts(scribe) > 10
    scribe.log.close()


def test_a_restored_log_has_its_reserve_before_it_is_opened(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    scribe = make_scribe(tmp_path / "first", quick_disk, OPTIONS)
    for _ in range(20):
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    scribe.checkpoint(b"state" * 1000)
    disk, data, backup = quick_disk, tmp_path / "data", str(tmp_path / "backup")
    back_up(disk, str(scribe.directory), backup, progress=quiet, judge=Diagnosis.faults)
    scribe.log.close()
    restore(disk, backup, str(data), random_bytes=bytes, progress=quiet)
    small = SmallDisk(quick_disk, data, 1 << 30)
    small.others = small.free_bytes("")
    again = make_scribe(data, small, OPTIONS)
    assert not again.log.has_room(4000_000, now_ms=0)
    assert take_facts(again) > 100
    again.log.close()


def quiet(_: str, __: int) -> None: ...


def test_puts_go_on_in_small_steps_where_there_is_no_room_for_a_large_one(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    scribe.store(1, b"a")
    small.others = small.free_bytes("") - 64 * KIBIBYTE  # half of a step
    assert fill(scribe) > 5
    assert take_facts(scribe) > 100
    scribe.log.close()


def test_facts_take_the_last_of_the_disk_when_they_find_no_reserve(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    """As a version that cut the reserve off has left it."""
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    scribe.store(1, b"a")
    small.others = small.free_bytes("") - 8 * KIBIBYTE
    assert not scribe.log.has_room(4000, now_ms=0)
    assert take_facts(scribe) > 50
    scribe.log.close()


def test_a_new_segment_gets_the_room_that_the_old_one_gives_back(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    while scribe.log._current.end < OPTIONS.segment_bytes - 5000:
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    small.others = small.free_bytes("") - 34 * KIBIBYTE
    for _ in range(3):
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    assert len(scribe.segments) == 2
    scribe.reopen()
    assert len(scribe.payloads(1)) == len(scribe.topics[1])
    scribe.log.close()


def test_the_old_segment_gives_its_room_back_before_the_new_one_takes_it(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    """Neither of the two has room enough for the new one alone."""
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    while scribe.log._current.end < OPTIONS.segment_bytes - 5000:
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    small.others = small.free_bytes("") - 22 * KIBIBYTE
    while scribe.log._current.first_serial == 1:
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    assert len(scribe.segments) == 2
    scribe.log.close()


def test_facts_go_on_in_a_full_segment_while_its_room_is_lent(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    while scribe.log._current.end < OPTIONS.segment_bytes - 5000:
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    small.others = small.free_bytes("")
    while scribe.log._current.end < OPTIONS.segment_bytes:  # into the reserve
        assert scribe.log.has_room(0, now_ms=0, fact=True)
        scribe.fact(1)
        scribe.commit()
    assert scribe.log.room.lend()
    assert take_facts(scribe) > 10
    assert len(scribe.segments) == 1
    scribe.log.close()


def test_a_checkpoint_without_room_is_lent_some_of_the_reserve(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    fill(scribe)
    small.others = small.free_bytes("")
    with pytest.raises(OSError, match="no room"):
        scribe.checkpoint(b"state" * 1000)
    assert scribe.log.room.lend()
    scribe.checkpoint(b"state" * 1000)
    assert take_facts(scribe, 9_000) > 30  # half of it was not lent
    assert not scribe.log.has_room(4000, now_ms=9_000)
    scribe.log.close()


def test_what_was_lent_is_not_taken_back_before_the_job_is_done(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    fill(scribe)
    assert scribe.log.room.lend()
    small.size += 512 * KIBIBYTE  # somebody made room
    free = small.free_bytes("")
    assert not scribe.log.has_room(40_000, now_ms=9_000)
    assert small.free_bytes("") == free  # all of it is for the job, which is tried again
    scribe.checkpoint(b"state" * 1000)
    assert scribe.log.has_room(40_000, now_ms=9_000)
    scribe.log.close()


def test_half_of_the_reserve_is_not_lent(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    fill(scribe)
    assert scribe.log.room.lend()
    kept = scribe.log._current.end + OPTIONS.reserve_bytes // 2
    assert scribe.segments[-1].stat().st_size == kept
    scribe.log.close()


@pytest.mark.parametrize("seconds", [0, 4])
def test_that_there_was_no_room_is_known_for_five_seconds(
    tmp_path: Path, make_scribe: Any, small: SmallDisk, seconds: int
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    assert not scribe.log.was_full(7_000)
    small.others = small.free_bytes("")
    assert not scribe.log.has_room(4000, now_ms=7_000)
    assert not scribe.log.was_full(6_999)  # the clock was set back: nobody knows how long ago
    assert scribe.log.was_full(7_000 + seconds * 1_000)
    assert not scribe.log.was_full(12_000)
    scribe.log.close()


def test_room_is_lent_once_for_a_job_that_finds_none_again(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    fill(scribe)
    assert [scribe.log.room.lend() for _ in range(4)] == [True, False, True, False]
    assert scribe.log.room.lend()
    scribe.log.room.ask_again()
    assert scribe.log.room.lend()  # another job's
    scribe.log.close()


def test_what_a_checkpoint_holds_is_kept_room_for_no_more(scribe: Any) -> None:
    """But what was appended while its state was gathered may not be in it."""
    for number in range(100):
        scribe.fact(number)
    scribe.commit()
    writer = scribe.log.begin_checkpoint()
    meanwhile = scribe.log._current.end
    scribe.fact(100)
    meanwhile = scribe.log._current.end - meanwhile
    scribe.commit()
    job = writer.finish()
    job.run()
    scribe.log.complete(job)
    scribe.checkpoint(b"another")
    sizes = [path.stat().st_size for path in sorted(scribe.directory.glob("checkpoints/*"))]
    assert scribe.log.room.reserve == scribe.options.reserve_bytes + sizes[-1]
    scribe.fact(101)
    assert scribe.log.room.reserve == scribe.options.reserve_bytes + sizes[-1] + meanwhile


def test_room_is_kept_for_two_checkpoints_of_what_is_known_before_the_first(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    """Nothing is freed before there are two, and a state of many small facts is a large one."""
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    facts = 1_000
    for number in range(facts):
        assert scribe.log.has_room(0, now_ms=0, fact=True)
        scribe.fact(number)
        scribe.commit()
    scribe.reopen()  # it is known as well after a restart
    assert fill(scribe) > 50
    small.others = small.free_bytes("")
    for _ in range(2):
        assert scribe.log.room.lend()
        scribe.checkpoint(b"s" * 40 * facts)
        assert scribe.log.has_room(8_000, now_ms=9_000, fact=True)  # cursors that move meanwhile
    scribe.log.close()


def test_where_there_is_little_room_segments_are_small(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    small = SmallDisk(quick_disk, tmp_path / "data", 16 << 20)
    scribe = make_scribe(tmp_path / "data", small, LogOptions(segment_share=8))
    assert (1 << 20) < scribe.log.options.segment_bytes <= 2 << 20
    scribe.log.close()


@pytest.mark.parametrize(
    ("most", "size"), [(8 << 20, 1 << 20), (12 << 20, 3 << 19), (4 << 20, 1 << 20), (0, 1 << 20)]
)
def test_a_segment_is_a_share_of_what_a_log_may_take_and_never_less_than_a_mebibyte(
    tmp_path: Path, make_scribe: Any, quick_disk: Any, most: int, size: int
) -> None:
    options = LogOptions(segment_share=8, disk_bytes_max=most)
    scribe = make_scribe(tmp_path / "data", quick_disk, options)
    assert scribe.log.options.segment_bytes == size
    scribe.log.close()


def test_a_log_opens_on_a_disk_that_has_no_room_for_its_indexes(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    while len(scribe.segments) < 3:
        assert scribe.log.has_room(4000, now_ms=0)
        scribe.store(1, b"x" * 4000)
    scribe.log.close()
    for path in (tmp_path / "data/log").glob("*.idx"):
        path.unlink()
    small.others = 0
    small.others = small.free_bytes("")
    scribe.open()
    assert list((tmp_path / "data/log").glob("*.idx")) == []
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))
    scribe.log.close()


def test_a_small_group_is_written_with_zeros_for_those_after_it(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    assert scribe.log.has_room(100, now_ms=0)
    written: list[int] = []
    for payload in (b"first", b"second", b"large" * 8 * KIBIBYTE, b"behind that"):
        scribe.put(1, payload)
        group = scribe.log.take_group()
        (part,) = group.parts
        written.append(sum(map(len, part.buffers)) - (part.end - part.position))
        scribe.log.write(group)
        scribe.log.finished(group)
    segment = scribe.log._current
    assert written[0] > 60 * KIBIBYTE, "as far as room is taken"
    assert written[1] == 0, "that is where it was written before"
    assert written[2] == 0, "it is large: the file system's tables cost it little"
    assert 0 < segment.ahead - segment.end <= 68 * KIBIBYTE
    scribe.kill()
    scribe.open()
    assert len(scribe.payloads(1)) == 4
    scribe.log.close()


def test_room_that_is_being_written_is_not_given_back(
    tmp_path: Path, make_scribe: Any, small: SmallDisk
) -> None:
    scribe = make_scribe(tmp_path / "data", small, OPTIONS)
    assert scribe.log.has_room(100, now_ms=0)
    scribe.put(1, b"on its way to the disk")
    group = scribe.log.take_group()
    segment = scribe.log._current
    assert segment.end + OPTIONS.reserve_bytes // 2 < segment.claimed < segment.size
    assert scribe.log.room.lend()
    small.others = small.size  # nothing more can be had
    scribe.log.write(group)
    scribe.log.finished(group)
    assert scribe.segments[-1].stat().st_size == segment.size == segment.ahead
    scribe.log.close()
