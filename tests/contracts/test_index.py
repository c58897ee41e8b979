"""What every index of a segment says: the one in memory, and the one in a file beside it."""

from collections.abc import Callable, Iterable
from random import Random

import pytest

from oncemq.protocol.commit_records import Committed, Part, PartKept
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import MessagesStored, Run
from oncemq.protocol.replies import NO_OFFSET
from oncemq.storage.segments import index as index_module
from oncemq.storage.segments.entries import Entry, Extent
from oncemq.storage.segments.index import (
    BlockCache,
    Covered,
    FileIndex,
    Index,
    Indexed,
    MemoryIndex,
    read_index,
    write_index,
)
from oncemq.testing.faulty_disk import FaultyDisk

COVERED = Covered(b"i" * 16, 7, 1, 99, 5, 4096)
Make = Callable[[Iterable[Indexed]], Index]


def in_memory(records: Iterable[Indexed]) -> MemoryIndex:
    """A record every hundred bytes, each of 60."""
    index = MemoryIndex()
    for number, record in enumerate(records):
        index.note(record, number * 100, 60)
    return index


def in_a_file(records: Iterable[Indexed]) -> FileIndex:
    disk = FaultyDisk(Random(1))
    write_index(disk, "/some.idx", in_memory(records), COVERED)
    found = read_index(disk, "/some.idx", BlockCache(1), identity=b"i" * 16, fingerprint=7)
    assert found is not None
    return found[0]


@pytest.fixture(params=["memory", "file", "file of small blocks"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    if "small" in request.param:
        monkeypatch.setattr(index_module, "BLOCK_ENTRIES", 2)
    return in_memory if request.param == "memory" else in_a_file


def stored(topic: int, first: int, *times: int) -> MessagesStored:
    """Two messages in a run at each of these times."""
    runs = tuple(
        Run(2, ProducerId(b"p" * 16), Epoch(1), Sequence(1 + 2 * number), Micros(time))
        for number, time in enumerate(times)
    )
    return MessagesStored(TopicId(topic), Offset(first), 2 * len(times), 0, 0, runs)


def part(topic: int, first: int, count: int) -> Part:
    return Part(TopicId(topic), Offset(first), count, Sequence(1), TopicId(9), Offset(0), 500)


def test_nothing_is_in_an_empty_one(make: Make) -> None:
    index = make([])
    assert (index.rows(), list(index.topics()), index.extent(4)) == (0, [], None)
    assert (list(index.entries_from(4, 0)), list(index.entries_since(4, 0))) == ([], [])


def test_what_there_is_of_each_topic(make: Make) -> None:
    index = make([stored(4, 10, 100, 110), stored(9, 0, 120), stored(4, 14, 130)])
    assert (index.rows(), sorted(index.topics())) == (2, [4, 9])
    assert index.extent(4) == Extent(10, 16, 100, 130, 120, 120)
    assert index.extent(9) == Extent(0, 2, 120, 120, 60, 60)
    assert [index.extent(other) for other in (0, 5, 10)] == [None] * 3


def test_entries_from_the_one_that_holds_an_offset_or_the_first_after_it(make: Make) -> None:
    index = make([stored(4, first, 100 + first) for first in (10, 12, 20, 22, 30)])
    entries = [
        Entry(first, 2, number * 100, 60, last_timestamp=100 + first)
        for number, first in enumerate((10, 12, 20, 22, 30))
    ]
    expected = {0: 0, 10: 0, 11: 0, 12: 1, 14: 2, 19: 2, 21: 2, 23: 3, 24: 4, 31: 4, 32: 5, 99: 5}
    found = {offset: list(index.entries_from(4, offset)) for offset in expected}
    assert found == {offset: entries[place:] for offset, place in expected.items()}
    assert list(index.entries_from(5, 0)) == []


def test_entries_from_the_first_with_a_message_of_a_time_or_later(make: Make) -> None:
    index = make([stored(4, 0, 100, 105), stored(4, 4, 105), stored(4, 6, 105), stored(4, 8, 110)])
    expected = {0: [0, 4, 6, 8], 101: [0, 4, 6, 8], 105: [0, 4, 6, 8], 106: [8], 111: []}
    found = {
        time: [each.first_offset for each in index.entries_since(4, time)] for time in expected
    }
    assert found == expected
    assert list(index.entries_since(5, 0)) == []


def test_a_commit_is_an_entry_of_each_topic_that_got_something(make: Make) -> None:
    parts = (part(4, 0, 3), part(5, int(NO_OFFSET), 2), part(6, 7, 1), part(4, 3, 2))
    commit = Committed("owner", 1, True, Micros(200), parts, (), True)
    index = make([commit, stored(6, 8, 210)])
    assert sorted(index.topics()) == [4, 6]
    assert list(index.entries_from(4, 0)) == [
        Entry(0, 3, 0, 60, is_part=True, last_timestamp=200),
        Entry(3, 2, 0, 60, is_part=True, last_timestamp=200),
    ]
    assert list(index.entries_from(6, 0)) == [
        Entry(7, 1, 0, 60, is_part=True, last_timestamp=200),
        Entry(8, 2, 100, 60, last_timestamp=210),
    ]
    assert index.extent(4) == Extent(0, 5, 200, 200, 120, 1_000)


def test_a_part_that_stands_alone_is_one_too(make: Make) -> None:
    run = Run(3, ProducerId(b"p" * 16), Epoch(1), Sequence(1), Micros(300))
    kept = PartKept(TopicId(4), Offset(5), 3, TopicId(9), Offset(0), 700, run)
    index = make([kept])
    assert list(index.entries_from(4, 6)) == [Entry(5, 3, 0, 60, is_part=True, last_timestamp=300)]
    assert index.extent(4) == Extent(5, 8, 300, 300, 60, 700)
