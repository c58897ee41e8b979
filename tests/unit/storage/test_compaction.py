"""Compaction: settled messages give their room back, live ones stay as they were."""

from typing import Any

import pytest

from oncemq.errors import Corrupt
from oncemq.protocol.names import Epoch, Micros, ProducerId, Sequence
from oncemq.protocol.records import Run
from oncemq.storage.catalog import catalog
from oncemq.storage.compaction.compaction import join_runs
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.segments import index
from oncemq.storage.segments.index import FileIndex


def fill(scribe: Any) -> None:
    """Topic 1 mostly settled, topic 2 all settled, everything but the tail checkpointed."""
    for number in range(40):
        scribe.put(1, b"one %d" % number)
        scribe.put(2, b"two %d " % number + b"x" * 80, b"two again")
        scribe.commit()
    scribe.checkpoint(b"a")
    scribe.checkpoint(b"b")
    for number in range(20):
        scribe.store(1, b"tail %d" % number)


def test_nothing_is_touched_before_two_checkpoints_cover_it(scribe: Any) -> None:
    for number in range(40):
        scribe.store(1, b"m%d" % number + b"x" * 80)
    assert scribe.compact(lambda _: 40) == 0
    scribe.checkpoint(b"")
    assert scribe.compact(lambda _: 40) == 0
    scribe.checkpoint(b"")  # at the same serial: it replaces the first, there is still one
    assert scribe.compact(lambda _: 40) == 0


def test_dead_segments_are_deleted(scribe: Any) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    before = scribe.log.bytes_used
    assert scribe.compact(lambda topic: None) == 1
    assert scribe.log.bytes_used < before / 2
    assert not list(scribe.directory.glob("log/*.cold"))
    scribe.reopen()


def test_live_messages_are_kept_and_joined(scribe: Any) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    batches = len(scribe.log.read_many(1, 0, count_max=1000, bytes_max=1 << 20))
    before = scribe.log.bytes_used
    assert scribe.compact(lambda topic: 5 if topic == 1 else 10**6) >= 1
    for _ in range(2):
        assert scribe.payloads(1, 5) == dict(list(enumerate(scribe.topics[1]))[5:])
        assert scribe.log.find(2, 0).first_offset > 60  # settled ones are gone where covered
        assert scribe.log.bytes_used < before
        assert len(scribe.log.read_many(1, 5, count_max=1000, bytes_max=1 << 20)) < batches / 2
        for offset in (5, 17, 39, 41):
            place = scribe.log.find(1, offset)
            assert place.first_offset <= offset < place.first_offset + place.count
        scribe.reopen()


def test_timestamps_are_found_inside_joined_batches(scribe: Any) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    wanted = {
        offset: scribe.log.read(scribe.log.find(1, offset)).record.runs[0].timestamp
        for offset in range(10, 40)
    }
    scribe.compact(lambda topic: 5 if topic == 1 else None)
    for offset, timestamp in wanted.items():
        assert scribe.log.offset_at(1, timestamp) == offset
        assert scribe.log.offset_at(1, timestamp - 1) == offset
    assert scribe.log.offset_at(1, 10**15) is None


def test_a_message_inside_a_joined_batch_is_as_old_as_it_was(scribe: Any) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    before = {offset: list(scribe.log.moments(1, offset))[-1] for offset in range(60)}
    assert len(set(before.values())) == 60
    assert scribe.compact(lambda topic: 0 if topic == 1 else 10**6) >= 1
    first = scribe.log.find(1, 0)
    assert first.count > 3
    after = {offset: list(scribe.log.moments(1, offset)) for offset in range(60)}
    assert {offset: moments[-1] for offset, moments in after.items()} == before
    assert after[1] == [before[0], before[1]], "none of them is later than the message"
    assert list(scribe.log.moments(7, 0)) == []


def test_cold_segments_are_compacted_again(scribe: Any) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    scribe.compact(lambda topic: 2 if topic == 1 else None)
    first = sorted(path.name for path in scribe.directory.glob("log/*.cold"))
    scribe.compact(lambda topic: 36 if topic == 1 else None)
    second = sorted(path.name for path in scribe.directory.glob("log/*.cold"))
    assert first
    assert first != second
    assert scribe.payloads(1, 36) == dict(list(enumerate(scribe.topics[1]))[36:])
    scribe.reopen()
    assert scribe.payloads(1, 36) == dict(list(enumerate(scribe.topics[1]))[36:])


def test_a_damaged_source_is_left_alone(scribe: Any) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    place = scribe.log.find(1, 10)
    with open(place.segment.path, "r+b") as file:
        file.seek(place.position + place.size - 1)
        file.write(b"\xff")
    before = sorted(scribe.directory.glob("log/*"))
    job = scribe.log.plan(lambda topic: LiveShare("t1", 5) if topic == 1 else None)
    while job is not None and not job._plan.rewrite:
        job.run()
        scribe.log.complete(job)
        job.clean()
        before = sorted(scribe.directory.glob("log/*"))
        job = scribe.log.plan(lambda topic: LiveShare("t1", 5) if topic == 1 else None)
    assert job is not None
    with pytest.raises(Corrupt, match="not what was written"):
        job.run()
    scribe.log.abandon(job)
    assert sorted(scribe.directory.glob("log/*")) == before


@pytest.mark.parametrize("name", ["*.idx", "*.cold"])
def test_an_index_that_is_missing_is_made_again(scribe: Any, name: str) -> None:
    fill(scribe)
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"c")
    if name == "*.cold":
        scribe.compact(lambda topic: 5 if topic == 1 else None)
    scribe.log.close()
    indexes = list(scribe.directory.glob("log/*.idx"))
    assert indexes
    for path in indexes:
        path.unlink()
    scribe.open()
    assert set(scribe.directory.glob("log/*.idx")) == set(indexes)
    assert scribe.payloads(1, 5) == dict(list(enumerate(scribe.topics[1]))[5:])


def test_an_index_that_is_missing_is_made_again_where_no_checkpoint_covers_its_segment(
    scribe: Any,
) -> None:
    fill(scribe)
    scribe.log.close()
    indexes = set(scribe.directory.glob("log/*.idx"))
    assert indexes
    for path in indexes:
        path.unlink()
    scribe.open()
    assert set(scribe.directory.glob("log/*.idx")) == indexes
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))
    *sealed, _ = scribe.log._catalog.segments
    assert {type(each.index) for each in sealed} == {FileIndex}  # none is kept in memory


def run(count: int, first: int, *, producer: bytes = b"p", timestamp: int = 1) -> Run:
    return Run(count, ProducerId(producer), Epoch(1), Sequence(first), Micros(timestamp))


def test_only_runs_that_go_on_are_made_one() -> None:
    assert join_runs([run(2, 1), run(3, 3)]) == (run(5, 1),)
    for other in (run(3, 4), run(3, 3, producer=b"q"), run(3, 3, timestamp=2)):
        assert join_runs([run(2, 1), other]) == (run(2, 1), other)


def test_a_damaged_index_block_is_made_again_while_the_log_is_open(scribe: Any) -> None:
    for number in range(40):
        scribe.store(1, b"m%d" % number + b"x" * 90)
    indexes = sorted(scribe.directory.glob("log/*.idx"))
    for path in indexes:
        data = bytearray(path.read_bytes())
        data[index._HEADER.size + index._ROW.size] ^= 1  # the first offset of the first block
        path.write_bytes(data)
    assert scribe.log.offset_at(1, 1003) == 3
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))
    scribe.reopen()
    assert sorted(scribe.directory.glob("log/*.idx")) == indexes
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))


def test_a_damaged_index_of_a_damaged_segment_is_refused_each_time(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        scribe.store(1, b"m%d" % number + b"x" * 90)
    place = scribe.log.find(1, 3)
    for path, position in (
        (scribe.directory / "log" / place.segment.name, place.position + place.size - 1),
        (
            (scribe.directory / "log" / place.segment.name).with_suffix(".idx"),
            index._HEADER.size + index._ROW.size,
        ),
    ):
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
    place.segment.index._cache._blocks.clear()
    reads: list[int] = []
    made = catalog.make_index
    monkeypatch.setattr(catalog, "make_index", lambda *args: reads.append(1) or made(*args))
    for _ in range(3):
        with pytest.raises(Corrupt, match="run `once repair`"):
            scribe.log.find(1, 3)
        with pytest.raises(Corrupt, match="run `once repair`"):
            scribe.log.offset_at(1, 1003)
    assert len(reads) == 1  # not the whole segment for every reader who asks
    assert scribe.log.find(1, 39).first_offset == 39


def test_an_index_that_vanishes_while_the_log_is_open_is_made_again(scribe: Any) -> None:
    for number in range(40):
        scribe.store(1, b"m%d" % number + b"x" * 90)
    for path in scribe.directory.glob("log/*.idx"):
        path.unlink()
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))
    assert scribe.log.offset_at(1, 1003) == 3
