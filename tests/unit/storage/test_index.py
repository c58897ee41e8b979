"""An index on disk says the same as the one in memory it was written from, however many blocks."""

from pathlib import Path
from typing import Any

import pytest

from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import MessagesStored, Run
from oncemq.storage.segments import index as index_module
from oncemq.storage.segments.index import (
    BlockCache,
    Covered,
    DamagedIndex,
    FileIndex,
    MemoryIndex,
    read_index,
    write_index,
)

COVERED = Covered(b"i" * 16, 7, 1, 99, 5, 4096)
BATCHES = 23
COUNT = 3  # messages in each; between two batches one offset is missing


def filled() -> MemoryIndex:
    found = MemoryIndex()
    for topic in (4, 9):
        for number in range(BATCHES):
            first, time = Offset(10 + number * (COUNT + 1)), Micros(1000 + number // 2 * 10)
            run = Run(COUNT, ProducerId(b"p" * 16), Epoch(1), Sequence(1 + number * COUNT), time)
            record = MessagesStored(TopicId(topic), first, COUNT, 0, 0, (run,))
            found.add(record, 100 + number * 50, 50)
    return found


@pytest.fixture(params=[1, 2, 4, 5, BATCHES, 100])
def both(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    quick_disk: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[MemoryIndex, FileIndex]:
    """The same batches in memory and on disk, in blocks of so many."""
    monkeypatch.setattr(index_module, "BLOCK_ENTRIES", request.param)
    memory = filled()
    path = str(tmp_path / "some.idx")
    write_index(quick_disk, path, memory, COVERED)
    found = read_index(quick_disk, path, BlockCache(), identity=b"i" * 16, fingerprint=7)
    assert found is not None
    assert found[1] == COVERED
    return memory, found[0]


def test_every_offset_and_every_moment_is_found(both: tuple[MemoryIndex, FileIndex]) -> None:
    memory, file = both
    assert list(file.topics()) == sorted(memory.topics()) == [4, 9]
    assert file.rows() == memory.rows() == 2
    for topic in (3, 4, 9, 10):
        assert file.extent(topic) == memory.extent(topic)
        for offset in range(10 + BATCHES * (COUNT + 1) + 2):
            expected = list(memory.entries_from(topic, offset))
            assert list(file.entries_from(topic, offset)) == expected
        for moment in range(995, 1000 + BATCHES * 10):
            expected = list(memory.entries_since(topic, moment))
            assert list(file.entries_since(topic, moment)) == expected


def test_what_is_found_is_what_was_asked_for(both: tuple[MemoryIndex, FileIndex]) -> None:
    for index in both:
        firsts = [entry.first_offset for entry in index.entries_from(4, 17)]
        assert firsts == [10 + number * (COUNT + 1) for number in range(2, BATCHES)]
        firsts = [entry.first_offset for entry in index.entries_from(4, 16)]
        assert firsts[0] == 14
        times = [entry.last_timestamp for entry in index.entries_since(4, 1011)]
        assert len(times) == BATCHES - 4
        assert min(times) == 1020


def test_an_index_of_another_segment_or_a_damaged_one_is_none(
    tmp_path: Path, quick_disk: Any
) -> None:
    path = tmp_path / "some.idx"
    write_index(quick_disk, str(path), filled(), COVERED)

    def read(identity: bytes = b"i" * 16, fingerprint: int = 7) -> Any:
        return read_index(
            quick_disk, str(path), BlockCache(), identity=identity, fingerprint=fingerprint
        )

    assert read() is not None
    assert read(identity=b"j" * 16) is None
    assert read(fingerprint=8) is None
    whole = path.read_bytes()
    directory = 2 * index_module._ROW.size
    for position in range(index_module._HEADER.size + directory):  # its head and its rows
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert read() is None, position
    path.write_bytes(whole[:20])
    assert read() is None
    path.unlink()
    assert read() is None


def test_a_damaged_block_is_noticed_when_it_is_read(tmp_path: Path, quick_disk: Any) -> None:
    path = tmp_path / "some.idx"
    write_index(quick_disk, str(path), filled(), COVERED)
    found = read_index(quick_disk, str(path), BlockCache(), identity=b"i" * 16, fingerprint=7)
    assert found is not None
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert len(list(found[0].entries_from(4, 0))) == BATCHES
    with pytest.raises(DamagedIndex, match="made again"):
        list(found[0].entries_from(9, 0))
