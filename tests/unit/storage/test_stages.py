"""Messages that a topic got by a commit lie in a stage: what is missing there is never made up."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from oncemq.errors import Corrupt
from oncemq.protocol.commit_records import Committed, Part, PartKept
from oncemq.protocol.names import Epoch, Micros, Offset, Sequence, TopicId
from oncemq.protocol.records import MessagesStaged, Run
from oncemq.protocol.replies import NO_OFFSET
from oncemq.storage.catalog.gaps import gaps
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import CompactionPlan, LiveShare
from oncemq.storage.log.log import LogOptions
from oncemq.storage.repair.repair import accept_loss, diagnose
from oncemq.storage.segments.index import BlockCache, MemoryIndex
from oncemq.wire import batch
from tests.harness.storage import PRODUCER

TOPIC, OTHER, STAGE = TopicId(1), TopicId(2), TopicId(9)
WIDE = LogOptions(segment_bytes=1 << 20, allocate_bytes=1 << 12, reserve_bytes=64)


@pytest.fixture
def scribe(scribe: Any) -> Any:
    scribe.options = WIDE
    scribe.reopen()
    return scribe


def stage(scribe: Any, first: int, *payloads: bytes) -> None:
    """A batch of the stage."""
    body = batch.encode_payloads(payloads)
    checksum = batch.checksum(body, 0)
    run = Run(len(payloads), PRODUCER, Epoch(1), Sequence(first + 1), Micros(1))
    record = MessagesStaged(STAGE, Offset(first), len(payloads), 0, checksum, (run,), len(body))
    scribe.log.append(record, body, checksum=checksum)
    scribe.commit()


def publish(scribe: Any, *parts: tuple[TopicId, int, int, int]) -> None:
    """A commit: what a topic gets from an offset on, so many, from a place in the stage on."""
    given = tuple(
        Part(topic, Offset(first), count, Sequence(1), STAGE, Offset(at), 10)
        for topic, first, count, at in parts
    )
    scribe.log.append(Committed("owner", 1, True, Micros(7), given, (), True))
    scribe.commit()


def read(scribe: Any, topic: TopicId, offset: int) -> dict[int, bytes]:
    found = scribe.log.read_many(topic, offset, count_max=100, bytes_max=1 << 20)
    return {
        each.record.first_offset + number: payload
        for each in found
        for number, payload in enumerate(
            batch.payloads_of(each.body, each.record.count, each.record.columns)
        )
    }


def rewriting(scribe: Any, *, dissolved: bool, low: int = 0) -> CompactionJob:
    live = {int(TOPIC): LiveShare("t1", low)}
    ended = frozenset({int(STAGE)}) if dissolved else frozenset[int]()
    plan = CompactionPlan((scribe.log._current,), live, rewrite=True, dissolved=ended)
    return CompactionJob(
        scribe.disk, f"{scribe.directory}/log", scribe.log.identity, BlockCache(), plan
    )


def extent_of(job: CompactionJob) -> tuple[int, int]:
    """What the cold segment has of the topic."""
    extent = job.result.index.extent(TOPIC) if job.result else None
    assert extent is not None
    return extent.first_offset, extent.end_offset


def refused(job: CompactionJob, scribe: Any) -> str:
    """Why a rewriting gave up; nothing of it stays, and its source is the one that is named."""
    with pytest.raises(Corrupt) as raised:
        job.run()
    assert (job.result, job.damaged) == (None, (scribe.log._current, raised.value.detail))
    assert not list(scribe.directory.glob("log/*.cold*"))
    return raised.value.detail


def test_what_a_stage_lacks_is_refused_to_readers_and_to_a_rewriting(scribe: Any) -> None:
    stage(scribe, 0, b"a", b"b")
    stage(scribe, 2, b"c", b"d")
    stage(scribe, 5, b"f")  # e is gone
    publish(scribe, (TOPIC, 10, 5, 1))
    why = "message 4 of stage 9 is not in the log, though offset 13 of topic 1 is kept"
    with pytest.raises(Corrupt) as raised:
        read(scribe, TOPIC, 10)
    assert raised.value.detail == why
    assert list(gaps(scribe.log._catalog, TOPIC, 10, 15)) == [(13, 14)]
    path = scribe.log._current.path
    assert refused(rewriting(scribe, dissolved=True), scribe) == (
        f"{path}: message 4 of stage 9 is missing"
    )


def test_what_lies_behind_a_part_in_its_stage_is_not_the_topics(scribe: Any) -> None:
    stage(scribe, 0, b"a", b"b")
    stage(scribe, 2, b"c", b"d")
    stage(scribe, 4, b"e")
    publish(scribe, (TOPIC, 10, 2, 1))
    expected = {10: b"b", 11: b"c"}
    assert read(scribe, TOPIC, 10) == expected
    job = rewriting(scribe, dissolved=True)
    job.run()
    assert extent_of(job) == (10, 12)
    source = scribe.log._current
    scribe.log._catalog.replace([source], job.result)
    assert read(scribe, TOPIC, 10) == expected
    source.file.close()


def test_what_was_settled_of_a_part_is_not_copied(scribe: Any) -> None:
    stage(scribe, 0, b"a", b"b")
    stage(scribe, 2, b"c", b"d")
    publish(scribe, (TOPIC, 10, 3, 1))
    job = rewriting(scribe, dissolved=True, low=12)
    job.run()
    assert extent_of(job) == (12, 13)


# ------------------------------------------------------------------ an index that lies


@pytest.mark.parametrize("dissolved", [True, False])
def test_a_commit_that_gave_a_topic_nothing_there_is_damage(scribe: Any, dissolved: bool) -> None:
    stage(scribe, 0, b"a")
    publish(scribe, (OTHER, 10, 1, 0))
    place = scribe.log.find(OTHER, 10)
    with pytest.raises(Corrupt, match=rf"the batch at byte {place.position} \(offset 10\)"):
        scribe.log._catalog.read_part(TOPIC, place)
    index, run = MemoryIndex(), Run(1, PRODUCER, Epoch(1), Sequence(1), Micros(7))
    kept = PartKept(TOPIC, Offset(10), 1, STAGE, Offset(0), 10, run)
    index.note(kept, place.position, place.size)
    scribe.log._current.index = index
    assert refused(rewriting(scribe, dissolved=dissolved), scribe) == (
        f"{place.segment.path}: another topic at byte {place.position}"
    )


def test_a_batch_of_another_topic_is_damage(scribe: Any) -> None:
    scribe.store(OTHER, b"a")
    place = scribe.log.find(OTHER, 0)
    index = MemoryIndex()
    record = scribe.log.read(place).record
    index.note(structs.replace(record, topic_id=TOPIC), place.position, place.size)
    scribe.log._current.index = index
    assert refused(rewriting(scribe, dissolved=False), scribe) == (
        f"{place.segment.path}: another topic at byte {place.position}"
    )


def flip(path: str, position: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[position] ^= 0x41
    Path(path).write_bytes(data)


def test_a_damaged_commit_is_not_read(scribe: Any) -> None:
    stage(scribe, 0, b"a")
    publish(scribe, (TOPIC, 0, 1, 0))
    place = scribe.log.find(TOPIC, 0)
    flip(place.segment.path, place.position + 60)
    with pytest.raises(Corrupt, match=rf"the batch at byte {place.position} \(offset 0\)"):
        read(scribe, TOPIC, 0)
    flip(place.segment.path, place.position + 60)


def test_a_damaged_one_of_batches_that_are_read_together_is_not_given(scribe: Any) -> None:
    for payload in (b"a", b"b", b"c"):
        scribe.store(TOPIC, payload)
    place = scribe.log.find(TOPIC, 1)
    flip(place.segment.path, place.position + 20)
    with pytest.raises(Corrupt, match=rf"the batch at byte {place.position} \(offset 1\)"):
        read(scribe, TOPIC, 0)
    flip(place.segment.path, place.position + 20)


# ------------------------------------------------------------------ a repair


def test_a_commit_in_a_salvaged_segment_gives_what_it_gave(scribe: Any) -> None:
    stage(scribe, 0, b"a", b"b", b"c")
    publish(scribe, (TOPIC, 10, 2, 0), (OTHER, int(NO_OFFSET), 1, 2))
    place = scribe.log.find(TOPIC, 10)
    scribe.put(OTHER, b"lost")
    scribe.commit()
    lost = scribe.log.find(OTHER, 0)
    scribe.log._roll()
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"state")
    scribe.log.close()
    flip(lost.segment.path, lost.position + lost.size - 1)
    accept_loss(scribe.disk, str(scribe.directory), random_bytes=bytes)
    assert diagnose(scribe.disk, str(scribe.directory)).healthy
    scribe.open()
    assert read(scribe, TOPIC, 10) == {10: b"a", 11: b"b"}
    assert scribe.log.find(OTHER, 0) is None
    assert scribe.log._catalog.read_part(TOPIC, scribe.log.find(TOPIC, 10)).run.timestamp == 7
    assert place.segment.path == lost.segment.path


# ------------------------------------------------------------------ gaps


def test_gaps_are_told_as_far_as_was_asked(scribe: Any) -> None:
    for count, hole in ((3, 3), (2, 4), (1, 0)):
        scribe.store(TOPIC, *[b"x"] * count)
        scribe.topics[TOPIC] += [b"lost"] * hole
    whole = [(3, 6), (8, 12), (13, 14)]
    catalog = scribe.log._catalog
    for end in range(15):
        expected = [(low, min(high, end)) for low, high in whole if low < end]
        assert list(gaps(catalog, TOPIC, 0, end)) == expected
    assert list(gaps(catalog, TOPIC, 4, 9)) == [(4, 6), (8, 9)]
