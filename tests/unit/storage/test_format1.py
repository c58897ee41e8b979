"""Directories of format 1, as the code of then made them (`tools/old_directories.py`)."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from oncemq.errors import Corrupt, StorageFull, StorageRefused
from oncemq.protocol.records import RECORDS, Marked
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.manifest import MANIFEST
from oncemq.storage.backup.restore import restore
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import OpenedLog, open_log
from oncemq.storage.repair.findings import Diagnosis
from oncemq.storage.repair.repair import accept_loss, diagnose
from oncemq.storage.segments.framing import Frame, frame_key, scan
from oncemq.storage.segments.layout import VERSION, read_format
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from tests.harness.storage import SMALL, CopyingDisk, Scribe, read_payloads

KEPT = Path(__file__).parent.parent.parent / "format1"
NAMES = sorted(path.stem for path in KEPT.glob("*.json"))
WIDE = LogOptions(segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 12)


def quiet(_: str, __: int) -> None: ...


def unpacked(name: str, place: Path) -> Path:
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(place, filter="data")
    return place / name


def found(opened: OpenedLog, topics: list[str]) -> dict[str, Any]:
    """What is in an open log, in the words of a `.json`."""
    log = opened.log
    encode = msgspec.msgpack.Encoder().encode
    return {
        "identity": log.identity.hex(),
        "tag": log.tag,
        "generation": log.generation,
        "last_serial": log.last_serial,
        "states": [each.hex() for each in opened.states],
        "records": [
            [serial, record.kind, encode(record).hex()] for serial, record in opened.replay
        ],
        "messages": {
            topic: [[at, payload.hex()] for at, payload in read_payloads(log, int(topic)).items()]
            for topic in topics
        },
        "torn": len(opened.report.torn),
    }


def opening(disk: Any, directory: Path | str, options: LogOptions = WIDE) -> OpenedLog:
    return open_log(disk, str(directory), options, random_bytes=lambda size: b"\7" * size)


@pytest.fixture(params=NAMES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    expected = json.loads((KEPT / f"{request.param}.json").read_text())
    return unpacked(request.param, tmp_path), expected


def test_what_was_kept_is_small_and_has_every_kind_of_record() -> None:
    assert NAMES == ["cold", "covered", "fresh", "killed", "kinds", "served", "torn"]
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 100_000
    kinds = {kind for _, kind, _ in json.loads((KEPT / "kinds.json").read_text())["records"]}
    assert kinds == RECORDS.keys() - {46}  # of replicas, and younger


def test_a_directory_of_format_1_has_all_it_had_and_is_of_format_2(
    old: tuple[Path, dict[str, Any]], quick_disk: Any
) -> None:
    directory, expected = old
    topics = list(expected["messages"])
    opened = opening(quick_disk, directory)
    assert found(opened, topics) == expected
    assert (opened.log.form.format, opened.log.form.incarnation) == (VERSION, b"\7" * 16)
    assert (opened.log.openings, opened.log.newest.leader_epoch) == (1, 0)
    chain = opened.log.newest.chain
    opened.log.close()
    again = opening(quick_disk, directory)
    assert again.log.newest.chain == chain
    assert found(again, topics) == expected | {"torn": 0}
    assert (again.log.openings, again.log.form) == (2, opened.log.form)
    again.log.close()


def test_frames_of_both_formats_lie_in_one_log(
    old: tuple[Path, dict[str, Any]], quick_disk: Any
) -> None:
    directory, expected = old
    scribe = Scribe.__new__(Scribe)
    scribe.directory, scribe.disk, scribe.options = directory, quick_disk, SMALL
    scribe.identity, scribe.topics, scribe.sequence = b"\7", {}, 0
    scribe.open()
    for number in range(8):
        assert (
            scribe.store(9, b"new %d " % number + b"x" * 200)
            == expected["last_serial"] + number + 1
        )
    scribe.log.close()
    assert diagnose(quick_disk, str(directory)).healthy
    scribe.open()
    assert list(scribe.payloads(9)) == list(range(8))
    seen = {frame.is_old for path in scribe.segments for frame in frames(path, scribe.log.identity)}
    assert seen == ({False} if directory.name == "fresh" else {False, True})
    for number in (1, 2):
        scribe.checkpoint(b"state %d" % number)
    lows = {int(topic): kept[0][0] for topic, kept in expected["messages"].items() if kept}
    scribe.compact(lambda topic: lows.get(topic, 4 if topic == 9 else None))
    assert list(scribe.payloads(9, 4)) == [4, 5, 6, 7]
    for topic, kept in expected["messages"].items():
        read = scribe.payloads(int(topic), lows.get(int(topic), 0))
        assert [[at, payload.hex()] for at, payload in read.items()] == kept
    scribe.log.close()


def frames(path: Path, identity: bytes) -> Iterator[Frame]:
    file = LocalDisk().open(str(path))
    try:
        for each in scan(file, 68, file.size(), frame_key(identity)):
            assert isinstance(each, Frame)
            yield each
    finally:
        file.close()


def test_a_kill_at_any_step_of_the_migration_leaves_a_log_that_opens(
    old: tuple[Path, dict[str, Any]], tmp_path: Path, quick_disk: Any
) -> None:
    directory, expected = old
    topics = list(expected["messages"])
    disk = CopyingDisk(directory, tmp_path / "copies")
    disk.armed = True
    opening(disk, directory).log.close()
    disk.armed = False
    crashes = sorted((tmp_path / "copies").iterdir())
    assert len(crashes) > 5
    formats = set[int]()
    for crash in crashes:
        form = read_format(quick_disk, str(crash))
        assert form is not None
        formats.add(form.format)
        again = opening(quick_disk, crash)
        assert found(again, topics) | {"torn": 0} == expected | {"torn": 0}
        assert again.log.form.format == VERSION
        again.log.close()
        assert diagnose(quick_disk, str(crash)).healthy
        shutil.rmtree(crash)
    assert formats == {1, 2}


@pytest.mark.parametrize("cut", list(PowerCut), ids=lambda cut: cut.name.lower())
@pytest.mark.parametrize("name", ["covered", "torn", "killed"])
def test_a_power_cut_at_any_step_of_the_migration_loses_nothing(
    name: str, cut: PowerCut, tmp_path: Path
) -> None:
    source = unpacked(name, tmp_path)
    expected = json.loads((KEPT / f"{name}.json").read_text())
    topics = list(expected["messages"])
    disk = FaultyDisk(Random(name))
    loaded(disk, source)
    crashed: list[FaultyDisk] = []

    def crash(call: str, _: str, __: int) -> None:
        if call != "read":
            crashed.append(disk.fork(Random(f"{name} {len(crashed)}")))

    disk.faults.hook = crash
    opened = opening(disk, "/data", SMALL)
    body = opened.log.append(Marked())  # a frame of format 2, not synced
    assert body == expected["last_serial"] + 1
    group = opened.log.take_group()
    assert group is not None
    opened.log.write(group)
    assert len(crashed) > 8
    for each in crashed:
        each.crash(cut)
        again = opening(each, "/data", SMALL)
        kept = found(again, topics)
        kept["records"] = [record for record in kept["records"] if record[0] < body]
        kept["last_serial"] = min(kept["last_serial"], body - 1)
        assert kept | {"torn": 0} == expected | {"torn": 0}
        again.log.close()


def loaded(disk: FaultyDisk, source: Path) -> None:
    """The files of a directory on a disk in memory, durable, as /data."""
    disk.make_directory("/data")
    for path in sorted(source.rglob("*")):
        place = f"/data/{path.relative_to(source)}"
        if path.is_dir():
            disk.make_directory(place)
            continue
        file = disk.open(place, create=True)
        file.write([path.read_bytes()], 0)
        file.sync()
        file.close()
    for path in (source, *source.rglob("*")):
        if path.is_dir():
            disk.sync_directory(f"/data/{path.relative_to(source)}")


def test_a_log_of_format_1_that_is_damaged_stays_as_it_is(tmp_path: Path, quick_disk: Any) -> None:
    directory = unpacked("served", tmp_path)
    segment = next(directory.glob("log/*.log"))
    data = bytearray(segment.read_bytes())
    data[300] ^= 1
    segment.write_bytes(data)
    before = (directory / "FORMAT").read_bytes()
    with pytest.raises(Corrupt):
        opening(quick_disk, directory)
    assert (directory / "FORMAT").read_bytes() == before
    assert not diagnose(quick_disk, str(directory)).healthy
    assert (directory / "FORMAT").read_bytes() == before
    accept_loss(quick_disk, str(directory), random_bytes=lambda size: b"\3" * size)
    form = read_format(quick_disk, str(directory))
    assert form is not None
    assert (form.format, form.incarnation) == (VERSION, b"\3" * 16)
    opening(quick_disk, directory).log.close()


def test_a_full_disk_is_told_what_the_upgrade_needs(tmp_path: Path) -> None:
    disk = FaultyDisk(Random("full"))
    loaded(disk, unpacked("covered", tmp_path))
    disk.faults.capacity = 0
    with pytest.raises(StorageFull, match="needed once after an upgrade: make 64 KiB of room"):
        opening(disk, "/data", SMALL)
    disk.faults.capacity = 1 << 30
    opening(disk, "/data", SMALL).log.close()
    disk.faults.capacity = 0
    opened = opening(disk, "/data", SMALL)  # a full disk can be opened ever after
    assert opened.log.openings >= 2
    opened.log.close()


def test_a_backup_of_format_1_goes_on_and_is_restored_as_format_2(
    old: tuple[Path, dict[str, Any]], tmp_path: Path, quick_disk: Any
) -> None:
    directory, expected = old
    if directory.name == "kinds":
        return  # no server would write it: a commit of a stage that is not there
    topics = list(expected["messages"])
    backup = str(tmp_path / "backup")
    first = back_up(quick_disk, str(directory), backup, progress=quiet, judge=Diagnosis.faults)
    opening(quick_disk, directory).log.close()
    again = back_up(quick_disk, str(directory), backup, progress=quiet, judge=Diagnosis.faults)
    assert again.last_serial == first.last_serial == expected["last_serial"]
    restore(
        quick_disk,
        backup,
        str(tmp_path / "restored"),
        random_bytes=lambda size: b"\6" * size,
        progress=quiet,
    )
    opened = opening(quick_disk, tmp_path / "restored")
    assert (opened.log.form.format, opened.log.form.incarnation) == (VERSION, b"\6" * 16)
    same = {"tag": opened.log.tag, "generation": opened.log.generation, "torn": 0}
    assert found(opened, topics) == expected | same
    opened.log.close()


def test_a_backup_of_a_newer_format_is_refused(tmp_path: Path, quick_disk: Any) -> None:
    directory = unpacked("covered", tmp_path)
    backup = tmp_path / "backup"
    back_up(quick_disk, str(directory), str(backup), progress=quiet, judge=Diagnosis.faults)
    text = (backup / MANIFEST).read_text()
    (backup / MANIFEST).write_text(text.replace('"format": 1', '"format": 3'))
    with pytest.raises(StorageRefused, match="newer OnceMQ") as caught:
        restore(quick_disk, str(backup), str(tmp_path / "new"), random_bytes=bytes, progress=quiet)
    assert caught.value.code == "format_too_new"


def test_who_reads_format_1_only_refuses_format_2_in_words(scribe: Any) -> None:
    """It looks at one field of FORMAT before all others: a number above its own is refused."""
    scribe.log.close()
    said = json.loads((scribe.directory / "FORMAT").read_text())
    assert said["format"] == 2 > 1
    assert {"identity", "tag", "generation", "checksum"} <= said.keys()


def test_an_outbox_of_format_1_goes_on(tmp_path: Path, quick_disk: Any) -> None:
    state = unpacked("state", tmp_path)
    logs = [path.parent for path in state.rglob("FORMAT")]
    assert logs
    records: list[int] = []
    for directory in logs:
        opened = opening(quick_disk, directory)
        records += [frame.outbox_record().kind for frame in opened.frames]
        opened.log.append(Marked())
        group = opened.log.take_group()
        assert group is not None
        opened.log.write(group)
        opened.log.finished(group)
        opened.log.close()
        assert opening(quick_disk, directory).log.last_serial == len(records) + 1
    assert len(records) > 3
