"""What is compacted next: what frees room, what merges well, and nothing for ever."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Corrupt
from oncemq.protocol.names import ClientId, Offset, TopicId
from oncemq.protocol.records import CursorMoved
from oncemq.storage.compaction import compaction, plan
from oncemq.storage.compaction.compaction import ColdWriter
from oncemq.storage.compaction.plan import LiveShare, weight_of
from oncemq.storage.log.log import LogOptions
from oncemq.storage.segments.entries import Extent
from oncemq.storage.segments.segment import COLD, Segment, new_log_segment

JOBS_MAX = 50


def cover(scribe: Any) -> None:
    """Two checkpoints over all there is, and a fresh segment after it."""
    for number in range(2):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"%d" % number)


def compact(scribe: Any, lows: dict[int, int]) -> int:
    """Compact until there is rest; how many jobs that took."""

    def live(topic_id: int) -> LiveShare | None:
        return LiveShare(f"t{topic_id}", lows[topic_id]) if topic_id in lows else None

    jobs = 0
    while (job := scribe.log.plan(live)) is not None:
        job.run()
        scribe.log.complete(job)
        job.clean()
        jobs += 1
        assert jobs < JOBS_MAX, "compaction does not come to rest"
    return jobs


def cold(scribe: Any) -> list[Any]:
    return [each for each in scribe.log._catalog.segments if each.header.form == COLD]


def test_a_batch_that_is_settled_in_part_is_moved_once(scribe: Any) -> None:
    scribe.store(1, *[b"x" * 90] * 15)  # one batch that fills a segment
    scribe.store(2, b"y")
    cover(scribe)
    lows = {1: 14, 2: 1}
    assert compact(scribe, lows) == 1
    assert compact(scribe, lows) == 0
    scribe.reopen()  # nothing of it is remembered on the disk
    assert compact(scribe, lows) == 0
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1]))
    assert compact(scribe, {1: 15, 2: 1}) == 1
    assert cold(scribe) == []


def test_of_a_cold_segment_the_bytes_that_stay_are_known_exactly(
    roomy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 1)  # nothing is joined
    for size in (10, 3_000, 20, 4_000):  # sizes by which a share of the offsets says nothing
        roomy.store(1, b"x" * size, b"-")
    roomy.store(3, b"z" * 12_000)
    roomy.store(3, b"z" * 12_000)
    cover(roomy)
    assert compact(roomy, {1: 1}) == 1
    (segment,) = cold(roomy)
    total = segment.end - segment.header.size
    for low in range(8):
        before = weight_of(segment, lambda _, low=low: LiveShare("t1", low))[0]
        assert before == total - sum(
            entry.size
            for entry in segment.index.entries_from(1, 0)
            if entry.first_offset + entry.count <= low
        )
    assert weight_of(segment, lambda _: LiveShare("t1", 8)) == (0, 0)
    assert weight_of(segment, lambda _: None) == (0, 0)
    assert segment.weights == {}


@pytest.fixture
def roomy(tmp_path: Path, make_scribe: Any, quick_disk: Any) -> Any:
    options = LogOptions(segment_bytes=20_000, allocate_bytes=5_000, reserve_bytes=100)
    scribe = make_scribe(tmp_path / "data", quick_disk, options)
    yield scribe
    scribe.log.close()


def test_small_cold_neighbours_are_merged_and_no_byte_is_moved_often(
    roomy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: Counter[int] = Counter()
    add = ColdWriter.add

    def count(self: Any, one: Any) -> None:
        moved.update(range(one.record.first_offset, one.record.first_offset + one.record.count))
        add(self, one)

    monkeypatch.setattr(ColdWriter, "add", count)
    for number in range(64):
        roomy.store(1, b"kept %d" % number + b"x" * 400)
        roomy.store(2, b"settled" * 2_500)  # fills the segment
        cover(roomy)
        compact(roomy, {1: 0})
    sizes = [each.end for each in cold(roomy)]
    assert len(sizes) < 10
    assert max(sizes) <= 20_000 + 1_000
    assert max(moved.values()) <= 7  # once into a cold one, then log2 of what one may hold
    assert roomy.payloads(1) == dict(enumerate(roomy.topics[1]))
    roomy.reopen()
    assert compact(roomy, {1: 0}) == 0
    assert roomy.payloads(1) == dict(enumerate(roomy.topics[1]))


def test_large_cold_neighbours_are_left_alone(roomy: Any) -> None:
    for _ in range(6):
        roomy.store(1, b"x" * 7_000)
        roomy.store(2, b"y" * 12_500)
        cover(roomy)
    compact(roomy, {1: 0})
    assert len(cold(roomy)) >= 2
    assert compact(roomy, {1: 0}) == 0


def test_a_damaged_source_is_not_tried_again_and_holds_up_no_other(roomy: Any) -> None:
    for topic in (1, 2):
        roomy.store(topic, b"live")
        roomy.store(3, b"settled" * 2_815)
    roomy.store(1, b"later")
    cover(roomy)
    place = roomy.log.find(1, 0)
    with open(place.segment.path, "r+b") as file:
        file.seek(place.position + place.size - 1)
        file.write(b"\xff")
    lows = {1: LiveShare("t1", 0), 2: LiveShare("t2", 0)}
    job = roomy.log.plan(lows.get)
    assert [source.name for source in job.sources][:1] == [place.segment.name]
    with pytest.raises(Corrupt):
        job.run()
    roomy.log.abandon(job)
    assert "not what was written" in place.segment.damage
    assert compact(roomy, {1: 0, 2: 0}) == 1
    assert [each.index.extent(2) is not None for each in cold(roomy)] == [True]
    assert list(roomy.payloads(2).values()) == [b"live"]
    assert compact(roomy, {2: 0}) == 1  # but when all of it is settled it goes like any other
    with pytest.raises(FileNotFoundError):
        Path(place.segment.path).stat()


def test_an_index_that_is_damaged_does_not_stop_a_compaction(roomy: Any) -> None:
    roomy.store(1, b"live")
    roomy.store(3, b"settled" * 2_820)
    roomy.store(1, b"later")
    cover(roomy)
    index = Path(roomy.log.find(1, 0).segment.path).with_suffix(".idx")
    content = bytearray(index.read_bytes())
    for position in range(len(content) - 72, len(content)):  # of both topics' blocks
        content[position] ^= 1
    index.write_bytes(content)
    roomy.log.reclaiming._cache._blocks.clear()
    assert compact(roomy, {1: 0}) == 1
    assert list(roomy.payloads(1).values()) == [b"live", b"later"]


def test_room_is_taken_in_large_steps_up_to_the_end_of_a_segment(
    tmp_path: Path, make_scribe: Any, quick_disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = LogOptions(
        segment_bytes=30_000, allocate_bytes=8_000, reserve_bytes=5_000, checkpoints=False
    )
    scribe = make_scribe(tmp_path / "data", quick_disk, options)
    asked: list[int] = []
    kind = type(scribe.log._current.file)
    allocate = kind.allocate
    monkeypatch.setattr(
        kind, "allocate", lambda file, size: (asked.append(size), allocate(file, size))
    )
    record = CursorMoved(TopicId(1), ClientId("c"), Offset(1))
    while len(scribe.segments) < 4:
        assert scribe.log.has_room(50, now_ms=0)
        scribe.log.append(record)
        scribe.commit()
    assert len(asked) <= 4 * 6
    assert all(path.stat().st_size <= 30_000 for path in scribe.segments[:-1])
    scribe.log.close()


def test_a_look_is_short_and_all_of_them_together_see_everything(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many topics there are, a plan looks at some segments only, the others in turn."""
    monkeypatch.setattr(plan, "ROWS_A_LOOK", 1)
    asked: list[int] = []
    low = 0

    def live(topic: int) -> LiveShare | None:
        asked.append(topic)
        return LiveShare("t1", low)

    for _ in range(6):
        scribe.store(1, b"x" * 1500)
    cover(scribe)
    usable = [each for each in scribe.log._catalog.segments if each.index.rows()]
    looks = 0
    while looks == 0 or not scribe.log.reclaiming.planned_all:
        asked.clear()
        assert scribe.log.plan(live) is None
        assert len(asked) <= 1
        looks += 1
    assert looks >= len(usable) > 2
    low = 99  # everything is settled: found in turn, too
    assert compact(scribe, {1: 99}) >= 1
    while not scribe.log.reclaiming.planned_all:
        assert scribe.log.plan(live) is None
    assert [each for each in scribe.log._catalog.segments if each.index.rows()] == []


def test_segments_are_looked_at_in_turn_again_and_again(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What died since the last look is found, wherever it lies."""
    monkeypatch.setattr(plan, "ROWS_A_LOOK", 1)
    asked: list[int] = []

    def live(topic: int) -> LiveShare | None:
        asked.append(topic)
        return LiveShare(f"t{topic}", 0)

    for topic in (1, 2, 3):
        scribe.store(topic, b"x" * 1500)
    cover(scribe)
    segments, serial = scribe.log._catalog.segments[:3], scribe.log.last_serial
    assert [list(each.index.topics()) for each in segments] == [[1], [2], [3]]
    scales = plan.Scales()
    for _ in range(7):
        scales.weigh(segments, serial, live, serial)
    assert asked == [1, 2, 3, 1, 2, 3, 1]


def test_all_were_looked_at_until_something_is_appended(
    scribe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ROWS_A_LOOK", 1)
    for topic in (1, 2):
        scribe.store(topic, b"x" * 1500)
    cover(scribe)
    segments, serial = scribe.log._catalog.segments[:2], scribe.log.last_serial
    scales, looks = plan.Scales(), list[bool]()
    for last in (serial, serial, serial, serial + 1, serial + 1):
        scales.weigh(segments, serial, lambda _: None, last)
        looks.append(scales.looked_at_all)
    assert looks == [False, True, True, False, True]


# ------------------------------------------------------------------ stages that end


def up_to(*serials: int) -> list[Segment]:
    """Neighbours that end with these serials."""
    found: list[Segment] = []
    for first, last in pairwise((0, *serials)):
        found.append(new_log_segment("log", b"i" * 16, first + 1, 0))
        found[-1].last_serial = last
    return found


def offsets(first: int, end: int) -> Extent:
    return Extent(first, end, 0, 0, 100, 100)


def test_a_stage_lies_in_the_segments_that_hold_it_and_the_last_record_that_published_of_it() -> (
    None
):
    stage = LiveShare("stage", low=2, end=8, published=20)
    assert stage.lies_in(up_to(20), [offsets(2, 8)])
    assert not stage.lies_in(up_to(19), [offsets(2, 8)])  # parts of it come later
    assert stage.lies_in(up_to(10, 20), [offsets(2, 5), offsets(5, 8)])
    assert stage.lies_in(up_to(10, 20), [None, offsets(2, 8)])
    assert stage.lies_in(up_to(10, 20), [offsets(0, 9), None])
    assert not stage.lies_in(up_to(10, 20), [offsets(3, 5), offsets(5, 8)])
    assert not stage.lies_in(up_to(10, 20), [offsets(2, 5), offsets(5, 7)])


def test_a_topic_never_lies_in_segments_as_a_whole() -> None:
    assert not LiveShare("topic", low=2, end=8).lies_in(up_to(20), [offsets(2, 8)])
