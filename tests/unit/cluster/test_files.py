"""Files of a leader on their way to a member: both ends, joined, and whatever goes wrong."""

import errno
import re
from random import Random
from typing import Any

import pytest

from oncemq.cluster.transfer.filling import SILENCE, WINDOW_BYTES
from oncemq.cluster.transfer.refills import QUIET, TURN_PARTS, WAIT_FIRST
from oncemq.cluster.transfer.sent_files import PARTS_MAX
from oncemq.protocol.names import LeaderEpoch, Micros, Serial
from oncemq.protocol.replicas.messages import (
    REFILL_PART_BYTES,
    AnswerNumber,
    Append,
    Appended,
    Life,
    Mismatch,
    Place,
    RefillBegin,
    RefillFile,
    RefillPart,
    RefillWanted,
)
from oncemq.server.worker import Task
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.new_replica import holds_log
from oncemq.storage.log.recovery import open_log
from oncemq.storage.log.refill import files_to_fill
from oncemq.storage.segments.segment import log_name
from oncemq.testing.crash_points import CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.replicas import Replica, records
from tests.harness.storage import SMALL, read_payloads
from tests.harness.transfers import EPOCH, MEMBER, SHARD, Exchange, busy_log, end_of

MEBIBYTE = 1 << 20
NEW = b"\x0b" * 16  # the incarnation that is drawn


def large_log() -> Replica:
    """So much that it does not fit into one window."""
    made = Replica(options=LogOptions(segment_bytes=MEBIBYTE, allocate_bytes=MEBIBYTE))
    for _ in range(24):
        made.store(1, b"x" * (300 << 10))
    return made


def opened(disk: Any) -> Any:
    return open_log(disk, "/data", SMALL, random_bytes=bytes)


def appended(life: Life) -> Appended:
    answered = AnswerNumber(life, 1)
    return Appended(SHARD, EPOCH, Serial(1), Serial(1), is_full=False, answered=answered)


def test_a_member_gets_the_files_of_one_moment_while_the_leader_goes_on() -> None:
    leader, disk = busy_log(), FaultyDisk(Random(1))
    exchange = Exchange(leader.log, disk)
    exchange.start()
    end, before = end_of(leader.log), list(leader.topics[1])
    for number in range(2):
        for _ in range(12):
            leader.store(1, b"y" * 300)
        leader.checkpoint(b"newer %d" % number)
    leader.compact({1: len(leader.topics[1]) - 2}.get)
    filling = exchange.run()
    assert not filling.trouble
    assert exchange.begin is not None
    assert exchange.begin.end == end
    assert exchange.refills._transfers[MEMBER].incarnation == NEW  # known before it is on its disk
    assert (
        filling.filled_bytes
        == filling.bytes_in_all
        == sum(each.size for each in exchange.begin.files)
    )
    follower = opened(disk)
    assert end_of(follower.log) == end
    assert follower.log.form.incarnation == NEW
    assert list(read_payloads(follower.log, 1).values()) == before
    exchange.refills.heard(MEMBER, appended(Life(NEW, 1)), exchange.now)
    assert exchange.refills.ended(exchange.now) == [MEMBER]
    assert exchange.refills.held is None


def test_what_a_member_goes_on_with_is_not_compacted() -> None:
    leader = busy_log()
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    exchange.start()
    end = leader.log.last_serial
    leader.log.reclaiming.hold(exchange.refills.held)
    for number in range(3):
        for _ in range(12):
            leader.store(1, b"y" * 300)
        leader.checkpoint(b"newer %d" % number)
    leader.compact({1: len(leader.topics[1])}.get)
    assert leader.log.kept_from <= end + 1
    disk: Any = leader.disk
    disk.faults.capacity = (1 << 40) - disk.free_bytes("/") + 2_000  # as much again is not there
    leader.log.reclaiming.hold(exchange.refills.held)
    leader.compact({1: len(leader.topics[1])}.get)
    assert leader.log.kept_from > end + 1


@pytest.mark.parametrize("every", [4, 9])
def test_what_is_lost_on_the_way_is_asked_for_and_offered_again(every: int) -> None:
    leader, disk = large_log(), FaultyDisk(Random(1))
    exchange = Exchange(leader.log, disk)
    chance = Random(every)
    exchange.lose = lambda _: chance.randrange(every) == 0
    exchange.start()
    filling = exchange.run()
    assert not filling.trouble
    assert records(opened(disk).log) == records(leader.log)


def test_what_is_under_way_is_bounded_on_both_sides() -> None:
    leader = large_log()
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    exchange.start()
    exchange.turn()
    assert exchange.filling is not None
    transfer = exchange.refills._transfers[MEMBER]
    ready = sum(len(part.data) for part in transfer.ready)
    assert ready <= WINDOW_BYTES + REFILL_PART_BYTES
    assert ready >= WINDOW_BYTES // 2
    for position in range(PARTS_MAX * 4):  # who asks for more than that is passed over
        name = exchange.begin.files[0].name if exchange.begin else ""
        answered = AnswerNumber(Life(NEW, 0), 1_000 + position)
        message = RefillWanted(SHARD, EPOCH, name, position, answered)
        exchange.refills.wanted(MEMBER, message, exchange.now)
    assert len(transfer.ready) == PARTS_MAX
    assert exchange.refills.send()
    parts = [message for message, _ in exchange.said if isinstance(message, RefillPart)]
    assert len(parts) == TURN_PARTS
    assert all(len(body) <= REFILL_PART_BYTES for _, body in exchange.said)


def test_what_a_full_connection_does_not_take_is_kept_and_sent_later() -> None:
    leader, disk = large_log(), FaultyDisk(Random(1))
    exchange = Exchange(leader.log, disk)
    exchange.start()
    exchange.turn()
    exchange.can_send = False
    assert not exchange.refills.send()  # the connection says when there is room: nobody spins
    exchange.can_send = True
    assert not exchange.run().trouble


def test_reading_is_done_elsewhere_and_files_are_closed_only_after_it() -> None:
    leader = busy_log()
    given: list[tuple[Task, Task]] = []
    exchange = Exchange(
        leader.log, FaultyDisk(Random(1)), give=lambda task, then: given.append((task, then))
    )
    exchange.start()
    transfer = exchange.refills._transfers[MEMBER]
    assert transfer.files is None  # nothing is offered before it has its checksum
    reads = 0
    while given:
        task, then = given.pop(0)
        task()
        then()
        reads += 1
    assert reads == len(transfer.files or ())
    exchange.turn()  # it is offered
    exchange.turn()  # and wanted
    assert given
    exchange.refills.close()
    for task, then in given:
        transfer._pinned.read(transfer._pinned.files[0].name, 0, 1)  # it is open still
        task()
        then()
    assert not transfer.damage
    with pytest.raises(OSError, match="closed"):
        transfer._pinned.read(transfer._pinned.files[0].name, 0, 1)


@pytest.mark.parametrize("offered", [False, True])
def test_a_member_that_is_silent_is_not_waited_for(offered: bool) -> None:
    leader = large_log()
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    exchange.lose = lambda said: offered and isinstance(said[0], RefillBegin)
    exchange.start()
    exchange.turn()
    exchange.lose = lambda _: True
    assert exchange.turn(QUIET - 100_000) == []
    assert exchange.turn(200_000) == [MEMBER]
    assert exchange.refills.held is None


def test_another_directory_of_the_member_ends_what_was_for_the_one_before() -> None:
    leader = large_log()
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    exchange.start()
    exchange.turn()
    old = Mismatch(SHARD, EPOCH, Place(), (), AnswerNumber(Life(NEW, 0), 9))
    exchange.refills.heard(MEMBER, old, exchange.now)
    assert exchange.refills.ended(exchange.now) == []
    other = Mismatch(SHARD, EPOCH, Place(), (), AnswerNumber(Life(b"other", 1), 1))
    exchange.refills.heard(MEMBER, other, exchange.now)
    assert exchange.refills.ended(exchange.now) == [MEMBER]
    exchange.said.clear()
    wanted = RefillWanted(SHARD, EPOCH, log_name(1), 0, AnswerNumber(Life(NEW, 0), 10))
    exchange.refills.wanted(MEMBER, wanted, exchange.now)
    assert exchange.said.pop() == (RefillPart(SHARD, EPOCH, log_name(1), 0), b"")


def test_a_transfer_that_came_to_nothing_is_begun_again_after_a_while() -> None:
    leader = large_log()
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    exchange.lose = lambda _: True
    waits: list[int] = []
    for _ in range(3):
        exchange.start()
        begun = exchange.now
        while not exchange.refills._transfers:
            exchange.turn()
        waits.append((exchange.now - begun) // 1000)
        exchange.turn()
        assert exchange.turn(QUIET) == [MEMBER]
    assert waits[0] == 0
    assert WAIT_FIRST // 1000 <= waits[1] <= WAIT_FIRST // 1000 + 50
    assert 2 * WAIT_FIRST // 1000 <= waits[2] <= 2 * WAIT_FIRST // 1000 + 50


def test_a_leader_that_sent_damaged_files_looks_at_them_when_they_are_wanted_again() -> None:
    leader, disk = busy_log(), FaultyDisk(Random(1))
    cold = next(name for name in leader.disk.names("/data/log") if name.endswith(".cold"))
    leader.disk.flip_bit(f"/data/log/{cold}", 900)  # type: ignore[attr-defined]
    exchange = Exchange(leader.log, disk)
    exchange.start()
    assert not exchange.run().trouble  # checksums are of the bytes as they are
    with pytest.raises(Exception, match=f"{cold}.*damaged at byte"):
        opened(disk)
    assert not exchange.refills.damage
    exchange.refills.heard(MEMBER, appended(Life(b"other", 1)), exchange.now)
    exchange.start()
    for _ in range(100):
        exchange.turn()
    assert cold in exchange.refills.damage


def test_a_file_that_cannot_be_read_is_damage_of_the_leader() -> None:
    leader = large_log()
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    leader.disk.faults.failing_reads = 1  # type: ignore[attr-defined]
    exchange.start()
    exchange.turn()
    assert "cannot read" in exchange.refills.damage
    assert exchange.filling is None


def test_a_file_that_is_gone_is_damage_and_too_few_descriptors_are_none() -> None:
    leader = busy_log()
    disk: Any = leader.disk
    exchange = Exchange(leader.log, FaultyDisk(Random(1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "open", raises(OSError(errno.EMFILE, "too many open files")))
        exchange.start()
    assert not exchange.refills.damage
    assert not exchange.refills._transfers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "open", raises(FileNotFoundError(errno.ENOENT, "no such file")))
        exchange.turn(WAIT_FIRST)
    assert "cannot be opened" in exchange.refills.damage


def raises(error: OSError) -> Any:
    def raising(*_: Any) -> None:
        raise error

    return raising


# ------------------------------------------------------------------ what a member refuses


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("../FORMAT", 100)], "which is no file of a log"),
        ([("log/" + log_name(1), 100)], "which is no file of a log"),
        ([(log_name(1), 100), (log_name(1), 100)], "which is no file of a log"),
        ([(log_name(1), 10)], "no room for a header"),
        ([(log_name(1), -5)], "no room for a header"),
        ([(f"{7:020d}.ckpt", 100)], "no segment of a log"),
        ([], "no segment of a log"),
    ],
)
def test_what_can_be_no_log_is_refused_before_anything_is_removed(
    files: list[tuple[str, int]], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        files_to_fill([RefillFile(name, size, 0) for name, size in files])


def wrong_checksum(said: Any) -> Any:
    message, body = said
    if isinstance(message, RefillBegin):
        first, *others = message.files
        files = (RefillFile(first.name, first.size, first.checksum ^ 1), *others)
        message = RefillBegin(SHARD, EPOCH, message.tail, message.end, files)
    return message, body


def beyond_the_end(said: Any) -> Any:
    message, body = said
    return (message, bytes(body) + b"more") if isinstance(message, RefillPart) else said


def nothing(said: Any) -> Any:
    message, _ = said
    return (message, b"") if isinstance(message, RefillPart) else said


def of_a_later_epoch(said: Any) -> Any:
    message, body = said
    if isinstance(message, RefillPart):
        message = RefillPart(SHARD, LeaderEpoch(EPOCH + 1), message.name, message.position)
    return message, body


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (wrong_checksum, "has the checksum .* at the leader"),
        (beyond_the_end, "was sent up to byte .*, and has"),
        (nothing, "the leader has .* no more"),
        (of_a_later_epoch, "epoch 4 began"),
    ],
)
def test_what_does_not_fit_ends_the_filling_in_words(change: Any, words: str) -> None:
    disk = FaultyDisk(Random(1))
    exchange = Exchange(busy_log().log, disk)
    exchange.change = change
    exchange.start()
    filling = exchange.run()
    assert re.search(words, filling.trouble)
    assert holds_log(disk, "/data") is None  # it begins anew
    assert "FORMAT" not in disk.names("/data")


def test_a_leader_that_is_silent_ends_the_filling() -> None:
    exchange = Exchange(large_log().log, FaultyDisk(Random(1)))
    exchange.start()
    exchange.turn()
    exchange.lose = lambda _: True
    exchange.turn(SILENCE - 100_000)
    assert exchange.filling is not None
    assert not exchange.filling.is_over
    exchange.turn(200_000)
    assert exchange.filling.trouble == "nothing came from the leader for 10 s"


def test_late_and_strange_messages_change_nothing() -> None:
    disk = FaultyDisk(Random(1))
    exchange = Exchange(large_log().log, disk)
    exchange.start()
    exchange.turn()
    filling = exchange.filling
    assert filling is not None
    before = filling.filled_bytes
    name = filling._begin.files[0].name
    for message, body in (
        (RefillPart(SHARD, LeaderEpoch(EPOCH - 1), name, 0), b"of a leader that is gone"),
        (RefillPart(SHARD, EPOCH, "another", 0), b"file"),
        (RefillPart(SHARD, EPOCH, name, 1 << 40), b"far away"),
        (RefillPart(SHARD, EPOCH, name, -5), b"five"),
        (Append(SHARD, EPOCH, Place(), 0, Serial(0)), b""),
    ):
        filling.receive(b"route", message, body, exchange.now)
    assert filling.filled_bytes == before
    assert not exchange.run().trouble
    assert records(opened(disk).log)


def test_an_answer_goes_where_the_leader_was_heard_last() -> None:
    exchange = Exchange(large_log().log, FaultyDisk(Random(1)))
    exchange.start()
    exchange.turn()
    filling = exchange.filling
    assert filling is not None
    filling.receive(b"anew", Append(SHARD, EPOCH, Place(), 0, Serial(0)), b"", exchange.now)
    filling.tick(Micros(exchange.now + 1_000_000))
    assert {route for route, _ in filling.outgoing} == {b"anew"}


def test_a_disk_without_room_ends_the_filling_and_it_begins_anew_when_there_is_some() -> None:
    leader, disk = large_log(), FaultyDisk(Random(1))
    disk.faults.capacity = 3 * MEBIBYTE
    exchange = Exchange(leader.log, disk)
    exchange.start()
    filling = exchange.run()
    assert "the disk is full" in filling.trouble
    assert "make room" in filling.trouble
    assert holds_log(disk, "/data") is None
    disk.faults.capacity = 30 * MEBIBYTE
    exchange.filling = None
    exchange.start()
    assert not exchange.run().trouble
    assert records(opened(disk).log) == records(leader.log)


def test_a_disk_that_fails_ends_the_server() -> None:
    disk = FaultyDisk(Random(1))
    exchange = Exchange(large_log().log, disk)
    exchange.start()
    exchange.turn()
    disk.faults.failing_syncs = 1
    with pytest.raises(OSError, match="cannot sync"):
        exchange.run()


def test_a_crash_at_every_step_of_the_disk_leaves_a_directory_that_begins_anew() -> None:
    leader, follower = busy_log(), Replica(b"\6")
    follower.store(3, b"of a log of its own")
    own, end = end_of(follower.log), end_of(leader.log)
    follower.log.close()
    disk: Any = follower.disk
    exchange = Exchange(leader.log, disk)
    seen = {"old": 0, "half": 0, "new": 0}

    def verify(crashed: FaultyDisk, _: Random) -> int:
        is_half = "FORMAT" not in crashed.names("/data")
        if is_half:
            assert holds_log(crashed, "/data") is None
            again = Exchange(leader.log, crashed)
            again.start()
            assert not again.run().trouble
        log = opened(crashed).log
        new = end_of(log) == end
        assert new or (end_of(log) == own and not is_half)
        assert log.form.incarnation == (NEW if new else b"\6" * 16)
        seen["half" if is_half else "new" if new else "old"] += 1
        return 1

    points = CrashPoints(disk, verify)
    exchange.start()
    assert not exchange.run().trouble
    disk.faults.hook = None
    assert points.recoveries > 100
    assert seen["old"]
    assert seen["half"]
    assert end_of(opened(disk).log) == end
