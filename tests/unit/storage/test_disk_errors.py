"""An error of the disk: a full one lets the log go on, every other is final."""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oncemq.errors import Corrupt, StorageFull
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.manifest import read_manifest
from oncemq.storage.backup.restore import restore
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import CompactionPlan, LiveShare
from oncemq.storage.log.log import LogOptions
from oncemq.storage.repair.findings import Diagnosis
from oncemq.storage.segments.end import End, read_end
from oncemq.storage.segments.index import BlockCache
from oncemq.storage.segments.segment import index_path, save_index
from oncemq.testing.faulty_disk import FaultyDisk

FULL = [errno.ENOSPC, errno.EDQUOT]
NO_FILES = [errno.EMFILE, errno.ENFILE]
FINAL = [errno.EIO, errno.EROFS]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(Random(1))


@pytest.fixture
def scribe(disk: FaultyDisk, make_scribe: Any) -> Any:
    return make_scribe(Path("/data"), disk, LogOptions(allocate_bytes=700, reserve_bytes=100))


def fail(
    disk: FaultyDisk, call: str, part: str, number: int, before: Callable[[], None] | None = None
) -> None:
    """The next such call for such a path fails, and those after it do not."""

    def hook(called: str, path: str, _: int) -> None:
        if called == call and part in path:
            disk.faults.hook = None
            if before is not None:
                before()
            raise OSError(number, "planned", path)

    disk.faults.hook = hook


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
@pytest.mark.parametrize("number", [*FULL, *NO_FILES])
def test_an_index_without_room_stays_in_memory_and_leaves_nothing(
    scribe: Any, disk: FaultyDisk, call: str, number: int
) -> None:
    scribe.store(1, b"a")
    before = disk.names("/data/log")
    fail(disk, call, ".idx", number)
    assert save_index(disk, scribe.log._current, BlockCache()) is None
    assert disk.names("/data/log") == before
    assert save_index(disk, scribe.log._current, BlockCache()) is not None


@pytest.mark.parametrize("number", FINAL)
def test_an_index_that_cannot_be_written_otherwise_is_an_error(
    scribe: Any, disk: FaultyDisk, number: int
) -> None:
    scribe.store(1, b"a")
    fail(disk, "sync", ".idx", number)
    with pytest.raises(OSError, match="planned"):
        save_index(disk, scribe.log._current, BlockCache())
    assert Path(index_path(scribe.log._current.path)).name not in disk.names("/data/log")


def test_a_stop_that_could_not_sync_says_nothing_of_the_end(
    disk: FaultyDisk, make_scribe: Any
) -> None:
    """After a failed sync no other one is believed: the pages may count as clean."""
    scribe = make_scribe(Path("/data"), disk, LogOptions(sync_ms=1000))
    scribe.put(1, b"a")
    scribe.commit()
    fail(disk, "sync", ".log", errno.EIO)
    with pytest.raises(OSError, match="planned"):
        scribe.log.close()
    scribe.log.close()
    assert read_end(disk, "/data") == End()


# ------------------------------------------------------------------ a torn tail


@pytest.fixture
def torn(scribe: Any, disk: FaultyDisk) -> Any:
    """A log whose second record is torn: its path, where the first ends, and its room."""
    assert scribe.log.has_room(1, now_ms=0)
    scribe.store(1, b"a")
    end = scribe.log._current.end
    scribe.store(1, b"torn")
    path, size = scribe.log._current.path, scribe.log._current.size
    scribe.kill()
    disk.flip_bit(path, end + 60)
    assert size > end + 200
    return path, end, size


@pytest.mark.parametrize("number", FULL)
def test_without_room_for_a_copy_a_torn_tail_is_cut_all_the_same(
    scribe: Any, disk: FaultyDisk, torn: Any, number: int
) -> None:
    path, end, size = torn
    fail(disk, "write", "/torn/", number)
    assert scribe.open().report.torn == [f"none: the disk is full; {path} from byte {end} on"]
    assert disk.names("/data/torn") == []
    assert scribe.payloads(1) == {0: b"a"}
    assert (scribe.log._current.end, scribe.log._current.size) == (end, size)


@pytest.mark.parametrize("number", FULL)
def test_without_its_room_a_log_goes_on_from_its_last_record(
    scribe: Any, disk: FaultyDisk, torn: Any, number: int
) -> None:
    """A file system that had room for some of it may have given that."""
    path, end, size = torn
    fail(disk, "allocate", ".log", number, lambda: disk.open(path).allocate((end + size) // 2))
    scribe.open()
    current = scribe.log._current
    assert (current.end, current.size, disk.open(path).size()) == (end, end, end)
    scribe.topics[1].pop()
    scribe.store(1, b"b")
    assert scribe.reopen().report.torn == []
    assert scribe.payloads(1) == {0: b"a", 1: b"b"}


@pytest.mark.parametrize("number", FINAL)
@pytest.mark.parametrize(("call", "part"), [("write", "/torn/"), ("allocate", ".log")])
def test_a_torn_tail_that_cannot_be_cut_is_an_error_and_stays(
    scribe: Any, disk: FaultyDisk, torn: Any, call: str, part: str, number: int
) -> None:
    fail(disk, call, part, number)
    with pytest.raises(OSError, match="planned"):
        scribe.open()
    scribe.open()
    assert scribe.payloads(1) == {0: b"a"}


# ------------------------------------------------------------------ a restore


@pytest.fixture
def backup(scribe: Any, disk: FaultyDisk) -> str:
    scribe.store(1, b"a")
    scribe.checkpoint(b"state" * 100)
    back_up(disk, "/data", "/backup", progress=lambda *_: None, judge=Diagnosis.faults)
    return "/backup"


def bring_back(disk: FaultyDisk, backup: str) -> None:
    restore(disk, backup, "/new", random_bytes=bytes, progress=lambda *_: None)


@pytest.mark.parametrize("number", FULL)
@pytest.mark.parametrize("call", ["write", "allocate"])
def test_a_restore_says_how_much_room_it_needs(
    disk: FaultyDisk, backup: str, call: str, number: int
) -> None:
    manifest = read_manifest(disk, backup)
    assert manifest is not None
    checkpoint, log = manifest.files
    assert (checkpoint.folder, log.folder) == ("checkpoints", "log")
    needed = 2 * checkpoint.size + log.size + LogOptions().reserve_bytes
    fail(disk, call, "/new/log/", number)
    with pytest.raises(StorageFull) as refused:
        bring_back(disk, backup)
    assert refused.value.detail == (
        f"there is no room for the backup in /new: it needs {needed:,} bytes, the reserve of its "
        "server included. Remove what is there, and restore onto a disk that has them"
    )
    disk.lock("/new/lock").release()
    disk.lock(f"{backup}/lock").release()


@pytest.mark.parametrize("number", FINAL)
def test_a_restore_that_fails_otherwise_says_why(
    disk: FaultyDisk, backup: str, number: int
) -> None:
    fail(disk, "write", "/new/log/", number)
    with pytest.raises(OSError, match="planned"):
        bring_back(disk, backup)
    disk.lock("/new/lock").release()


# ------------------------------------------------------------------ a compaction


@pytest.mark.parametrize("number", [*NO_FILES, *FINAL])
def test_a_source_is_damaged_where_it_cannot_be_read_and_not_for_want_of_files(
    scribe: Any, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    scribe.store(1, b"a")
    source = scribe.log._current
    plan = CompactionPlan((source,), {1: LiveShare("t1", 0)}, rewrite=True)
    job = CompactionJob(disk, "/data/log", scribe.log.identity, BlockCache(), plan)
    opened, trouble = disk.open, OSError(number, "planned")

    def sick(path: str, create: bool = False) -> Any:
        if path == source.path:
            raise trouble
        return opened(path, create)

    monkeypatch.setattr(disk, "open", sick)
    with pytest.raises((OSError, Corrupt)) as raised:
        job.run()
    if number in NO_FILES:
        assert (raised.value, job.damaged) == (trouble, None)
    else:
        assert job.damaged == (source, f"{source.path} could not be read: {trouble}")
    assert job.result is None
    assert disk.names("/data/log") == [source.name]
