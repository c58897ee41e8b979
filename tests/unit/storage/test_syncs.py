"""Syncs that matter only for a power cut at one moment: each is missed here when it is left out."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.restore import restore
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.storage.repair.findings import Diagnosis
from oncemq.storage.segments.framing import frame_key
from oncemq.storage.segments.layout import replace_file
from oncemq.storage.segments.segment import COLD, LOG, Header, log_name, remove_segment
from oncemq.storage.segments.segment_files import load_shelf
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut


def _nothing(_: str, __: int) -> None: ...


IDENTITY = b"\x05" * 16
FOLDER = "/data/log"
CUTS = [(cut, seed) for cut in PowerCut for seed in range(20)]


def write(disk: FaultyDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write([data], 0)
    file.sync()
    file.close()


def log_header(first_serial: int) -> Header:
    return Header(LOG, IDENTITY, first_serial, chain=frame_key(IDENTITY))


@pytest.fixture(params=CUTS, ids=lambda cut: f"{cut[0].name.lower()}-{cut[1]}")
def cut(request: pytest.FixtureRequest) -> PowerCut:
    return request.param[0]


@pytest.fixture
def disk(request: pytest.FixtureRequest, cut: PowerCut) -> FaultyDisk:
    seed = request.node.callspec.params["cut"][1]
    disk = FaultyDisk(Random(f"{cut} {seed}"))
    disk.make_directory(FOLDER)
    return disk


def test_a_small_file_that_was_put_in_place_stays_there(disk: FaultyDisk, cut: PowerCut) -> None:
    for data in (b"old", b"new"):
        replace_file(disk, f"{FOLDER}/small", data)
    disk.crash(cut)
    file = disk.open(f"{FOLDER}/small")
    assert file.read(0, file.size()) == b"new"
    file.close()


def test_an_index_never_outlives_its_segment(disk: FaultyDisk, cut: PowerCut) -> None:
    """Alone it would say that the segment was lost, and the log be refused."""
    for name in ("1.log", "1.idx", "2.log", "2.idx"):
        write(disk, f"{FOLDER}/{name}", b"x")
    disk.sync_directory(FOLDER)
    remove_segment(disk, f"{FOLDER}/1.log")
    remove_segment(disk, f"{FOLDER}/2.log")
    disk.crash(cut)
    left = disk.names(FOLDER)
    assert all(name.replace(".idx", ".log") in left for name in left)


def test_what_a_cold_segment_was_made_of_stays_until_its_own_name_is_durable(
    disk: FaultyDisk, cut: PowerCut
) -> None:
    """Compaction was killed between publishing and tidying: the opening does the tidying."""
    sources = (log_header(1), log_header(5))
    for header in (*sources, log_header(9)):
        write(disk, f"{FOLDER}/{header.name}", header.encode())
    disk.sync_directory(FOLDER)
    names = tuple(header.name for header in sources)
    cold = Header(COLD, IDENTITY, 1, last_serial=8, file_bytes=100, edition=1, sources=names)
    write(disk, f"{FOLDER}/{cold.name}.tmp", cold.encode())
    disk.rename(f"{FOLDER}/{cold.name}.tmp", f"{FOLDER}/{cold.name}")
    disk.kill()
    load_shelf(disk, "/data", IDENTITY, begun=9)
    disk.crash(cut)
    left = disk.names(FOLDER)
    assert cold.name in left or set(names) <= set(left), f"neither the one nor the others: {left}"


def test_a_segment_that_was_never_begun_is_gone_for_good_once_the_log_is_open(
    disk: FaultyDisk, cut: PowerCut
) -> None:
    """It must not come back between segments that were begun."""
    name = log_name(9)
    open_log(disk, "/data", LogOptions(), random_bytes=bytes).log.close()
    write(disk, f"{FOLDER}/{name}", bytes(100))
    disk.sync_directory(FOLDER)
    opened = open_log(disk, "/data", LogOptions(), random_bytes=bytes)
    assert opened.report.removed == [name]
    disk.crash(cut)
    assert name not in disk.names(FOLDER)


def test_what_was_recovered_is_durable_before_anybody_is_told_of_it(
    disk: FaultyDisk, cut: PowerCut, make_scribe: Any
) -> None:
    """After a kill it is in the page cache alone; who reads it may act on it."""
    scribe = make_scribe(Path("/data"), disk, LogOptions(sync_ms=1000))
    scribe.put(1, b"written, and not synced")
    scribe.commit()
    disk.kill()
    scribe.open()
    assert scribe.payloads(1) == {0: b"written, and not synced"}
    disk.crash(cut)
    scribe.open()
    assert scribe.payloads(1) == {0: b"written, and not synced"}


def test_a_restored_log_has_its_reserve_whatever_happens_next(
    disk: FaultyDisk, cut: PowerCut, make_scribe: Any
) -> None:
    """A disk that fills up after a power cut leaves the server a way out."""
    options = LogOptions(allocate_bytes=700, reserve_bytes=100)
    scribe = make_scribe(Path("/data"), disk, options)
    scribe.store(1, b"a")
    scribe.checkpoint(b"state" * 100)
    end = scribe.log._current.end
    back_up(disk, "/data", "/backup", progress=_nothing, judge=Diagnosis.faults)
    restore(disk, "/backup", "/new", random_bytes=bytes, progress=_nothing)
    disk.crash(cut)
    checkpoints = [f"/new/checkpoints/{name}" for name in disk.names("/new/checkpoints")]
    kept = LogOptions().reserve_bytes + sum(disk.open(path).size() for path in checkpoints)
    assert len(checkpoints) == 1
    assert disk.open(f"/new/log/{log_name(1)}").size() == end + kept
