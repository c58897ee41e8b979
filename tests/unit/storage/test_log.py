"""The log while it is open: groups, room, finding and reading."""

import errno
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import StorageRefused
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import MessagesStored, Run
from oncemq.storage.log.log import LogOptions


def test_nothing_is_durable_before_its_group_is_finished(scribe: Any) -> None:
    serial = scribe.put(1, b"a")
    assert (scribe.log.last_serial, scribe.log.durable_serial) == (serial, 0)
    group = scribe.log.take_group()
    second = scribe.put(1, b"b")
    scribe.log.write(group)
    assert scribe.log.durable_serial == 0
    assert scribe.log.finished(group) == serial == scribe.log.durable_serial
    assert scribe.log.last_serial == second
    assert scribe.log.read_many(1, 0, count_max=9, bytes_max=999)[-1].record.first_offset == 0
    assert scribe.commit() == second
    assert scribe.log.take_group() is None


def test_a_group_may_go_through_many_segments(scribe: Any) -> None:
    for number in range(60):
        scribe.put(1, b"m%d" % number + b"x" * 90)
    scribe.commit()
    assert len(scribe.segments) > 3
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))
    assert [extent.first_offset for extent in scribe.log.extents(1)][1:] == [
        extent.end_offset for extent in scribe.log.extents(1)
    ][:-1]
    for path in scribe.segments[:-1]:
        assert not path.read_bytes().endswith(bytes(48))  # the room not used was given back


def test_a_large_body_is_not_copied(scribe: Any) -> None:
    body = memoryview(bytearray(b"x" * 500_000))
    run = Run(1, ProducerId(b"p" * 16), Epoch(1), Sequence(1), Micros(1))
    record = MessagesStored(TopicId(1), Offset(0), 1, 0, 0, (run,))
    scribe.log.append(record, body, seed=1, checksum=2)
    group = scribe.log.take_group()
    assert any(buffer is body for part in group.parts for buffer in part.buffers)
    scribe.log.write(group)
    scribe.log.finished(group)
    assert scribe.log.read(scribe.log.find(1, 0)).body == body


def test_find_gives_the_batch_that_holds_the_offset_or_the_next(scribe: Any) -> None:
    scribe.store(1, b"a", b"b", b"c")
    scribe.store(2, b"other")
    scribe.store(1, b"d", b"e")
    found = {offset: scribe.log.find(1, offset) for offset in range(6)}
    firsts = {offset: place and place.first_offset for offset, place in found.items()}
    assert firsts == {0: 0, 1: 0, 2: 0, 3: 3, 4: 3, 5: None}
    assert scribe.log.find(3, 0) is None


def test_read_many_stops_at_its_limits_but_gives_one_at_least(scribe: Any) -> None:
    for number in range(50):
        scribe.store(1, b"m%d" % number, b"x")

    def firsts(offset: int, *, count: int, size: int) -> list[int]:
        found = scribe.log.read_many(1, offset, count_max=count, bytes_max=size)
        return [stored.record.first_offset for stored in found]

    assert firsts(5, count=4, size=1 << 20) == [4, 6, 8]
    assert firsts(0, count=1000, size=1) == [0]
    assert firsts(0, count=1000, size=1 << 20) == list(range(0, 100, 2))
    assert firsts(100, count=1000, size=1 << 20) == []


def reads_of(scribe: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read asks for, from now on."""
    reads: list[int] = []
    files = type(scribe.log._current.file)
    read = files.read
    monkeypatch.setattr(
        files, "read", lambda self, *place: reads.append(place[1]) or read(self, *place)
    )
    return reads


def test_when_a_message_was_stored_is_known_without_reading_it(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        scribe.store(1, b"x" * 10)
    reads = reads_of(scribe, monkeypatch)
    assert [list(scribe.log.moments(1, offset))[-1] for offset in range(3)] == [1000, 1001, 1002]
    assert reads == []


def test_batches_that_lie_side_by_side_are_read_with_one_read(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in (1, 1, 1, 2, 1, 1):
        scribe.store(topic, b"x" * 10)
    reads = reads_of(scribe, monkeypatch)
    found = scribe.log.read_many(1, 0, count_max=100, bytes_max=1 << 20)
    assert [stored.record.first_offset for stored in found] == [0, 1, 2, 3, 4]
    assert len(reads) == 2


def test_offsets_are_found_by_time(scribe: Any) -> None:
    for number in range(40):
        scribe.store(1, b"m%d" % number + b"x" * 90)
    assert scribe.log.offset_at(1, 0) == 0
    assert scribe.log.offset_at(1, 1017) == 17
    assert scribe.log.offset_at(1, 1039) == 39
    assert scribe.log.offset_at(1, 1040) is None
    assert scribe.log.offset_at(9, 0) is None


def test_a_full_log_refuses_messages_takes_facts_and_recovers(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    options = LogOptions(
        segment_bytes=8000, allocate_bytes=4000, reserve_bytes=3000, disk_bytes_max=40_000
    )
    scribe = make_scribe(tmp_path / "data", quick_disk, options)
    while scribe.log.has_room(500, now_ms=0):
        scribe.store(1, b"x" * 500)
    assert scribe.log.bytes_used <= 40_000
    assert scribe.log.last_serial > 20
    assert not scribe.log.has_room(500, now_ms=5000)
    assert scribe.log.has_room(10, now_ms=5000, fact=True)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"")
    scribe.fact(2)
    scribe.commit()
    scribe.checkpoint(b"")
    assert scribe.compact(lambda _: 10**6)
    assert scribe.log.has_room(500, now_ms=5001)
    scribe.store(1, b"goes on")
    scribe.reopen()
    assert scribe.payloads(1, 10**3) == {}
    scribe.log.close()


def test_a_disk_without_room_is_asked_again_once_a_second(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def full(_: Any, size: int) -> None:
        asked.append(size)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(type(scribe.log._current.file), "allocate", full)
    answers = [scribe.log.has_room(900, now_ms=now) for now in (0, 1, 999, 1000, 1001)]
    assert answers == [False] * 5
    assert len(asked) == 2


def test_after_a_failed_write_nothing_is_written_any_more(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe.store(1, b"a")
    scribe.put(1, b"b")

    def broken(_: Any) -> None:
        raise OSError(errno.EIO, "gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(scribe.log._current.file), "sync", broken)
        with pytest.raises(OSError, match="gone"):
            scribe.log.write(scribe.log.take_group())
    scribe.put(1, b"c")
    with pytest.raises(StorageRefused, match="restart"):
        scribe.log.write(scribe.log.take_group())
    assert scribe.log.durable_serial == 1


def test_with_sync_ms_a_group_is_finished_when_written_and_durable_when_synced(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    scribe = make_scribe(tmp_path / "data", quick_disk, LogOptions(sync_ms=50))
    scribe.put(1, b"a")
    group = scribe.log.take_group()
    scribe.log.write(group)
    assert scribe.log.finished(group) == 1
    assert scribe.log.durable_serial == 0
    assert scribe.log.take_group() is None
    group = scribe.log.take_group(sync=True)
    scribe.log.write(group)
    assert scribe.log.finished(group) == 1
    assert scribe.log.durable_serial == 1
    scribe.log.close()
