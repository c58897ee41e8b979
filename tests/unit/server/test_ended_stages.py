"""Stages do not stay for as long as their messages: compaction copies these into their topics."""

# pyright: reportArgumentType=false, reportPrivateUsage=false
# Names and numbers are written plainly here.

from itertools import count

import pytest

from oncemq.protocol.commit_records import StagesEnded
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, Done, Messages, StagedReply
from oncemq.protocol.requests import (
    CommitRequest,
    CreateTopic,
    DropStage,
    Piece,
    Read,
    Settled,
    StagePut,
)
from oncemq.server import completeness
from oncemq.server.housekeeping import Housekeeping
from oncemq.storage.log.log import LogOptions
from oncemq.wire import batch

ME = ClientId("_anonymous-1")
FOREVER = Retention(forever=True)
TASKS = 20
SMALL = LogOptions(
    segment_bytes=1 << 20,
    allocate_bytes=1 << 18,
    reserve_bytes=1 << 16,
    checkpoint_records=400,
    segment_stages=200,
    stages_kept=20,
)

_numbers = count(1)


class Janitor:
    """Does at once what it is given."""

    idle = True

    def give(self, work, done) -> None:
        work()
        done()


def stage(host, name: bytes, *payloads: bytes, first: int = 1) -> ProducerId:
    found = ProducerId(name.ljust(16, b"."))
    body = batch.encode_payloads(payloads)
    checksum = batch.checksum(body, batch.seed("", found, first, len(payloads)))
    put = StagePut(ME, Epoch(0), found, Number(first), len(payloads), 0, checksum)
    assert isinstance(host.ask(put, body), StagedReply)
    return found


def commit(host, *pieces: tuple[str, ProducerId, int, int], closing: bool = True) -> None:
    named = [Piece(topic, name, Offset(start), number) for topic, name, start, number in pieces]
    request = CommitRequest(
        ME, Epoch(0), "job", next(_numbers), True, tuple(named), closing=closing
    )
    answer = host.ask(request)
    assert isinstance(answer, CommitDone), answer


def micro_batch(host, number: int, *, tasks: int = TASKS) -> list[bytes]:
    """What a batch of a Spark query does: a stage for each task, one commit."""
    rows = [b"row %d of %d" % (task, number) for task in range(tasks)]
    names = [stage(host, b"%d-%d" % (number, task), row) for task, row in enumerate(rows)]
    commit(host, *(("rows", name, 0, 1) for name in names))
    return rows


def seconds_pass(host, housekeeping: Housekeeping, seconds: int = 1) -> None:
    for _ in range(seconds * 3):
        host.now += 400_000
        housekeeping.turn(Janitor(), Micros(host.now))  # type: ignore[arg-type]
        host.commit()


@pytest.fixture
def sink(make_host):
    host = make_host(SMALL)
    host.ask(CreateTopic("rows", FOREVER))
    return host


def in_memory(host) -> int:
    """What stages cost: those that the core knows, and the hidden topics that the log knows."""
    return len(host.broker.shard.stages) + len(host.log._catalog._holders)


def test_a_query_that_runs_on_and_on_has_a_bounded_number_of_stages(sink) -> None:
    """A batch a second of twenty tasks, all rows kept for ever."""
    housekeeping = Housekeeping(sink.driver, Micros(sink.now))
    rows: list[bytes] = []
    peaks = [0, 0, 0]
    for number in range(360):
        rows += micro_batch(sink, number)
        seconds_pass(sink, housekeeping)
        third = number // 120
        peaks[third] = max(peaks[third], in_memory(sink))
    # Two checkpoints and two segments of them, in the core and in the log: and no more later.
    assert max(peaks) < 2 * (2 * SMALL.checkpoint_records + 2 * SMALL.segment_stages)
    assert peaks[2] < peaks[0] * 1.3
    assert sink.read("rows") == rows
    sink.restart()
    completeness.check(sink.broker.shard, sink.log)
    assert sink.read("rows") == rows


def test_without_room_no_stage_ends_and_that_is_said(sink, monkeypatch) -> None:
    micro_batch(sink, 1)
    stages, serial = list(sink.broker.shard.stages.by_id), sink.log.last_serial
    monkeypatch.setattr(sink.log, "has_room", lambda size, *, now_ms, fact=False: False)
    assert sink.driver.end_stages(stages, Micros(sink.now)) is False
    sink.commit()
    assert sink.log.last_serial == serial


def test_stages_end_and_their_rows_are_the_topics_own(sink) -> None:
    rows = [row for number in range(30) for row in micro_batch(sink, number)]
    before = heads(sink)
    housekeeping = Housekeeping(sink.driver, Micros(sink.now))
    seconds_pass(sink, housekeeping, 60)
    assert len(sink.broker.shard.stages) <= SMALL.segment_stages
    assert sink.read("rows") == rows
    assert heads(sink) == before
    sink.restart()
    completeness.check(sink.broker.shard, sink.log)
    assert sink.read("rows") == rows


def heads(host) -> list[tuple[int, bytes, int, int]]:
    """Each message as readers know it: its offset, its producer and number, its time."""
    found: list[tuple[int, bytes, int, int]] = []
    end = host.broker.shard.by_name["rows"].end
    while len(found) < end:
        reply = host.ask(Read("rows", len(found), 10**6, 1 << 30))
        assert isinstance(reply, Messages)
        for head in reply.batches:
            for run in head.runs:
                for place in range(run.count):
                    number = run.first_sequence + place
                    found.append((len(found), run.producer, number, run.timestamp))
    return found


def test_a_stop_between_the_copy_and_its_record_is_made_up_for(sink) -> None:
    rows = [row for number in range(30) for row in micro_batch(sink, number)]
    assert sink.compact()  # without the record
    known = len(sink.broker.shard.stages)
    assert known == len(rows)
    sink.restart()
    completeness.check(sink.broker.shard, sink.log)
    assert sink.read("rows") == rows
    housekeeping = Housekeeping(sink.driver, Micros(sink.now))
    seconds_pass(sink, housekeeping, 5)
    assert len(sink.broker.shard.stages) < known // 2
    assert sink.read("rows") == rows


def test_what_is_settled_of_a_part_is_not_copied(make_host) -> None:
    host = make_host(SMALL)
    host.subscribe("rows")
    rows = [b"%d" % number for number in range(100)]
    for number in range(25):
        name = stage(host, b"%d" % number, *rows[4 * number : 4 * number + 4])
        commit(host, ("rows", name, 0, 4))
    reply, _ = host.ask_all(host.getting("rows", limit=1))
    host.ask(host.getting("rows", settled=(Settled("rows", reply.batches[0].subscription_id, 6),)))
    roll(host)
    assert host.compact()
    assert host.read("rows") == rows[6:]
    extent = host.log.extents(host.broker.shard.by_name["rows"].id)[0]
    assert extent.first_offset == 6


def roll(host) -> None:
    """The segment in use is full."""
    host.ask(CreateTopic("filler", FOREVER))
    for _ in range(3):
        host.put("filler", b"-" * 600_000)


def test_a_stage_of_which_more_may_be_published_stays(sink) -> None:
    names = [stage(sink, b"%d" % number, b"a", b"b") for number in range(30)]
    for name in names:
        commit(sink, ("rows", name, 0, 1), closing=False)
    roll(sink)
    sink.compact()
    assert len(sink.broker.shard.stages) == 30
    for name in names:
        commit(sink, ("rows", name, 1, 1))
    assert sink.read("rows") == [b"a"] * 30 + [b"b"] * 30


def test_a_stage_that_was_given_up_later_ends_too(sink) -> None:
    """A process with one transaction: its stage is dropped a day after its commit."""
    names = [stage(sink, b"%d" % number, b"a") for number in range(30)]
    for name in names:
        commit(sink, ("rows", name, 0, 1), closing=False)
    roll(sink)
    for name in names:
        assert sink.ask(DropStage(ME, Epoch(0), name)) == Done(changed=True)
    roll(sink)
    housekeeping = Housekeeping(sink.driver, Micros(sink.now))
    seconds_pass(sink, housekeeping, 60)
    assert len(sink.broker.shard.stages) == 0
    assert sink.read("rows") == [b"a"] * 30


def test_a_message_for_many_topics_is_not_copied_into_each(sink) -> None:
    for topic in ("one", "two"):
        sink.ask(CreateTopic(topic, FOREVER))
    for number in range(30):
        name = stage(sink, b"%d" % number, b"a")
        commit(sink, ("one", name, 0, 1), ("two", name, 0, 1))
    roll(sink)
    sink.compact()
    assert len(sink.broker.shard.stages) == 30
    assert (sink.read("one"), sink.read("two")) == ([b"a"] * 30, [b"a"] * 30)


def test_a_stage_over_two_segments_ends_when_both_are_rewritten_together(sink) -> None:
    names = [stage(sink, b"%d" % number, b"a") for number in range(30)]
    roll(sink)
    commit(sink, *(("rows", name, 0, 1) for name in names))
    roll(sink)
    sink.compact()
    assert sink.read("rows") == [b"a"] * 30


def test_the_record_of_ended_stages_is_applied_once(sink) -> None:
    micro_batch(sink, 0, tasks=2)
    shard = sink.broker.shard
    ids = tuple(shard.stages.by_id)
    shard.stages.ended(StagesEnded(ids), shard.stages.by_id[ids[0]].last_serial)
    assert len(shard.stages) == 2  # a checkpoint that is newer than the record
    shard.stages.ended(StagesEnded(ids), shard.serial + 1)
    assert len(shard.stages) == 0
    shard.stages.release(shard.low_of)
