"""Statements that nothing else would miss: each has a test that fails without it."""

import os
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import pytest

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.records import Record
from oncemq.protocol.structs import RecordStruct
from oncemq.storage.disk import LocalDisk
from oncemq.storage.repair.repair import diagnose
from oncemq.storage.segments.layout import read_format, remove_log


class FromTheFuture(RecordStruct, frozen=True, array_like=True):
    kind: ClassVar[int] = 200
    what: str


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_newer_log_with_a_torn_tail_is_refused_before_a_byte_changes(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.log.append(cast("Record", FromTheFuture("kept for later")))
    scribe.commit()
    scribe.store(1, b"b")
    end = scribe.log._current.end
    scribe.store(1, b"torn")
    scribe.kill()
    with scribe.segments[-1].open("r+b") as file:
        file.seek(end + 60)
        file.write(b"\xff")
    before = tree(scribe.directory)
    with pytest.raises(StorageRefused, match="newer OnceMQ"):
        scribe.open()
    assert tree(scribe.directory) == before


def test_the_only_segment_is_diagnosed_when_it_is_blank(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.kill()
    scribe.segments[0].write_bytes(bytes(500))
    found = diagnose(scribe.disk, str(scribe.directory))
    assert [damage.path for damage in found.damages] == [str(scribe.segments[0])]


def test_nothing_is_left_of_a_log_that_was_removed(scribe: Any, tmp_path: Path) -> None:
    scribe.store(1, b"a")
    scribe.checkpoint(b"one")
    scribe.log.close()
    (tmp_path / "older.gone" / "log").mkdir(parents=True)
    (tmp_path / "older.gone" / "log" / "x").write_bytes(b"left by a crash")
    remove_log(scribe.disk, str(scribe.directory))
    assert list(tmp_path.iterdir()) == []
    scribe.open()


def test_the_index_of_a_cold_segment_that_never_was_is_removed(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.log.close()
    orphan = scribe.directory / "log" / f"{1:020d}-000001.idx"
    orphan.write_bytes(b"a crash came before the segment's name")
    opened = scribe.open()
    assert not orphan.exists()
    assert opened.report.removed == [orphan.name]


def test_a_changed_digit_of_format_is_seen(scribe: Any) -> None:
    scribe.log.close()
    path = scribe.directory / "FORMAT"
    good = path.read_bytes()
    form = msgspec.json.decode(good)
    for field in ("tag", "generation"):
        path.write_bytes(msgspec.json.encode(form | {field: form[field] + 1}))
        with pytest.raises(Corrupt, match="checksum differs"):
            read_format(scribe.disk, str(scribe.directory))
    path.write_bytes(msgspec.json.encode({**form, "checksum": 0}))
    with pytest.raises(Corrupt, match="checksum differs"):
        read_format(scribe.disk, str(scribe.directory))
    del form["incarnation"]
    path.write_bytes(msgspec.json.encode({**form, "format": 1, "checksum": 0}))  # an older OnceMQ
    assert read_format(scribe.disk, str(scribe.directory)) is not None
    path.write_bytes(good)


def test_a_log_from_its_beginning_needs_no_checkpoints(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.log.close()
    (scribe.directory / "checkpoints").rmdir()
    assert diagnose(scribe.disk, str(scribe.directory)).healthy
    scribe.open()
    assert scribe.payloads(1) == {0: b"a"}


def test_the_name_of_a_new_directory_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    LocalDisk().make_directory(str(tmp_path / "a" / "b"))
    assert synced[-1] == str(tmp_path / "a")
    assert str(tmp_path) in synced
