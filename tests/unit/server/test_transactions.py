"""What was staged and published, as readers get it: from any segment, whole or in pieces."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import secrets
from itertools import count
from pathlib import Path

import pytest

from oncemq.broker.state import snapshot
from oncemq.errors import Corrupt
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, owner_producer
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import CommitDone, Messages, RefusedReply, StagedReply
from oncemq.protocol.requests import (
    CommitRequest,
    CreateTopic,
    DeleteTopic,
    Piece,
    Read,
    Settle,
    Settled,
    ShowTopic,
    StagePut,
    Start,
)
from oncemq.server import completeness
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.repair import repair
from oncemq.wire import batch

SMALL = LogOptions(segment_bytes=4096, allocate_bytes=2048, reserve_bytes=256)
FOREVER = Retention(forever=True)
ME = ClientId("_anonymous-1")

_numbers = count(1)


def stage(host, name: bytes, *payloads: bytes, first: int = 1) -> None:
    stage = ProducerId(name.ljust(16, b"."))
    body = batch.encode_payloads(payloads)
    checksum = batch.checksum(body, batch.seed("", stage, first, len(payloads)))
    put = StagePut(ME, Epoch(0), stage, Number(first), len(payloads), 0, checksum)
    assert isinstance(host.ask(put, body), StagedReply)


def commit(host, *pieces: tuple[str, bytes, int, int], closing: bool = True) -> CommitDone:
    named = [
        Piece(topic, ProducerId(stage.ljust(16, b".")), Offset(start), number)
        for topic, stage, start, number in pieces
    ]
    host.now += 1_000_000
    answer = host.ask(
        CommitRequest(ME, Epoch(0), "job", next(_numbers), True, tuple(named), closing=closing)
    )
    assert isinstance(answer, CommitDone), answer
    return answer


def settle(host, topic: str, subscription: int, cursor: int) -> None:
    host.ask(Settle(ME, Epoch(0), (Settled(topic, subscription, Offset(cursor)),)))


def checkpoint(host) -> None:
    host.driver.mark(Micros(host.now))
    host.commit()
    writer = host.log.begin_checkpoint()
    for blob in snapshot.capture(host.broker.shard):
        writer.add(blob)
    host.run(writer.finish())


def held(host) -> int:
    """Bytes of records in the log."""
    return sum(segment.end for segment in host.log._catalog.segments)


@pytest.fixture
def small(make_host):
    host = make_host(SMALL)
    host.ask(CreateTopic("a", FOREVER))
    host.ask(CreateTopic("b", FOREVER))
    return host


def test_published_messages_are_read_among_those_that_were_put(small) -> None:
    small.put("a", b"before")
    stage(small, b"s", b"1", b"2")
    stage(small, b"s", b"3", first=3)
    assert small.read("a") == [b"before"]
    commit(small, ("a", b"s", 0, 3), ("b", b"s", 1, 2))
    small.put("a", b"after")
    assert small.read("a") == [b"before", b"1", b"2", b"3", b"after"]
    assert small.read("b") == [b"2", b"3"]


def test_a_reader_sees_the_owners_numbers_and_one_time(small) -> None:
    stage(small, b"s", b"1", b"2")
    stage(small, b"t", b"3")
    commit(small, ("a", b"s", 0, 2), ("a", b"t", 0, 1))
    reply, _ = small.ask_all(Read("a", Offset(0), 100, 1 << 20))
    assert isinstance(reply, Messages)
    runs = [run for head in reply.batches for run in head.runs]
    assert [(run.count, run.first_sequence) for run in runs] == [(2, 1), (1, 3)]
    assert {run.producer for run in runs} == {owner_producer("job")}
    assert len({run.timestamp for run in runs}) == 1


def test_published_messages_are_read_in_any_pieces(small) -> None:
    stage(small, b"s", *(b"%d" % n for n in range(7)))
    stage(small, b"s", *(b"%d" % n for n in range(7, 12)), first=8)
    commit(small, ("a", b"s", 2, 9))
    expected = [f"a@{n}={n + 2}" for n in range(9)]
    small.subscribe("a", Start("earliest"))
    for limit in (1, 2, 5, 9):
        got: list[str] = []
        while len(got) < 9:
            got += small.get("a", limit=limit, start=len(got))
        assert got == expected
    assert small.get("a", limit=100, bytes_max=1) == expected[:1]


def test_they_are_read_after_a_restart_and_after_compactions(small) -> None:
    read: dict[str, list[bytes]] = {"a": [], "b": []}
    small.subscribe("dead")
    for number in range(8):
        payloads = [b"%d-%d" % (number, n) * 30 for n in range(3)]
        stage(small, b"s%d" % number, *payloads)
        stage(small, b"gone%d" % number, b"x" * 300)
        small.put("dead", b"x" * 700)
        commit(small, ("a", b"s%d" % number, 0, 3), ("b", b"s%d" % number, 1, 1))
        read["a"] += payloads
        read["b"] += payloads[1:2]
    small.restart()
    assert {name: small.read(name) for name in read} == read
    small.ask(DeleteTopic("dead"))
    assert small.compact() > 0
    assert any(".cold" in segment.name for segment in small.log._catalog.segments)
    assert {name: small.read(name) for name in read} == read
    small.restart()
    completeness.check(small.broker.shard, small.log)
    assert {name: small.read(name) for name in read} == read
    small.compact()
    assert {name: small.read(name) for name in read} == read


def test_small_batches_of_a_stage_are_joined_across_the_parts_of_commits(small) -> None:
    small.subscribe("dead")
    for number in range(12):
        stage(small, b"s", b"%d" % number, first=number + 1)
        commit(small, ("ab"[number % 2], b"s", number, 1), closing=False)
        small.put("dead", b"x" * 600)
    small.ask(DeleteTopic("dead"))
    assert small.compact() > 0
    small.restart()
    assert small.read("a") == [b"%d" % number for number in range(0, 12, 2)]
    assert small.read("b") == [b"%d" % number for number in range(1, 12, 2)]


def test_what_everyone_settled_is_freed_and_the_rest_stays(make_host) -> None:
    host = make_host(SMALL)
    first = host.subscribe("a").subscription_id
    for number in range(10):
        stage(host, b"s%d" % number, b"%d" % number * 900)
        commit(host, ("a", b"s%d" % number, 0, 1))
    assert held(host) > 9000
    settle(host, "a", first, 9)
    host.compact()
    assert held(host) < 4000
    host.restart()
    completeness.check(host.broker.shard, host.log)
    assert host.read("a") == [b"9" * 900]


def test_a_stage_that_was_given_up_is_freed(make_host) -> None:
    host = make_host(SMALL)
    for number in range(10):
        stage(host, b"s%d" % number, b"x" * 900)
    host.now += 25 * 3_600_000_000
    for _ in range(10):  # a small segment has room for little at a time
        host.driver.upkeep(Micros(host.now))
        host.commit()
    assert held(host) > 9000
    host.compact()
    assert held(host) < 3000


def test_the_bytes_of_a_part_count_for_its_topic(small) -> None:
    stage(small, b"s", b"x" * 1000, b"y" * 1000)
    commit(small, ("a", b"s", 0, 2), ("b", b"s", 1, 1))
    assert small.ask(ShowTopic("a")).topic.stored_bytes >= 2000
    assert 900 <= small.ask(ShowTopic("b")).topic.stored_bytes <= 1200


def test_retention_by_size_lets_published_messages_go(make_host) -> None:
    host = make_host(SMALL)
    host.ask(CreateTopic("a", Retention(keep_bytes=2000)))
    for number in range(20):
        stage(host, b"s%d" % number, b"%d" % number * 500)
        commit(host, ("a", b"s%d" % number, 0, 1))
    host.driver.upkeep(Micros(host.now))
    host.commit()
    low = host.broker.shard.by_name["a"].low
    assert 0 < low < 19
    host.compact()
    assert host.read("a") == [b"%d" % number * 500 for number in range(low, 20)]


def test_a_subscription_begins_at_the_time_of_a_commit(small) -> None:
    small.put("a", b"0")
    stage(small, b"s", b"1", b"2")
    small.now += 10_000_000
    commit(small, ("a", b"s", 0, 2))
    assert small.subscribe("a", Start("time", small.now - 5_000_000)).cursor == 1
    assert small.subscribe("b", Start("time", small.now + 5_000_000)).cursor == 0


def test_a_damaged_stage_is_refused_to_the_readers_of_its_topics(small) -> None:
    stage(small, b"s", b"sound" * 20)
    commit(small, ("a", b"s", 0, 1))
    place = small.log.find(next(iter(small.broker.shard.stages.by_id)), 0)
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[place.position + place.size - 3] ^= 1
    path.write_bytes(data)
    answer = small.ask(Read("a", Offset(0), 10, 1 << 20))
    assert isinstance(answer, RefusedReply)
    assert answer.code == "corrupt"


def test_a_log_that_lacks_a_stage_is_refused_at_the_start(small) -> None:
    small.subscribe("dead")
    stage(small, b"s", b"x" * 3000)
    for _ in range(4):
        small.put("dead", b"x" * 1500)
    commit(small, ("a", b"s", 0, 1))
    for _ in range(4):
        small.put("dead", b"x" * 1500)
    small.compact()  # so that recovery need not read the first segments
    stage_id = next(iter(small.broker.shard.stages.by_id))
    place = small.log.find(stage_id, 0)
    small.log.close()
    Path(place.segment.path).unlink()
    Path(place.segment.path).with_suffix(".idx").unlink()
    small.start()
    with pytest.raises(Corrupt, match="stage"):
        completeness.check(small.broker.shard, small.log)


def test_a_commit_with_very_many_parts_is_read_in_order(make_host) -> None:
    host = make_host()
    host.ask(CreateTopic("a", FOREVER))
    stage(host, b"s", *(b"%d" % n for n in range(1000)))
    commit(host, *(("a", b"s", n, 1) for n in range(0, 1000, 2)))  # not one range: not joined
    assert host.read("a") == [b"%d" % n for n in range(0, 1000, 2)]


def test_a_bound_that_became_coarser_is_no_missing_file(make_host) -> None:
    """Freed by a fine bound, then the marks are thinned: the log itself says what is needed."""
    host = make_host(SMALL)
    subscription = host.subscribe("a").subscription_id
    for number in range(90):
        stage(host, b"s", b"%d" % number * 40, first=number + 1)
        commit(host, ("a", b"s", number, 1), closing=False)
    settle(host, "a", subscription, 87)
    host.compact()
    for number in range(90, 135):
        stage(host, b"s", b"%d" % number, first=number + 1)
        commit(host, ("a", b"s", number, 1), closing=False)
    (known,) = host.broker.shard.stages.by_id.values()
    bound = known.low(host.broker.shard.low_of)
    held = host.log.extents(known.id)[0].first_offset
    assert bound < held <= 87, "the bound must be below what is left, or this shows nothing"
    host.restart()
    completeness.check(host.broker.shard, host.log)
    assert host.read("a") == [
        b"%d" % number * (40 if number < 90 else 1) for number in range(87, 135)
    ]


def test_repair_keeps_commits_and_stages_around_the_damage(small) -> None:
    small.put("b", b"spoiled" * 40)
    for number in range(12):
        stage(small, b"s%d" % number, b"%d" % number * 300)
        commit(small, ("a", b"s%d" % number, 0, 1))
    place = small.log.find(small.broker.shard.by_name["b"].id, 0)
    expected = small.read("a")
    for _ in range(2):  # so that checkpoints cover the first segments
        checkpoint(small)
    small.log.close()
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[place.position + place.size - 3] ^= 1
    path.write_bytes(data)
    found = repair.accept_loss(LocalDisk(), str(small.directory), random_bytes=secrets.token_bytes)
    assert [damage.covered for damage in found.damages] == [True]
    small.start()
    assert small.read("a") == expected


def test_a_commit_behind_the_damage_counts_as_lost_by_its_topic(small) -> None:
    stage(small, b"s", b"1" * 300, b"2" * 300)
    commit(small, ("a", b"s", 0, 2))
    stage_id = next(iter(small.broker.shard.stages.by_id))
    topic_id = small.broker.shard.by_name["a"].id
    place = small.log.find(stage_id, 0)
    small.driver.mark(Micros(small.now))  # it says that what is before it was durable
    small.commit()
    small.log.close()
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[place.position + place.size - 3] ^= 1
    path.write_bytes(data)
    (damage,) = repair.diagnose(LocalDisk(), str(small.directory)).damages
    lost = {each.topic_id: (each.first_offset, each.end_offset) for each in damage.lost}
    assert lost[topic_id] == (0, 2)
    small.directory = small.directory.with_name("elsewhere")
    small.start()
