"""A log that takes in the frames of another: what it refuses, and what stays its own."""

import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Corrupt, Locked, StorageRefused
from oncemq.protocol.names import LeaderEpoch
from oncemq.protocol.records import EpochBegan, Marked, Record
from oncemq.storage.log import frame_runs
from oncemq.storage.log.frame_runs import FramesRefused
from oncemq.storage.log.log import LogOptions
from oncemq.storage.segments.framing import LOCAL_BYTES, encode, frame_key, local_part
from oncemq.storage.segments.segment import read_header
from tests.harness.replicas import Replica, epoch_starts, fill, records
from tests.harness.storage import Scribe
from tests.unit.storage.test_format1 import SMALL, unpacked

WIDE = LogOptions(segment_bytes=1 << 20, allocate_bytes=4096, reserve_bytes=256)


@pytest.fixture
def pair() -> tuple[Replica, Replica]:
    leader, follower = Replica(options=WIDE), Replica(b"\6", WIDE)
    follower.refilled_from(leader)
    return leader, follower


def sent(leader: Replica, serial: int = 1) -> bytes:
    run = leader.log.frames_after(serial - 1, 1 << 20)
    assert run is not None
    return run.frames


def a_frame(follower: Replica, record: Record, *, epoch: int = 0, **other: int) -> bytes:
    """A frame that follows, but for what is told."""
    newest = follower.log.newest
    fields = {"serial": newest.serial + 1, "previous": newest.chain} | other
    _, data = encode(
        record, key=frame_key(follower.log.identity), durable=0, leader_epoch=epoch, **fields
    )
    return data


def test_what_a_leader_synced_is_nothing_that_a_follower_synced(
    pair: tuple[Replica, Replica],
) -> None:
    """Its marks would turn the follower's torn group into damage of what was durable."""
    leader, follower = pair
    for number in range(4):
        leader.store(1, b"m%d" % number)
    follower.take(sent(leader))
    group = follower.log.take_group()
    assert group is not None
    follower.log.write(group)  # written, but the power fails before the sync is over
    place = leader.log.find(1, 1)  # type: ignore[arg-type]
    assert place is not None
    follower.disk.flip_bit(place.segment.path, place.position + LOCAL_BYTES + 3)  # type: ignore[attr-defined]
    follower.kill()
    opened = follower.open()
    assert len(opened.report.torn) == 1
    assert opened.log.last_serial == 1
    follower.follow(leader)
    assert records(follower.log) == records(leader.log)


def test_only_the_mark_of_a_frame_differs_between_replicas(pair: tuple[Replica, Replica]) -> None:
    leader, follower = pair
    for number in range(3):
        leader.store(1, b"m%d" % number)
    follower.follow(leader)
    theirs, ours = sent(leader), sent(follower)
    assert theirs != ours
    assert records(follower.log) == records(leader.log)


def test_a_segment_says_in_which_epoch_the_record_before_it_is() -> None:
    leader, follower = Replica(), Replica(b"\6")
    follower.refilled_from(leader)
    for number in range(12):
        if number % 3 == 0:
            leader.lead(number // 3 + 1)
        leader.store(1, b"x" * 500)
    follower.follow(leader)
    for each in (leader, follower):
        epochs = []
        for segment in each.log._catalog.segments:
            header = segment.header
            assert read_header(each.disk.open(segment.path)) == header
            epochs.append(header.leader_epoch)
            run = each.log.frames_after(segment.first_serial - 1, 1)
            assert run is not None
            assert run.previous.leader_epoch == header.leader_epoch
        assert epochs[-1] == 4
        assert all(one <= two for one, two in pairwise(epochs))
        begins = each.log.epochs.starts
        assert begins == epoch_starts((1, 1), (2, 5), (3, 9), (4, 13))
        each.checkpoint(b"all of it")
        each.checkpoint(b"once more")
        assert each.reopen().log.newest.leader_epoch == 4
        each.log.close()


def test_epochs_begin_with_the_record_that_says_so(pair: tuple[Replica, Replica]) -> None:
    leader, follower = pair
    leader.lead(3)
    leader.store(1, b"a")
    follower.follow(leader)
    assert follower.log.newest.leader_epoch == 3
    began = EpochBegan(LeaderEpoch(4), "you")
    for frame, why in (
        (a_frame(follower, Marked(), epoch=2), "in epoch 2; epoch 3 has begun here"),
        (a_frame(follower, Marked(), epoch=4), "in epoch 4, which no record before it began"),
        (a_frame(follower, began, epoch=3), "in epoch 3, which no record before it began"),
        (a_frame(follower, began, epoch=5), "in epoch 5, which no record before it began"),
        (
            a_frame(follower, EpochBegan(LeaderEpoch(3), "x"), epoch=3),
            "in epoch 3, which no record",
        ),
    ):
        with pytest.raises(FramesRefused, match=why):
            follower.take(frame)
    assert follower.take(a_frame(follower, began, epoch=4)) == 3
    follower.commit()
    assert follower.reopen().log.epochs.starts == epoch_starts((3, 1), (4, 3))
    with pytest.raises(AssertionError, match="is over, or another leader's"):
        follower.lead(4)


def test_frames_that_do_not_follow_are_refused_in_words(pair: tuple[Replica, Replica]) -> None:
    leader, follower = pair
    leader.store(1, b"a", b"b")
    whole = sent(leader)
    for frames, why in (
        (whole[:-1], "byte 0 of what was sent begins no whole frame of format 2"),
        (whole + b"\0" * 100, f"byte {len(whole)} of what was sent begins no whole frame"),
        (a_frame(follower, Marked(), serial=2), "serial 2 was sent; the next one here is 1"),
        (a_frame(follower, Marked(), previous=9), "follows another history than serial 0 here"),
        (whole[:-1] + b"?", "its body does not match its checksum"),
    ):
        with pytest.raises(FramesRefused, match=why) as caught:
            follower.take(frames)
        assert caught.value.code == "frames_refused"
        assert follower.log.take_group() is None
    assert follower.take(b"") == 0


def test_a_record_of_a_newer_version_is_refused_before_it_is_written(
    pair: tuple[Replica, Replica],
) -> None:
    _, follower = pair
    data = bytearray(a_frame(follower, Marked()))
    data[LOCAL_BYTES + 1] = 250
    chain = zlib.crc32(data[LOCAL_BYTES:], frame_key(follower.log.identity))
    with pytest.raises(StorageRefused, match="kind 250, written by a newer OnceMQ") as caught:
        follower.take(local_part(chain, 0) + bytes(data[LOCAL_BYTES:]))
    assert caught.value.code == "format_too_new"
    assert follower.log.newest.serial == 0


def test_frames_are_read_from_any_serial_on_and_one_at_least(pair: tuple[Replica, Replica]) -> None:
    leader, _ = pair
    for number in range(300):
        leader.put(1, b"m%d" % number + b"x" * 1000)
        if number % 10 == 9:
            leader.commit()
    for serial in (0, 1, 16, 149, 298, 299):
        run = leader.log.frames_after(serial, 1)
        assert run is not None
        assert (run.previous.serial, run.last.serial) == (serial, serial + 1)
        more = leader.log.frames_after(serial, 5000)
        assert more is not None
        assert more.last.serial == min(300, serial + 4)
        assert more.frames.startswith(run.frames)
    leader.put(1, b"not finished")
    for beyond, newest in ((300, 300), (301, 301), (302, 301)):
        run = leader.log.frames_after(beyond, 1000)
        assert run is not None
        assert (run.frames, run.previous, run.last) == (b"", run.last, run.last)
        assert run.last.serial == newest


def test_a_run_of_frames_is_read_once_from_a_place_nearby(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's clients wait meanwhile."""
    leader, _ = pair
    for number in range(300):
        leader.put(1, b"m%d" % number + b"x" * 1000)
        if number % 10 == 9:
            leader.commit()
    asked: list[int] = []
    file = leader.log._current.file
    assert file is not None
    read = file.read

    def counted(position: int, size: int) -> bytes:
        asked.append(size)
        return read(position, size)

    monkeypatch.setattr(file, "read", counted)
    run = leader.log.frames_after(150, 20_000)
    assert run is not None
    assert 18_000 < len(run.frames) <= 20_000
    assert asked == [frame_runs.WALKED_BYTES, 20_000]


def test_what_was_compacted_is_brought_by_files(pair: tuple[Replica, Replica]) -> None:
    leader = Replica()
    for number in range(20):
        leader.store(1, b"m%d " % number + b"x" * 200)
    for number in range(2):
        leader.fact(number)
        leader.commit()
        leader.checkpoint(b"state %d" % number)
    assert leader.compact(lambda _: 10) > 0
    oldest = next(each for each in leader.log._catalog.segments if each.name.endswith(".log"))
    assert leader.log.frames_after(oldest.first_serial - 2, 1000) is None
    assert leader.log.frames_after(oldest.first_serial - 1, 1000) is not None


def test_frames_of_format_1_are_brought_by_files(tmp_path: Path, quick_disk: Any) -> None:
    scribe = Scribe.__new__(Scribe)
    scribe.directory, scribe.disk, scribe.options = unpacked("killed", tmp_path), quick_disk, SMALL
    scribe.identity, scribe.topics, scribe.sequence = b"\7", {}, 0
    scribe.open()
    last = scribe.log.last_serial
    assert scribe.log.frames_after(last - 1, 1000) is None
    scribe.store(9, b"new")
    run = scribe.log.frames_after(last, 1000)
    assert run is not None
    assert run.previous.serial == last
    follower = Replica(b"\6", WIDE)
    with pytest.raises(FramesRefused, match="begins no whole frame"):
        follower.take(scribe.segments[-1].read_bytes()[68:])
    follower.log.close()
    pinned = scribe.log.pin()
    fill(follower.disk, pinned, step=100)  # type: ignore[arg-type]
    pinned.release()
    follower.open()
    assert follower.log.newest == scribe.log.newest
    scribe.store(9, b"newer")
    run = scribe.log.frames_after(last + 1, 1000)
    assert run is not None
    follower.take(run.frames)
    follower.commit()
    assert follower.reopen().log.newest == scribe.log.newest
    scribe.log.close()


def test_a_damaged_frame_is_not_sent(pair: tuple[Replica, Replica]) -> None:
    leader, _ = pair
    leader.store(1, b"a")
    place = leader.log.find(1, 0)  # type: ignore[arg-type]
    assert place is not None
    leader.disk.flip_bit(place.segment.path, place.position + 40)  # type: ignore[attr-defined]
    with pytest.raises(Corrupt, match="is damaged at byte 68"):
        leader.log.frames_after(0, 1000)


def test_a_frame_that_the_file_does_not_hold_is_damage(pair: tuple[Replica, Replica]) -> None:
    leader, _ = pair
    leader.store(1, b"a")
    leader.store(1, b"b" * 1000)
    file = leader.log._current.file
    assert file is not None
    file.truncate(leader.log._current.end - 10)
    with pytest.raises(Corrupt, match="goes beyond the end"):
        leader.log.frames_after(1, 100)


def test_zeros_where_a_frame_should_be_are_damage(pair: tuple[Replica, Replica]) -> None:
    leader, _ = pair
    leader.store(1, b"a")
    position = leader.log._current.end
    leader.store(1, b"b")
    file = leader.log._current.file
    assert file is not None
    file.write([bytes(100)], position)
    with pytest.raises(Corrupt, match="no frame begins there"):
        leader.log.frames_after(1, 100)


def test_frames_that_overlap_the_own_log_are_checked_against_the_one_before_them(
    pair: tuple[Replica, Replica],
) -> None:
    leader, follower = pair
    leader.lead(2)
    for number in range(4):
        leader.store(1, b"m%d" % number + b"x" * 3000 * number)
    leader.lead(5)
    leader.commit()
    start = follower.log.newest
    whole = follower.log.check_frames(sent(leader), start)
    assert (whole.previous, whole.last) == (start, leader.log.newest)
    assert whole.starts == epoch_starts((2, 1), (5, 6))
    assert [each.frame.serial for each in whole.frames] == [1, 2, 3, 4, 5, 6]
    follower.take(sent(leader)[: whole.frames[2].frame.end])
    assert follower.log.append_received(whole, 3) == 6
    assert follower.log.newest == leader.log.newest
    assert follower.log.epochs.starts == leader.log.epochs.starts
    assert follower.log.append_received(whole, 6) == 6  # nothing new
    for skip in (0, 5):
        with pytest.raises(AssertionError, match="these frames do not follow"):
            follower.log.append_received(whole, skip)
    second = leader.log.place_of(2)
    assert second is not None
    with pytest.raises(FramesRefused, match="the next one here is 3"):
        follower.log.check_frames(sent(leader), second)
    with pytest.raises(FramesRefused, match="follows another history than serial 2"):
        follower.log.check_frames(sent(leader, 3), second._replace(chain=7))
    follower.commit()
    assert records(follower.log) == records(leader.log)


def test_an_opening_of_the_same_process_is_not_counted_again(
    pair: tuple[Replica, Replica],
) -> None:
    leader, _ = pair
    first = leader.log.openings
    leader.log.close()
    leader.open(opening=first)
    assert leader.log.openings == first
    leader.log.close()
    assert leader.open().log.openings == first + 1
    leader.log.close()
    with pytest.raises(Locked, match="another process had it meanwhile"):
        leader.open(opening=first)
    assert leader.open().log.openings == first + 2


def test_a_state_that_is_behind_its_log_is_checkpointed_where_it_stands(
    pair: tuple[Replica, Replica],
) -> None:
    """Of a follower: what is not committed is in no checkpoint, and is replayed, or cut."""
    leader, follower = pair
    for number in range(9):
        leader.store(1, b"m%d" % number)
    folded = [leader.log.place_of(3)]
    follower.follow(leader)
    writer = follower.log.begin_checkpoint(lambda: folded[0])  # type: ignore[arg-type, return-value]
    writer.add(b"some of 3")
    folded[0] = leader.log.place_of(5)
    writer.add(b"some of 5")
    job = writer.finish()
    assert job.end == 5
    job.run()
    follower.log.complete(job)
    job.clean()
    assert not follower.log.reclaiming.adds(3)
    assert follower.log.reclaiming.adds(4)
    follower.kill()
    opened = follower.open()
    assert (opened.checkpoint_end, opened.states) == (5, [b"some of 3", b"some of 5"])
    assert [serial for serial, _ in opened.replay] == [4, 5, 6, 7, 8, 9]
    assert follower.log.newest == leader.log.newest
    follower.log.close()
    assert follower.open(cut_to=6).log.last_serial == 6
    follower.log.close()
    with pytest.raises(StorageRefused, match="stands for what came up to 5"):
        follower.open(cut_to=4)
