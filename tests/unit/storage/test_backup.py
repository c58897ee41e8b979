"""Backups: taken from a log at work, only what is new, and whole or not there."""

import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from oncemq.errors import Corrupt, Locked, StorageRefused
from oncemq.storage.backup.backup import BackupReport, back_up
from oncemq.storage.backup.manifest import read_manifest
from oncemq.storage.backup.restore import restore
from oncemq.storage.disk import LocalFile
from oncemq.storage.repair.findings import Diagnosis
from oncemq.storage.repair.repair import diagnose
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from tests.harness.storage import still_open


def nothing(_: str, __: int) -> None: ...


def save(scribe: Any, backup: Path) -> BackupReport:
    return back_up(
        scribe.disk,
        str(scribe.directory),
        str(backup),
        progress=nothing,
        judge=Diagnosis.faults,
    )


def bring_back(scribe: Any, backup: Path, directory: Path) -> None:
    restore(
        scribe.disk, str(backup), str(directory), random_bytes=secrets.token_bytes, progress=nothing
    )


def fill(scribe: Any, count: int = 30) -> None:
    for number in range(count):
        scribe.store(1, b"m%d " % number + b"x" * 100)


def restored(scribe: Any, make_scribe: Any, backup: Path, directory: Path) -> Any:
    bring_back(scribe, backup, directory)
    return make_scribe(directory, scribe.disk, identity=b"\6")


def test_neither_a_backup_nor_a_restore_leaves_a_file_open(scribe: Any, tmp_path: Path) -> None:
    """A log has more files than a process has descriptors."""
    fill(scribe)
    save(scribe, tmp_path / "backup")
    scribe.log.close()
    assert still_open(tmp_path) == []
    bring_back(scribe, tmp_path / "backup", tmp_path / "again")
    assert still_open(tmp_path) == []


def test_a_log_without_a_record_is_backed_up_and_restored(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    assert save(scribe, tmp_path / "backup").last_serial == 0
    again = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "again")
    assert again.log.last_serial == 0
    again.log.close()


def test_a_log_at_work_is_backed_up_and_restored(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe)
    scribe.checkpoint(b"state")
    report = save(scribe, tmp_path / "backup")
    assert report.last_serial == 30
    scribe.store(1, b"after the backup")
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert other.opened.states == [b"state"]
    assert other.payloads(1) == dict(enumerate(scribe.topics[1][:30]))
    assert other.log.generation > scribe.log.generation
    assert other.log.tag != scribe.log.tag
    other.topics[1] = scribe.topics[1][:30]
    other.store(1, b"another future")
    other.reopen()
    assert other.payloads(1)[30] == b"another future"
    other.log.close()


def test_a_second_backup_copies_only_what_is_new(scribe: Any, tmp_path: Path) -> None:
    fill(scribe)
    first = save(scribe, tmp_path / "backup")
    assert first.copied_files == first.files > 3
    fill(scribe, 10)
    second = save(scribe, tmp_path / "backup")
    assert second.last_serial == 40
    new = second.files - first.files
    assert second.copied_files == new + 1, "the segment that was in use, and what came after it"


def test_a_segment_that_is_being_written_is_copied_as_far_as_it_holds(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe, 3)
    path = scribe.segments[-1]
    end = scribe.log._current.end
    with path.open("r+b") as file:  # a later frame is there before an earlier one
        file.seek(end + 200)
        file.write(b"torn")
    save(scribe, tmp_path / "backup")
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert len(other.payloads(1)) == 3
    assert other.opened.report.torn == []
    other.log.close()


def test_a_segment_that_is_about_to_be_begun_is_not_restored(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe, 3)
    name = f"{4:020d}.log"
    (scribe.directory / "log" / name).write_bytes(bytes(700))
    save(scribe, tmp_path / "backup")
    bring_back(scribe, tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new" / "log" / name).exists()
    other = make_scribe(tmp_path / "new", scribe.disk, identity=b"\6")
    assert len(other.payloads(1)) == 3
    other.log.close()


@pytest.mark.parametrize("held", [1, 200])
def test_files_that_vanish_meanwhile_are_copied_or_begin_another_pass(
    held: int, scribe: Any, make_scribe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncemq.storage.backup.backup.HELD_MAX", held)
    fill(scribe)
    for number in range(2):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"%d" % number)
    compacted: list[int] = []

    def compact(_: str, __: int) -> None:
        if not compacted:
            compacted.append(0)
            compacted[0] = scribe.compact(lambda _: 20)

    back_up(
        scribe.disk,
        str(scribe.directory),
        str(tmp_path / "backup"),
        progress=compact,
        judge=Diagnosis.faults,
    )
    assert compacted[0] > 0
    names = {path.name for path in (tmp_path / "backup" / "files").iterdir()}
    there = {path.name for path in (scribe.directory / "log").iterdir() if path.suffix != ".idx"}
    assert (there <= names) == (held == 1), "of the moment in which the pass began"
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert other.payloads(1, 20) == scribe.payloads(1, 20)
    other.log.close()


def test_a_backup_comes_to_an_end_however_much_is_compacted_meanwhile(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    """Segments are replaced with every file that is copied: no pass would see the same twice."""
    fill(scribe)

    def work(_: str, __: int) -> None:
        fill(scribe, 12)
        for number in range(2):
            scribe.fact(number)
            scribe.commit()
            scribe.checkpoint(b"state")
        assert scribe.compact(lambda _: len(scribe.topics[1]) - 6) > 0

    for _ in range(3):
        stored = len(scribe.topics[1])
        back_up(
            scribe.disk,
            str(scribe.directory),
            str(tmp_path / "backup"),
            progress=work,
            judge=Diagnosis.faults,
        )
        other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / f"new{stored}")
        found = other.payloads(1, stored - 6)
        assert list(found) == list(range(stored - 6, stored - 6 + len(found)))
        assert len(found) >= 6
        other.log.close()


def test_a_file_that_vanishes_before_it_is_copied_begins_another_pass(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe)
    names, lists = scribe.disk.names, list[str]()

    def with_one_that_is_gone(folder: str) -> list[str]:
        lists.append(folder)
        gone = [".log"] if folder.endswith("/data/log") and len(lists) < 5 else []
        return [*gone, *names(folder)]

    scribe.disk.names = with_one_that_is_gone
    report = save(scribe, tmp_path / "backup")
    assert report.last_serial == 30
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert other.payloads(1) == scribe.payloads(1)
    other.log.close()


def test_files_that_vanish_in_every_pass_are_no_backup(scribe: Any, tmp_path: Path) -> None:
    fill(scribe)
    names = scribe.disk.names
    scribe.disk.names = lambda folder: [*names(folder), "gone.log"]
    with pytest.raises(StorageRefused, match="replaced in each of"):
        save(scribe, tmp_path / "backup")
    scribe.disk.names = names
    save(scribe, tmp_path / "backup")


def test_a_backup_that_was_cut_off_leaves_the_one_before(
    tmp_path: Path, make_scribe: Any, copying_disk: Any
) -> None:
    """At every step of a second backup: what is restored is the first or the second, whole."""
    backup = tmp_path / "backup"
    disk = copying_disk(backup, tmp_path / "copies")
    scribe = make_scribe(tmp_path / "data", disk)
    fill(scribe, 12)
    save(scribe, backup)
    fill(scribe, 9)
    disk.armed = True
    save(scribe, backup)
    disk.armed = False
    copies = sorted((tmp_path / "copies").iterdir())
    assert len(copies) > 5
    seen: set[int] = set()
    for number, copy in enumerate(copies):
        other = restored(scribe, make_scribe, copy, tmp_path / f"new{number}")
        seen.add(len(other.payloads(1)))
        other.log.close()
    assert seen == {12, 21}
    scribe.log.close()


def test_what_a_cut_off_backup_left_is_no_part_of_the_next_one(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe)
    scribe.checkpoint(b"state")
    files = tmp_path / "backup" / "files"
    files.mkdir(parents=True)
    for path in scribe.directory.rglob("*"):
        if path.is_file():  # a longer one was begun under the same name
            (files / f"{path.name}.tmp").write_bytes(b"\xee" * (path.stat().st_size + 5_000))
    save(scribe, tmp_path / "backup")
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert other.opened.states == [b"state"]
    assert other.opened.report.torn == []
    assert other.payloads(1) == dict(enumerate(scribe.topics[1]))
    other.log.close()


def test_a_source_that_is_older_than_the_backup_leaves_it_until_the_new_one_counts(
    tmp_path: Path, make_scribe: Any, copying_disk: Any
) -> None:
    """At every step: what is restored is the backup before or the new one, whole."""
    backup = tmp_path / "backup"
    disk = copying_disk(backup, tmp_path / "copies")
    scribe = make_scribe(tmp_path / "data", disk)
    fill(scribe, 13)
    scribe.log.close()
    shutil.copytree(scribe.directory, tmp_path / "older")
    scribe.open()
    fill(scribe, 9)
    save(scribe, backup)
    longer = scribe.payloads(1)
    scribe.log.close()
    shutil.rmtree(scribe.directory)
    shutil.copytree(tmp_path / "older", scribe.directory)
    scribe.open()
    older = scribe.payloads(1)
    disk.armed = True
    save(scribe, backup)
    disk.armed = False
    seen: list[dict[int, bytes]] = []
    for number, copy in enumerate(sorted((tmp_path / "copies").iterdir())):
        other = restored(scribe, make_scribe, copy, tmp_path / f"new{number}")
        seen.append(other.payloads(1))
        other.log.close()
    counts = seen.index(older)  # from when on the new manifest is there
    assert counts > 3
    assert seen == [longer] * counts + [older] * (len(seen) - counts)
    scribe.log.close()


def test_a_backup_that_is_refused_leaves_the_one_before(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    """The segment in use is an older copy of itself: it holds, but its end is missing."""
    backup = tmp_path / "backup"
    scribe.store(1, b"first")
    scribe.log.close()
    victim, older = scribe.segments[-1], scribe.segments[-1].read_bytes()
    scribe.open()
    scribe.store(1, b"second")
    stored = scribe.payloads(1)
    scribe.log.close()
    assert scribe.segments == [victim]
    save(scribe, backup)
    for times in range(2):
        victim.write_bytes(older)
        with pytest.raises(Corrupt, match=r"no server would start.* holds stays as it was"):
            save(scribe, backup)
        other = restored(scribe, make_scribe, backup, tmp_path / f"new{times}")
        assert other.payloads(1) == stored
        other.log.close()


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "(fault 1)"),
        (5, "(fault 1; fault 2; fault 3; fault 4; fault 5)"),
        (6, "(fault 1; fault 2; fault 3; fault 4; fault 5; and 1 more)"),
        (9, "(fault 1; fault 2; fault 3; fault 4; fault 5; and 4 more)"),
    ],
)
def test_of_many_faults_the_first_are_told_and_the_others_counted(
    scribe: Any, tmp_path: Path, count: int, told: str
) -> None:
    fill(scribe, 3)
    directory, backup = str(scribe.directory), str(tmp_path / "backup")
    faults = [f"fault {number}" for number in range(1, count + 1)]
    with pytest.raises(Corrupt) as refused:
        back_up(scribe.disk, directory, backup, progress=nothing, judge=lambda _: faults)
    assert refused.value.detail == (
        f"no server would start on the copy of {directory} {told}. The backup that {backup} holds "
        f"stays as it was; stop the server, and look with `once repair --data {directory}`"
    )
    assert read_manifest(scribe.disk, backup) is None


def test_a_directory_that_is_read_while_names_come_and_go_is_read_again(
    scribe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system may show neither the name that goes nor the one that comes in its place."""
    fill(scribe)
    names, looks = scribe.disk.names, list[str]()

    def blinking(directory: str) -> list[str]:
        found = names(directory)
        if directory.endswith("data/log") and not looks:
            looks.append(found.pop(3))
        return found

    monkeypatch.setattr(scribe.disk, "names", blinking)
    assert save(scribe, tmp_path / "backup").last_serial == 30
    assert looks == [scribe.segments[1].name]
    manifest = read_manifest(scribe.disk, str(tmp_path / "backup"))
    assert manifest is not None
    assert [each.name for each in manifest.files] == [path.name for path in scribe.segments]


def test_each_file_lies_once_in_a_backup_however_often_it_was_copied(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    for number in range(4):
        scribe.store(1, b"%d" % number)
        report = save(scribe, backup)
        assert len(list((backup / "files").iterdir())) == report.files
        other = restored(scribe, make_scribe, backup, tmp_path / f"new{number}")
        assert len(other.payloads(1)) == number + 1
        other.log.close()


def test_a_manifest_that_names_no_files_of_its_own_is_read(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    """As those were that the first versions wrote."""
    backup = tmp_path / "backup"
    fill(scribe)
    save(scribe, backup)
    path = backup / "MANIFEST"
    manifest = json.loads(path.read_text())
    for each in manifest["files"]:
        assert each.pop("file") == each["name"]
    path.write_text(json.dumps(manifest))
    other = restored(scribe, make_scribe, backup, tmp_path / "new")
    assert other.payloads(1) == scribe.payloads(1)
    other.log.close()
    fill(scribe, 10)
    assert save(scribe, backup).replaced == ()
    other = restored(scribe, make_scribe, backup, tmp_path / "newer")
    assert other.payloads(1) == scribe.payloads(1)
    other.log.close()


def test_what_is_there_is_not_overwritten(scribe: Any, tmp_path: Path) -> None:
    fill(scribe, 3)
    save(scribe, tmp_path / "backup")
    with pytest.raises(StorageRefused, match="is not empty"):
        bring_back(scribe, tmp_path / "backup", scribe.directory)
    with pytest.raises(StorageRefused, match="is no backup"):
        bring_back(scribe, scribe.directory / "log", tmp_path / "new")


def test_another_log_has_a_backup_of_its_own(scribe: Any, make_scribe: Any, tmp_path: Path) -> None:
    fill(scribe, 3)
    save(scribe, tmp_path / "backup")
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    with pytest.raises(StorageRefused, match="backup of another log"):
        save(other, tmp_path / "backup")
    other.log.close()


def test_a_damaged_segment_is_not_backed_up_and_a_damaged_backup_not_restored(
    scribe: Any, tmp_path: Path
) -> None:
    fill(scribe)
    backup = tmp_path / "backup"
    save(scribe, backup)
    manifest = read_manifest(scribe.disk, str(backup))
    assert manifest is not None
    victim = backup / "files" / scribe.segments[1].name
    data = bytearray(victim.read_bytes())
    data[200] ^= 1
    victim.write_bytes(data)
    with pytest.raises(Corrupt, match="is not what was backed up"):
        bring_back(scribe, backup, tmp_path / "new")
    assert not (tmp_path / "new" / "FORMAT").exists()
    scribe.segments[1].write_bytes(data)
    with pytest.raises(Corrupt, match="is damaged at byte"):
        save(scribe, tmp_path / "another")
    assert read_manifest(scribe.disk, str(tmp_path / "another")) is None


@pytest.mark.parametrize("cut", PowerCut)
def test_a_backup_and_a_restore_outlive_a_power_cut_once_they_are_done(
    make_scribe: Any, cut: PowerCut
) -> None:
    disk = FaultyDisk(Random(1))
    scribe = make_scribe(Path("/data"), disk)
    fill(scribe)
    scribe.checkpoint(b"state")
    fill(scribe, 5)
    save(scribe, Path("/backup"))
    for seed in range(5):
        after = disk.fork(Random(seed))
        after.crash(cut)
        scribe.disk = after
        bring_back(scribe, Path("/backup"), Path("/new"))
        after.crash(cut)
        other = make_scribe(Path("/new"), after, identity=b"\6")
        assert other.opened.states == [b"state"]
        assert other.payloads(1) == dict(enumerate(scribe.topics[1]))
        other.log.close()


# ------------------------------------------------------------------ the backup's own files


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


HARMS: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "one bit": flip,
    "shorter": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
}


@pytest.mark.parametrize("kind", [".log", ".cold", ".ckpt"])
@pytest.mark.parametrize("harm", HARMS)
def test_what_does_not_hold_any_more_in_the_backup_is_copied_again(
    scribe: Any, make_scribe: Any, tmp_path: Path, harm: str, kind: str
) -> None:
    compacted(scribe)
    backup = tmp_path / "backup"
    first = save(scribe, backup)
    assert first.replaced == ()
    victim = min((backup / "files").glob(f"*{kind}"))
    HARMS[harm](victim)
    second = save(scribe, backup)
    assert second.replaced == (victim.name,)
    assert save(scribe, backup).replaced == ()
    other = restored(scribe, make_scribe, backup, tmp_path / "new")
    assert other.payloads(1, 20) == scribe.payloads(1, 20)
    other.log.close()


def test_a_file_that_is_missing_in_the_backup_is_named(scribe: Any, tmp_path: Path) -> None:
    fill(scribe)
    save(scribe, tmp_path / "backup")
    victim = min((tmp_path / "backup" / "files").iterdir())
    victim.unlink()
    with pytest.raises(Corrupt, match=f"{victim.name} is missing; .* is not complete"):
        bring_back(scribe, tmp_path / "backup", tmp_path / "new")


def test_one_at_a_time_uses_a_backup(scribe: Any, make_scribe: Any, tmp_path: Path) -> None:
    fill(scribe)
    backup = tmp_path / "backup"
    save(scribe, backup)
    fill(scribe, 10)
    refused: list[str] = []

    def another(_: str, __: int) -> None:
        for use in (lambda: save(scribe, backup), lambda: bring_back(scribe, backup, tmp_path)):
            with pytest.raises(Locked, match=r"another `once backup` or .* let it end first"):
                use()
            refused.append(_)

    back_up(
        scribe.disk,
        str(scribe.directory),
        str(backup),
        progress=another,
        judge=Diagnosis.faults,
    )
    assert refused
    other = restored(scribe, make_scribe, backup, tmp_path / "new")
    assert len(other.payloads(1)) == 40
    other.log.close()


# ------------------------------------------------------------------ what no server would start on


def compacted(scribe: Any) -> None:
    """A log that no longer begins at serial 1."""
    fill(scribe)
    for number in range(2):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"state")
    assert scribe.compact(lambda _: 20) > 0
    assert scribe.segments[0].name != f"{1:020d}.log"


@pytest.mark.parametrize("harm", [flip, Path.unlink])
def test_without_a_checkpoint_that_holds_there_is_no_backup(
    scribe: Any, make_scribe: Any, tmp_path: Path, harm: Any
) -> None:
    compacted(scribe)
    older, newer = sorted((scribe.directory / "checkpoints").iterdir())
    backup = tmp_path / "backup"
    harm(newer)
    save(scribe, backup)
    manifest = read_manifest(scribe.disk, str(backup))
    assert manifest is not None
    assert older.name in {each.name for each in manifest.files}
    assert newer.name not in {each.name for each in manifest.files}
    other = restored(scribe, make_scribe, backup, tmp_path / "new")
    assert other.opened.states == [b"state"]
    other.log.close()
    harm(older)
    (backup / "files" / older.name).unlink()
    with pytest.raises(Corrupt, match=r"no server would start .* no checkpoint that holds"):
        save(scribe, backup)
    assert read_manifest(scribe.disk, str(backup)) == manifest, "the one before stays"


def test_a_log_that_lacks_its_end_or_its_middle_is_not_backed_up(
    scribe: Any, tmp_path: Path
) -> None:
    fill(scribe)
    scribe.log.close()
    for victim in (scribe.segments[-1], scribe.segments[2]):
        kept = victim.read_bytes()
        victim.unlink()
        with pytest.raises(Corrupt, match="no server would start"):
            save(scribe, tmp_path / "backup")
        victim.write_bytes(kept)
    save(scribe, tmp_path / "backup")


# ------------------------------------------------------------------ the segment in use


class Behind(LocalFile):
    """A file that is written while it is read: at first, a stretch of it is not there yet."""

    gap = (0, 0)
    reads: ClassVar[list[int]] = []

    def read(self, position: int, size: int) -> bytes:
        data = bytearray(super().read(position, size))
        if size > 200 and not self.reads:
            self.reads.append(position)
            data[self.gap[0] : self.gap[1]] = bytes(self.gap[1] - self.gap[0])
        return bytes(data)


def durable_frame(scribe: Any) -> tuple[int, int]:
    """Where a frame of the segment in use lies that a later frame says was durable."""
    scribe.store(1, b"m" * 50)
    start = scribe.log._current.end
    scribe.store(1, b"m" * 50)
    end = scribe.log._current.end
    scribe.store(1, b"m" * 50)
    assert scribe.log._current.path == str(scribe.segments[-1])
    return start, end


def test_a_frame_that_is_copied_before_an_earlier_one_was_there(
    scribe: Any, make_scribe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = durable_frame(scribe)
    path, opened = str(scribe.segments[-1]), scribe.disk.open

    def sick(name: str, create: bool = False) -> LocalFile:
        file = opened(name, create)
        if name == path:
            file.__class__ = Behind
            vars(file)["gap"] = gap
        return file

    Behind.reads.clear()
    monkeypatch.setattr(scribe.disk, "open", sick)
    assert save(scribe, tmp_path / "backup").last_serial == scribe.log.last_serial
    assert Behind.reads, "it was copied twice"
    monkeypatch.undo()
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert len(other.payloads(1)) == 3
    other.log.close()


class Racing(LocalFile):
    """A file that is written while it is read: each time, another stretch is not there yet."""

    gaps: ClassVar[list[tuple[int, int]]] = []

    def read(self, position: int, size: int) -> bytes:
        data = bytearray(super().read(position, size))
        if size > 200:
            start, end = self.gaps.pop()
            data[start:end] = bytes(end - start)
        return bytes(data)


def test_a_segment_that_is_written_faster_than_it_is_copied_is_no_backup(
    scribe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncemq.storage.backup.backup.PASSES_MAX", 3)
    Racing.gaps[:] = [durable_frame(scribe) for _ in range(3)]
    path, opened = str(scribe.segments[-1]), scribe.disk.open

    def racing(name: str, create: bool = False) -> LocalFile:
        file = opened(name, create)
        if name == path:
            file.__class__ = Racing
        return file

    with monkeypatch.context() as trouble:
        trouble.setattr(scribe.disk, "open", racing)
        with pytest.raises(StorageRefused, match="was written faster than it could be copied"):
            save(scribe, tmp_path / "backup")
    assert Racing.gaps == []
    assert save(scribe, tmp_path / "backup").last_serial == scribe.log.last_serial


def test_a_damaged_frame_of_the_segment_in_use_does_not_end_the_copy(
    scribe: Any, tmp_path: Path
) -> None:
    start, _ = durable_frame(scribe)
    save(scribe, tmp_path / "backup")
    before = read_manifest(scribe.disk, str(tmp_path / "backup"))
    data = bytearray(scribe.segments[-1].read_bytes())
    data[start + 60] ^= 1
    scribe.segments[-1].write_bytes(data)
    with pytest.raises(Corrupt, match="is damaged at byte"):
        save(scribe, tmp_path / "backup")
    assert read_manifest(scribe.disk, str(tmp_path / "backup")) == before
    bring_back(scribe, tmp_path / "backup", tmp_path / "new")


def test_a_segment_that_is_about_to_be_begun_is_left_out(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe, 3)
    current = scribe.segments[-1]
    following = current.with_name(f"{scribe.log.last_serial + 1:020d}.log")
    following.write_bytes(bytes(700))  # the one before is being written still
    with current.open("r+b") as file:
        file.seek(scribe.log._current.end)
        file.write(b"half a frame")
    assert save(scribe, tmp_path / "backup").last_serial == 3
    other = restored(scribe, make_scribe, tmp_path / "backup", tmp_path / "new")
    assert len(other.payloads(1)) == 3
    other.log.close()
    following.write_bytes(bytes(68) + current.read_bytes()[68:])  # records, and no header
    with pytest.raises(Corrupt, match="the header does not hold"):
        save(scribe, tmp_path / "backup")


@pytest.mark.parametrize("head", [4096, 100], ids=["in its head", "behind its head"])
def test_another_history_of_the_same_size_is_copied_again(
    scribe: Any, make_scribe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: int
) -> None:
    """A power cut took a frame that was copied before its sync; another one came in its place."""
    monkeypatch.setattr("oncemq.storage.backup.backup.HEAD_BYTES", head)
    fill(scribe, 2)
    scribe.log.close()
    shutil.copytree(scribe.directory, tmp_path / "before")
    scribe.open()
    scribe.store(1, b"X" * 100)
    backup = tmp_path / "backup"
    save(scribe, backup)
    victim, size = scribe.segments[-1], scribe.log._current.end
    scribe.log.close()
    shutil.rmtree(scribe.directory)
    shutil.copytree(tmp_path / "before", scribe.directory)
    scribe.open()
    scribe.topics[1].pop()
    scribe.store(1, b"Y" * 99 + b"X")
    assert (scribe.segments[-1], scribe.log._current.end) == (victim, size)
    scribe.log._roll()
    scribe.store(1, b"Z" * 100)
    assert victim.stat().st_size == size
    save(scribe, backup)
    other = restored(scribe, make_scribe, backup, tmp_path / "new")
    assert other.payloads(1) == scribe.payloads(1)
    other.log.close()


# ------------------------------------------------------------------ a restore that was cut off


class Killed(BaseException):
    """The process ends here."""


def test_a_restore_that_was_killed_is_known_as_one_to_everybody(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    backup, data = tmp_path / "backup", tmp_path / "a place"
    fill(scribe)
    scribe.checkpoint(b"state")
    save(scribe, backup)

    def kill(name: str, _: int) -> None:
        if name.endswith(".log"):
            raise Killed

    with pytest.raises(Killed):
        restore(
            scribe.disk, str(backup), str(data), random_bytes=secrets.token_bytes, progress=kill
        )
    judge = Diagnosis.faults
    another = str(tmp_path / "another")
    for use in (
        lambda: make_scribe(data, scribe.disk),
        lambda: diagnose(scribe.disk, str(data)),
        lambda: back_up(scribe.disk, str(data), another, progress=nothing, judge=judge),
        lambda: bring_back(scribe, backup, data),
    ):
        with pytest.raises(StorageRefused, match=r"cut off.*once restore BACKUP --data '.*place'"):
            use()
    shutil.rmtree(data)
    assert restored(scribe, make_scribe, backup, data).payloads(1) == scribe.payloads(1)


def test_the_mark_of_a_restore_that_was_finished_is_removed_by_the_opening(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    backup, data = tmp_path / "backup", tmp_path / "data2"
    fill(scribe)
    save(scribe, backup)
    bring_back(scribe, backup, data)
    assert not (data / "RESTORING").exists()
    (data / "RESTORING").touch()  # a power cut brought its name back
    assert diagnose(scribe.disk, str(data)).healthy
    other = make_scribe(data, scribe.disk)
    assert other.payloads(1) == scribe.payloads(1)
    other.log.close()
    assert not (data / "RESTORING").exists()


def test_checkpoints_without_a_log_are_no_new_directory(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    fill(scribe)
    scribe.checkpoint(b"state")
    scribe.log.close()
    (tmp_path / "left" / "log").mkdir(parents=True)
    shutil.copytree(scribe.directory / "checkpoints", tmp_path / "left" / "checkpoints")
    with pytest.raises(Corrupt, match="no FORMAT file beside it"):
        make_scribe(tmp_path / "left", scribe.disk)
    with pytest.raises(Corrupt, match=r"no segment says whose log.*`once restore BACKUP"):
        diagnose(scribe.disk, str(tmp_path / "left"))
