"""What is not to be read is refused, in words and with its code; what fails leaves nothing."""

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.names import Micros, Serial
from oncemq.protocol.records import ClockNoted
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.manifest import Copied, holds, read_manifest
from oncemq.storage.catalog import catalog
from oncemq.storage.segments import framing, segment
from oncemq.storage.segments.framing import decode_record, encode, frame_key, parse
from oncemq.storage.segments.layout import Format, FormatHole, read_format
from oncemq.storage.segments.segment import Header, read_header
from tests.harness.storage import still_open


def test_a_segment_of_a_newer_format_is_refused(
    tmp_path: Path, quick_disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.log"
    for version in (segment.VERSION + 1, segment.VERSION):
        with monkeypatch.context() as future:
            future.setattr(segment, "VERSION", version)
            path.write_bytes(Header(1, b"i" * 16, 1, 0).encode())
        file = quick_disk.open(str(path))
        try:
            if version == segment.VERSION:
                assert read_header(file) == Header(1, b"i" * 16, 1, 0)
                continue
            with pytest.raises(StorageRefused, match=f"format {version} .* newer") as caught:
                read_header(file)
            assert caught.value.code == "format_too_new"
        finally:
            file.close()


def test_a_frame_of_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    key, record = frame_key(b"i" * 16), ClockNoted(Micros(1), 2, Micros(3))
    with monkeypatch.context() as future:
        future.setattr(framing, "VERSION", framing.VERSION + 1)
        _, newer = encode(record, key=key, serial=Serial(1), durable=0, previous=0)
    with pytest.raises(StorageRefused, match="newer OnceMQ") as caught:
        parse(memoryview(newer), 0, 0, key)
    assert caught.value.code == "format_too_new"


def test_a_record_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(StorageRefused, match="cannot read") as caught:
        decode_record(ClockNoted.kind, b"\xc1")
    assert caught.value.code == "format_too_new"


def test_what_a_person_agreed_to_lose_is_under_the_checksum_of_the_format(
    tmp_path: Path, quick_disk: Any
) -> None:
    path = tmp_path / "FORMAT"
    form = Format(1, b"i" * 16, tag=7, generation=2, agreed=(FormatHole(5, 10, 20),))
    form = msgspec.structs.replace(form, checksum=form.seal)
    path.write_bytes(msgspec.json.encode(form))
    assert read_format(quick_disk, str(tmp_path)) == form
    for damaged in ((FormatHole(5, 10, 21),), ()):
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(form, agreed=damaged)))
        with pytest.raises(Corrupt, match="checksum differs"):
            read_format(quick_disk, str(tmp_path))


def test_a_format_file_with_a_wrong_identity_is_refused(scribe: Any) -> None:
    path = scribe.directory / "FORMAT"
    whole = path.read_bytes()
    form = msgspec.json.decode(whole)
    form["identity"] = "AAAA"
    path.write_bytes(msgspec.json.encode(form))
    with pytest.raises(Corrupt, match="an identity of 3 bytes"):
        read_format(scribe.disk, str(scribe.directory))
    path.write_bytes(whole)


def test_a_directory_without_a_log_is_refused(scribe: Any) -> None:
    scribe.log.close()
    (scribe.directory / "log").rename(scribe.directory / "hidden")
    with pytest.raises(Corrupt, match="no log/; restore it from a backup"):
        scribe.open()
    (scribe.directory / "hidden").rename(scribe.directory / "log")
    scribe.open()


def test_only_a_data_directory_is_backed_up(tmp_path: Path, quick_disk: Any) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(StorageRefused, match="no FORMAT file"):
        back_up(
            quick_disk, str(tmp_path / "data"), str(tmp_path / "backup"),
            progress=lambda _name, _size: None, judge=lambda *_: [],
        )  # fmt: skip
    assert not (tmp_path / "backup").exists()


def test_a_manifest_that_cannot_be_read_is_no_backup(tmp_path: Path, quick_disk: Any) -> None:
    assert read_manifest(quick_disk, str(tmp_path)) is None
    (tmp_path / "MANIFEST").write_bytes(b"{")
    with pytest.raises(Corrupt, match="it is no backup"):
        read_manifest(quick_disk, str(tmp_path))
    assert still_open(tmp_path) == []


def test_a_copy_that_the_disk_does_not_give_does_not_hold(
    tmp_path: Path, quick_disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(b"")
    copied = Copied("log", "a", 0, 0)
    assert holds(quick_disk, str(tmp_path), copied)
    assert not holds(quick_disk, str(tmp_path), Copied("log", "a", 1, 0))
    assert not holds(quick_disk, str(tmp_path), Copied("log", "b", 0, 0))

    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "bad sector")

    file = quick_disk.open(str(tmp_path / "files" / "a"))
    file.close()
    monkeypatch.setattr(type(file), "size", fail)
    assert not holds(quick_disk, str(tmp_path), copied)


def test_a_new_segment_without_room_is_not_left_behind(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe.store(1, b"x" * 100)
    before = scribe.segments

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as broken:
        broken.setattr(type(scribe.log._current.file), "allocate", full)
        with pytest.raises(OSError, match="full"):
            scribe.log._roll(700)
    assert scribe.segments == before
    scribe.store(1, b"y")
    scribe.reopen()
    assert list(scribe.payloads(1).values()) == [b"x" * 100, b"y"]


def test_a_checkpoint_that_fails_at_the_end_takes_no_room(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe.store(1, b"a")

    def failing(*_: Any) -> None:
        raise OSError(errno.EIO, "planned")

    with monkeypatch.context() as broken:
        broken.setattr(type(scribe.log._current.file), "sync", failing)
        with pytest.raises(OSError, match="planned"):
            scribe.checkpoint(b"state" * 100)
    left = [path.stat().st_size for path in (scribe.directory / "checkpoints").iterdir()]
    assert sum(left) == 0
    scribe.checkpoint(b"state")
    assert scribe.reopen().states == [b"state"]


def test_only_so_many_files_are_open_for_reading(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "HANDLES_MAX", 2)
    for number in range(60):
        scribe.store(1, b"%d" % number + b"x" * 100)
    assert len(scribe.segments) > 5
    closed: list[str] = []
    kind = type(scribe.log._current.file)
    close = kind.close

    def note(self: Any) -> None:
        closed.append("closed")
        close(self)

    monkeypatch.setattr(kind, "close", note)
    for _ in range(2):
        assert len(scribe.payloads(1)) == 60
        assert len(scribe.log._catalog._handles) == 2
    assert len(closed) >= 2 * (len(scribe.segments) - 3)
