"""Opening a log after anything may have happened to its bytes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Corrupt, Locked, StorageRefused
from oncemq.storage.log.log import LogOptions
from oncemq.storage.segments.segment import COLD, LOG, Header

WIDE = LogOptions(segment_bytes=1 << 20, allocate_bytes=512, reserve_bytes=64)


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def test_what_was_finished_is_there_after_reopening(scribe: Any) -> None:
    for number in range(40):
        scribe.put(1 + number % 3, b"m%d" % number, b"second")
        scribe.fact(number)
        scribe.commit()
    opened = scribe.reopen()
    serials = [serial for serial, _ in opened.replay]
    assert serials == list(range(1, 81))
    for topic, payloads in scribe.topics.items():
        assert scribe.payloads(topic) == dict(enumerate(payloads))
    assert opened.report.torn == []


def test_a_log_cut_at_any_byte_of_its_tail_keeps_what_was_finished(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    scribe = make_scribe(tmp_path / "data", quick_disk, WIDE)
    for number in range(4):
        scribe.store(1, b"finished %d" % number)
    kept = scribe.log._current.end
    for number in range(3):
        scribe.put(1, b"unfinished %d" % number)
    scribe.log.write(scribe.log.take_group())  # written, but nobody was told
    end = scribe.log._current.end
    scribe.kill()
    for cut in range(kept, end + 1):
        directory = copy(tmp_path / "data", tmp_path / "cut")
        with (directory / "log" / scribe.segments[0].name).open("r+b") as file:
            file.truncate(cut)
        again = make_scribe(directory, quick_disk, WIDE)
        last = again.log.last_serial
        assert 4 <= last <= 7
        assert (last == 7) == (cut == end)
        assert [serial for serial, _ in again.opened.replay] == list(range(1, last + 1))
        again.topics = {1: scribe.topics[1][:last]}
        again.store(1, b"it goes on")
        again.reopen()
        assert again.payloads(1) == dict(enumerate([*scribe.topics[1][:last], b"it goes on"]))
        again.kill()


def test_a_flipped_byte_is_never_accepted_and_never_shortens_the_log(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    scribe = make_scribe(tmp_path / "data", quick_disk)
    positions: list[tuple[Path, int]] = []
    while len(scribe.segments) < 2 or scribe.log.last_serial < 8:
        positions.append((scribe.segments[-1], scribe.log._current.end))
        scribe.store(1, b"x" * 150)
        scribe.fact(7)
        scribe.commit()
    ends = {path: path.stat().st_size for path in scribe.segments}
    last_path, last_frame = scribe.segments[-1], _last_frame(scribe)
    scribe.log.close()
    again = make_scribe(copy(tmp_path / "data", tmp_path / "whole"), quick_disk)
    last = again.log.last_serial
    again.log.close()
    for path, size in ends.items():
        data = path.read_bytes()
        for position in range(min(size, len(data.rstrip(b"\0")))):
            directory = copy(tmp_path / "data", tmp_path / "flipped")
            changed = bytearray(data)
            changed[position] ^= 0x41
            (directory / "log" / path.name).write_bytes(changed)
            if path == last_path and position >= last_frame:
                opened = make_scribe(directory, quick_disk)
                assert opened.log.last_serial == last - 1
                assert len(opened.opened.report.torn) == 1
                opened.log.close()
            else:
                with pytest.raises(Corrupt, match="once repair"):
                    make_scribe(directory, quick_disk)


def _last_frame(scribe: Any) -> int:
    """Where the last frame begins: what a log cut there would end with."""
    before = scribe.log._current.end
    scribe.fact(7)
    scribe.commit()
    return before


def test_old_content_of_a_block_is_seen(scribe: Any) -> None:
    """A disk that kept an old block: each frame in it is valid by itself."""
    scribe.options = WIDE
    scribe.reopen()
    places = []
    for number in range(6):
        places.append(scribe.log._current.end)
        scribe.store(1, b"same size %d" % number)
    path = scribe.segments[-1]
    scribe.kill()
    data = bytearray(path.read_bytes())
    data[places[3] : places[4]] = data[places[2] : places[3]]
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="serial 3 stands where 4 belongs"):
        scribe.open()
    data[places[3] :] = b""
    path.write_bytes(data)
    scribe.open()


def test_a_frame_of_another_history_breaks_the_chain(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    logs = [make_scribe(tmp_path / name, quick_disk, WIDE) for name in ("one", "two")]
    for log, payload in zip(logs, (b"1", b"2"), strict=True):
        log.store(1, payload)
        start = log.log._current.end
        log.store(1, b"same")
        log.store(1, b"more")
        log.log.close()
    one, two = (bytearray(log.segments[0].read_bytes()) for log in logs)
    one[start:] = two[start:]
    logs[0].segments[0].write_bytes(one)
    with pytest.raises(Corrupt, match="chain"):
        logs[0].open()
    logs[1].open()


@pytest.mark.parametrize("content", [b"", bytes(700), b"torn header", b"torn" + bytes(700)])
def test_a_segment_that_was_never_begun_is_dropped(scribe: Any, content: bytes) -> None:
    scribe.store(1, b"a")
    scribe.log.close()
    never = scribe.directory / "log" / f"{2:020d}.log"
    never.write_bytes(content)
    scribe.open()
    assert not never.exists()
    kept = {path.name: path.read_bytes() for path in scribe.directory.glob("torn/*")}
    data = content.rstrip(b"\0")
    assert kept == ({f"{never.name}-0.torn": data} if data else {}), "for a person to look at"
    scribe.store(1, b"b")
    assert scribe.payloads(1) == {0: b"a", 1: b"b"}


def test_the_only_segment_is_not_taken_for_one_that_was_never_begun(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.kill()
    (only,) = scribe.segments
    only.write_bytes(bytes(only.stat().st_size))
    (scribe.directory / "END").unlink(missing_ok=True)  # nothing else says that it was begun
    with pytest.raises(Corrupt, match="the header does not hold; run `once repair`"):
        scribe.open()
    assert scribe.segments == [only]


def test_a_torn_tail_before_a_segment_that_was_never_begun_is_still_torn(scribe: Any) -> None:
    scribe.options = WIDE
    scribe.reopen()
    scribe.store(1, b"a")
    end = scribe.log._current.end
    scribe.store(1, b"b")
    path = scribe.segments[-1]
    scribe.kill()
    data = path.read_bytes()
    path.write_bytes(data[: end + 60])
    (scribe.directory / "log" / f"{3:020d}.log").write_bytes(bytes(64))
    opened = scribe.open()
    assert opened.log.last_serial == 1
    assert Path(opened.report.torn[0]).read_bytes() == data[end : end + 60].rstrip(b"\0")


def test_a_zero_hole_before_records_is_corruption(scribe: Any) -> None:
    scribe.options = WIDE
    scribe.reopen()
    scribe.store(1, b"a")
    start = scribe.log._current.end
    scribe.store(1, b"b")
    end = scribe.log._current.end
    scribe.store(1, b"c")
    path = scribe.segments[-1]
    scribe.log.close()
    data = bytearray(path.read_bytes())
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="serials 2 to 2 are lost"):
        scribe.open()


@pytest.mark.parametrize("damaged", [20, 120])
@pytest.mark.parametrize("identity", [b"\5", b"\6"])
def test_a_payload_that_looks_like_a_log_is_only_a_payload(
    tmp_path: Path, make_scribe: Any, quick_disk: Any, identity: bytes, damaged: int
) -> None:
    """Somebody stores a copy of a log: a torn tail with it inside is still a torn tail.

    With a whole header, whatever is inside the body is skipped. Without one, frames of
    another log do not hold here. Only a copy of this very log is taken for what it may be.
    """
    other = make_scribe(tmp_path / "other", quick_disk, WIDE, identity)
    for _ in range(5):
        other.store(1, b"other")
    inside = other.segments[0].read_bytes().rstrip(b"\0")
    other.kill()
    scribe = make_scribe(tmp_path / "data", quick_disk, WIDE)
    scribe.store(1, b"a")
    end = scribe.log._current.end
    scribe.store(1, b"x" * 100, inside)
    scribe.kill()
    path = scribe.segments[0]
    data = bytearray(path.read_bytes())
    data[end + damaged] ^= 1
    path.write_bytes(data)
    if damaged == 20 and identity == scribe.identity:
        with pytest.raises(Corrupt):
            scribe.open()
    else:
        assert scribe.open().log.last_serial == 1
        scribe.kill()


def test_a_bad_last_frame_that_a_checkpoint_proves_durable_is_corruption(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.store(1, b"b")
    end = scribe.log._current.end
    scribe.checkpoint(b"state")
    scribe.log.close()
    path = scribe.segments[0]
    data = bytearray(path.read_bytes())
    data[end - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="serials 2 to 2 are lost, which were durable"):
        scribe.open()
    data[end - 1] ^= 1
    path.write_bytes(data)
    scribe.open()


def test_a_directory_is_opened_by_one(scribe: Any, make_scribe: Any, quick_disk: Any) -> None:
    with pytest.raises(Locked, match="held by process"):
        make_scribe(scribe.directory, quick_disk)


def test_a_newer_format_is_refused_by_name(scribe: Any) -> None:
    scribe.log.close()
    path = scribe.directory / "FORMAT"
    text = path.read_text()
    path.write_text(text.replace('"format": 2', '"format": 3'))
    with pytest.raises(StorageRefused, match="newer OnceMQ \\(format 3\\)") as caught:
        scribe.open()
    assert caught.value.code == "format_too_new"
    path.write_text(text)
    scribe.open()


def test_records_without_a_format_file_are_refused(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.log.close()
    text = (scribe.directory / "FORMAT").read_text()
    (scribe.directory / "FORMAT").unlink()
    with pytest.raises(Corrupt, match="no FORMAT"):
        scribe.open()
    (scribe.directory / "FORMAT").write_text(text)
    scribe.open()


def test_a_missing_segment_in_the_middle_is_corruption(scribe: Any) -> None:
    for _ in range(40):
        scribe.store(1, b"x" * 100)
    scribe.log.close()
    hidden = scribe.segments[1]
    hidden.rename(scribe.directory / "hidden")
    with pytest.raises(Corrupt, match="is missing, its index"):
        scribe.open()
    hidden.with_suffix(".idx").unlink()
    with pytest.raises(Corrupt, match="the next segment begins with"):
        scribe.open()
    (scribe.directory / "hidden").rename(hidden)
    scribe.open()


def test_damage_before_the_last_segment_is_told_with_its_place(scribe: Any) -> None:
    for _ in range(40):
        scribe.store(1, b"x" * 100)
    place = scribe.log.find(1, 2)
    scribe.log.close()
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[place.position + place.size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt) as refused:
        scribe.open()
    assert refused.value.detail == (
        f"{path} is damaged at byte {place.position}: the body of serial 3 does not match its "
        "checksum; serials from 3 on cannot be read; run `once repair`"
    )


@pytest.mark.parametrize("what", ["replay", "frames"])
def test_a_log_that_changes_while_it_is_replayed_is_refused(scribe: Any, what: str) -> None:
    """It was whole a moment ago: a device that gives other bytes now cannot be believed."""
    for _ in range(3):
        scribe.store(1, b"x" * 100)
    place = scribe.log.find(1, 1)
    opened = scribe.reopen()
    path = scribe.segments[0]
    data = bytearray(path.read_bytes())
    data[place.position + (60 if what == "replay" else place.size - 1)] ^= 1
    path.write_bytes(data)
    found: list[object] = []
    with pytest.raises(Corrupt) as refused:
        found.extend(getattr(opened, what))
    assert len(found) == 1
    assert refused.value.detail == f"{path} changed while it was read, at byte {place.position}"
    data[place.position + (60 if what == "replay" else place.size - 1)] ^= 1
    path.write_bytes(data)


def test_the_unproven_tail_is_written_again_before_anything_is_served(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync the pages may count as clean: syncing them again proves nothing."""
    scribe.options = WIDE
    scribe.reopen()
    for number in range(5):
        scribe.store(1, b"m%d" % number)
    path = scribe.segments[-1]
    scribe.kill()
    written: list[tuple[int, int]] = []
    file = scribe.disk.open(str(path))
    file.close()
    write: Callable[..., None] = type(file).write

    def note(self: Any, buffers: list[bytes], position: int) -> None:
        written.append((position, position + sum(map(len, buffers))))
        write(self, buffers, position)

    monkeypatch.setattr(type(file), "write", note)
    scribe.open()
    # the durable mark of frame 5 proves serial 4; frame 5 itself nothing proves
    *written, opening = written
    assert opening[0] in (0, 4096)  # a slot of OPENED
    assert written == [(scribe.log.find(1, 4).position, scribe.log._current.end)]


def test_a_segment_of_another_history_is_seen_at_its_border(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    logs = [make_scribe(tmp_path / name, quick_disk) for name in ("one", "two")]
    for log, letter in zip(logs, (b"1", b"2"), strict=True):
        for _ in range(20):
            log.store(1, letter * 150)
        log.log.close()
    logs[0].segments[1].write_bytes(logs[1].segments[1].read_bytes())
    with pytest.raises(Corrupt, match="not the predecessor"):
        logs[0].open()


def test_nothing_of_a_torn_tail_comes_back(scribe: Any) -> None:
    scribe.options = WIDE
    scribe.reopen()
    scribe.store(1, b"a")
    end = scribe.log._current.end
    scribe.store(1, b"x" * 5000)
    path = scribe.segments[-1]
    scribe.kill()
    data = bytearray(path.read_bytes())
    data[end + 150] ^= 1
    path.write_bytes(data)
    assert len(scribe.open().report.torn) == 1
    scribe.topics[1] = [b"a"]
    scribe.store(1, b"short")
    assert scribe.reopen().report.torn == []
    assert scribe.payloads(1) == {0: b"a", 1: b"short"}


def test_the_room_of_a_segment_before_the_last_is_given_back(scribe: Any) -> None:
    """A power cut may have kept the next segment, and not that this one was cut to its end."""
    while len(scribe.segments) < 2:
        scribe.store(1, b"x" * 100)
    first = scribe.segments[0]
    scribe.kill()
    end = first.stat().st_size
    with first.open("r+b") as file:
        file.truncate(end + 700)
    stored = scribe.topics[1]
    opened = scribe.open()
    assert first.stat().st_size == end
    assert opened.log.bytes_used == sum(path.stat().st_size for path in first.parent.iterdir())
    assert opened.report.torn == []
    assert scribe.payloads(1) == dict(enumerate(stored))


@pytest.mark.parametrize("sources", [(), ("a.log", "b.log")])
def test_the_first_frame_begins_where_the_header_ends(sources: tuple[str, ...]) -> None:
    header = Header(COLD if sources else LOG, b"i" * 16, 7, sources=sources)
    assert header.size == len(header.encode())
