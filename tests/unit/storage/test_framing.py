"""Frames: one record as bytes, and what is made of bytes that are none."""

from pathlib import Path
from typing import cast

import pytest

from oncemq.errors import StorageRefused
from oncemq.protocol.names import ClientId, Offset, Sequence, TopicId
from oncemq.protocol.outbox_records import OutboxPut, OutboxRecord
from oncemq.protocol.records import CursorMoved, Record
from oncemq.protocol.structs import RecordStruct
from oncemq.storage.disk import File, LocalDisk
from oncemq.storage.segments.framing import (
    HEADER_BYTES,
    META_BYTES_MAX,
    STRETCH_BYTES,
    Bad,
    Frame,
    encode,
    first_frame_after,
    parse,
    scan,
)

KEY = 77
FACT = CursorMoved(TopicId(1), ClientId("c"), Offset(2))


def frame(
    serial: int, *, body: bytes = b"", record: Record | OutboxRecord = FACT, key: int = KEY
) -> bytes:
    _, head = encode(record, key=key, serial=serial, previous=0, durable=0, body_bytes=len(body))
    return head + body


@pytest.fixture
def file(tmp_path: Path) -> File:
    return LocalDisk().open(f"{tmp_path}/file", create=True)


def found(file: File, *, bodies: bool = True) -> list[int | str]:
    """The serials of a scan, and `bad` where it met something else."""
    return [
        one.serial if isinstance(one, Frame) else "bad"
        for one in scan(file, 0, file.size(), KEY, bodies=bodies)
    ]


def test_a_frame_is_read_as_it_was_written() -> None:
    chain, head = encode(
        FACT, key=KEY, serial=9, previous=8, durable=7, seed=6, body_bytes=3, body_checksum=5
    )
    read = parse(memoryview(head + b"abc"), 0, 100, KEY)
    assert isinstance(read, Frame)
    assert (read.serial, read.previous, read.durable) == (9, 8, 7)
    assert (read.seed, read.body_checksum, read.chain) == (6, 5, chain)
    assert (read.position, read.end, read.body_position) == (100, 103 + len(head), 100 + len(head))
    assert read.record() == FACT
    assert read.body == b"abc"


@pytest.mark.parametrize("bodies", [True, False])
def test_frames_larger_than_what_is_read_at_once_are_found(file: File, bodies: bool) -> None:
    sizes = [10, STRETCH_BYTES - 500, 0, 3 * STRETCH_BYTES, 7, STRETCH_BYTES]
    whole = [frame(number, body=b"x" * size) for number, size in enumerate(sizes, 1)]
    file.write(whole, 0)
    assert found(file, bodies=bodies) == [1, 2, 3, 4, 5, 6]
    file.allocate(file.size() + 1000)
    assert found(file, bodies=bodies) == [1, 2, 3, 4, 5, 6]


def test_nothing_is_read_beyond_the_end_that_was_asked_for(file: File) -> None:
    whole = [frame(1), frame(2), frame(3)]
    start = 10 * len(whole[0])
    file.write(whole, start)
    end = start + len(whole[0]) + len(whole[1])
    read = [one.serial for one in scan(file, start, end, KEY) if isinstance(one, Frame)]
    assert read == [1, 2]


def test_zeros_are_the_end_and_anything_else_is_bad(file: File) -> None:
    file.write([frame(1), bytes(20)], 0)
    assert found(file) == [1]
    file.write([b"\1"], file.size() - 1)
    assert found(file) == [1, "bad"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("bodies", [True, False])
def test_a_file_that_is_shorter_than_it_should_be_is_read_to_its_own_end(
    file: File, bodies: bool
) -> None:
    whole = frame(1, body=b"abc") + frame(2, body=b"abc")
    for size in range(len(whole) + 1):
        file.truncate(0)
        file.write([whole[:size]], 0)
        frames = list(scan(file, 0, len(whole) + 500, KEY, bodies=bodies))
        cut = size not in (0, len(whole) // 2, len(whole))
        assert [type(each) for each in frames] == [
            *[Frame] * (size * 2 // len(whole)),
            *[Bad] * cut,
        ]
        after = first_frame_after(file, 0, len(whole) + 500, KEY, serial_min=3)
        assert after is None


def test_frames_under_another_key_do_not_hold(file: File) -> None:
    file.write([frame(1), frame(2, key=KEY + 1), frame(3)], 0)
    assert found(file) == [1, "bad"]
    after = first_frame_after(file, len(frame(1)), file.size(), KEY, serial_min=2)
    assert after is not None
    assert after.serial == 3


def test_a_frame_across_the_border_of_two_reads_is_seen_after_damage(file: File) -> None:
    for shift in range(HEADER_BYTES + 2):
        file.truncate(0)
        file.write([b"x" * (STRETCH_BYTES - shift), frame(5)], 0)
        after = first_frame_after(file, 0, file.size(), KEY, serial_min=5)
        assert after is not None
        assert after.position == STRETCH_BYTES - shift
        assert first_frame_after(file, 0, file.size(), KEY, serial_min=6) is None


def test_a_frame_behind_the_end_is_not_looked_at(file: File) -> None:
    file.write([b"x" * 50, frame(5)], 0)
    for end in range(1, 51):
        assert first_frame_after(file, 0, end, KEY, serial_min=0) is None


def test_a_kind_nobody_knows_is_a_newer_versions() -> None:
    class Unknown(RecordStruct, frozen=True, array_like=True):
        kind = 250
        value: int

    read = parse(memoryview(frame(1, record=cast("Record", Unknown(3)))), 0, 0, KEY)
    assert isinstance(read, Frame)
    with pytest.raises(StorageRefused, match="kind 250, written by a newer OnceMQ") as caught:
        read.record()
    assert caught.value.code == "format_too_new"


def test_a_length_that_cannot_be_is_bad() -> None:
    data = bytearray(frame(1))
    data[12:16] = b"\xff" * 4
    assert isinstance(parse(memoryview(data), 0, 0, KEY), Bad)


def test_a_record_that_no_scan_would_read_is_not_written() -> None:
    """The length in the header is trusted up to here: beyond, it is taken for a torn tail."""
    around = len(frame(1, record=OutboxPut("t", TopicId(1), Sequence(1), 1, 0, 0, bytes(1 << 16))))
    most = META_BYTES_MAX - (around - HEADER_BYTES - (1 << 16))
    record = OutboxPut("t", TopicId(1), Sequence(1), 1, 0, 0, bytes(most))
    read = parse(memoryview(frame(1, record=record)), 0, 0, KEY)
    assert isinstance(read, Frame)
    assert len(read.meta) == META_BYTES_MAX
    assert read.outbox_record() == record
    with pytest.raises(AssertionError, match="OutboxPut of 16777217 bytes"):
        frame(1, record=OutboxPut("t", TopicId(1), Sequence(1), 1, 0, 0, bytes(most + 1)))
