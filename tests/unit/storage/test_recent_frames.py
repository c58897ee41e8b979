"""What a leader keeps of its log in memory, and what it has to look for in files."""

from random import Random
from typing import Any

import pytest

from oncemq.storage.log import frame_runs
from oncemq.storage.log.frame_runs import ChainLink, FrameRun
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.writer import Group
from tests.harness.replicas import Replica, records

WIDE = LogOptions(segment_bytes=1 << 20, allocate_bytes=4096, reserve_bytes=256)


def taken(replica: Replica) -> Group:
    group = replica.log.take_group()
    assert group is not None
    return group


def after(replica: Replica, serial: int, bytes_max: int = 1 << 20) -> FrameRun:
    run = replica.log.frames_after(serial, bytes_max)
    assert run is not None
    return run


def test_frames_are_sent_before_they_are_written() -> None:
    leader, follower = Replica(), Replica(b"\6")
    follower.refilled_from(leader)
    leader.log.keep_recent()
    leader.lead(1)
    leader.put(1, b"small", b"x" * 5000)
    run = after(leader, 0)
    assert (run.previous, run.last) == (leader.log.place_of(0), leader.log.newest)
    follower.take(run.frames)
    follower.commit()
    assert follower.log.newest == leader.log.newest
    assert leader.log.durable_serial == 0
    leader.commit()
    assert records(follower.log) == records(leader.log)


def test_what_is_not_finished_stays_and_the_oldest_finished_goes() -> None:
    leader = Replica(options=WIDE)
    leader.log.keep_recent(8_000)
    for _ in range(40):
        leader.put(1, b"x" * 300)
    recent = leader.log._recent
    assert recent is not None
    assert recent.kept_from == 1
    first = taken(leader)
    for _ in range(20):
        leader.put(1, b"y" * 300)
    leader.log.write(first)
    assert recent.kept_from == 1
    leader.log.finished(first)
    assert recent.kept_from == 41  # though what is not finished takes more by itself
    assert recent._weight(0) > 8_000
    assert leader.log.kept_from == 1  # by the files
    for serial in range(60):  # the same, wherever it comes from
        run = after(leader, serial, 1)
        assert run.previous == leader.log.place_of(serial)
        assert run.last == leader.log.place_of(serial + 1)
        assert run.last.serial == serial + 1
    leader.log.write(group := taken(leader))
    leader.log.finished(group)
    assert recent.kept_from > 41
    assert recent._weight(0) <= 8_000
    whole = b"".join(after(leader, serial, 1).frames for serial in range(60))
    leader.log._recent = None
    assert whole == b"".join(after(leader, serial, 1).frames for serial in range(60))


def test_how_much_follows_a_record_is_known() -> None:
    leader = Replica(options=WIDE)
    leader.log.keep_recent(8_000)
    for size in (100, 3_000, 200):
        leader.put(1, bytes(size))
    whole = len(after(leader, 0).frames)
    sizes = [whole - len(after(leader, 0, 1).frames), len(after(leader, 2).frames), 0]
    assert [leader.log.recent_bytes_after(serial) for serial in range(4)] == [whole, *sizes]


def test_what_is_too_much_but_not_finished_is_let_go_when_it_is() -> None:
    leader = Replica(options=WIDE)
    leader.log.keep_recent(1_000)
    for _ in range(3):
        leader.put(1, b"x" * 2000)
    group = taken(leader)
    leader.log.write(group)
    leader.log.finished(group)
    assert leader.log.place_of(3) == leader.log.newest
    recent = leader.log._recent
    assert recent is not None
    assert (recent.kept_from, recent._buffers) == (4, [])
    leader.put(1, b"more")
    assert after(leader, 3).previous == leader.log.place_of(3)
    assert after(leader, 2).last.serial == 3  # a run from files ends where they do


def test_a_run_is_as_long_as_it_may_be_and_one_frame_at_least() -> None:
    leader = Replica(options=WIDE)
    leader.log.keep_recent()
    for number in range(20):
        leader.put(1, b"x" * 10 * number)
    whole = after(leader, 0)
    ends = [0]
    for serial in range(20):
        ends.append(ends[-1] + len(after(leader, serial, 1).frames))
    assert ends[-1] == len(whole.frames)
    for bytes_max in (1, ends[1], ends[2] - 1, ends[2], ends[7] + 1, ends[20], 1 << 20):
        run = after(leader, 0, bytes_max)
        count = max(n for n, end in enumerate(ends) if end <= max(bytes_max, ends[1]))
        assert (run.last.serial, run.frames) == (count, whole.frames[: ends[count]])
    assert after(leader, 3) is after(leader, 3)  # for the next member: not copied again


def test_a_run_has_no_more_frames_than_a_follower_checks_in_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Replica(options=WIDE)
    for module in ("frame_runs", "recent_frames"):
        monkeypatch.setattr(f"oncemq.storage.log.{module}.RUN_FRAMES_MAX", 7)
    leader.log.keep_recent()
    for number in range(20):
        leader.fact(number)
    assert after(leader, 4).last.serial == 11
    leader.commit()
    leader.log._recent = None
    assert after(leader, 4).last.serial == 11


def test_a_place_far_into_a_segment_is_walked_to_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Replica(options=WIDE)
    for number in range(40):
        leader.store(1, b"m%d" % number + b"x" * 20_000)
    expected = after(leader, 38, 1)
    leader.checkpoint(b"one")
    leader.checkpoint(b"two")
    leader.reopen()
    assert after(leader, 38, 1) == expected
    segment = leader.log._catalog.segments[-1]
    segment.places = type(segment.places)()  # as of a sealed one after a start
    monkeypatch.setattr(frame_runs, "WALKED_FRAMES", 10)
    steps = []
    while not (run := after(leader, 38, 1)).frames:
        assert run.previous == run.last
        steps.append(run.last.serial)
    assert run == expected
    assert steps == sorted(set(steps))
    assert len(steps) == 4
    assert leader.log.place_of(38) == expected.previous


def test_what_was_appended_before_recent_frames_were_kept_comes_once_it_is_finished() -> None:
    leader = Replica(options=WIDE)
    leader.store(1, b"finished")
    leader.put(1, b"under way")
    leader.log.keep_recent()
    leader.put(1, b"kept")
    found = after(leader, 1)
    assert (found.frames, found.previous, found.last) == (b"", *[leader.log.place_of(1)] * 2)
    assert after(leader, 2).last.serial == 3
    assert leader.log.place_of(2) == after(leader, 2).previous
    leader.commit()
    assert after(leader, 1).last.serial == 3


def test_places_are_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Replica()
    links = [leader.log.newest]
    chance = Random(3)
    for number in range(60):
        if number % 20 == 10:
            leader.lead(number)
        else:
            leader.put(1, b"x" * chance.randrange(400))
        links.append(leader.log.newest)
    leader.commit()
    assert links[0] == ChainLink(0, 0, links[0].chain)
    assert [leader.log.place_of(serial) for serial in range(61)] == links
    assert leader.log.place_of(61) is None
    leader.log.keep_recent()
    leader.put(1, b"one more")
    assert leader.log.place_of(61) == leader.log.newest
    assert leader.log.place_of(62) is None


def compacted() -> Any:
    """A log segment, a gap, and log segments: what lay between was settled."""
    leader = Replica()
    for topic in (1, 2, 2, 2, 1, 1, 1):
        for _ in range(6):
            leader.store(topic, b"x" * 200)
    for number in range(2):
        leader.fact(number)
        leader.commit()
        leader.checkpoint(b"state %d" % number)
    leader.kept = leader.log.kept_from  # type: ignore[attr-defined]
    assert leader.compact({1: 0, 2: 18}.get) > 0
    return leader


def test_nothing_is_read_across_what_was_compacted_away() -> None:
    leader = compacted()
    assert leader.kept == 1
    kept_from = leader.log.kept_from
    assert 6 < kept_from < leader.log.last_serial
    assert leader.log.frames_after(kept_from - 2, 1000) is None
    assert after(leader, kept_from - 1).last.serial >= kept_from
    assert leader.log.place_of(kept_from - 1) == after(leader, kept_from - 1).previous
    segments = leader.log._catalog.segments
    for serial in range(kept_from - 1):
        run = leader.log.frames_after(serial, 1)
        held = any(
            s.name.endswith(".log") and s.first_serial <= serial + 1 <= s.last_serial
            for s in segments
        )
        assert (run is not None) == held
    leader.reopen()
    assert leader.log.kept_from == kept_from


def test_a_log_that_is_closed_keeps_no_frames() -> None:
    """It waits long for the collector: each epoch that a server had led kept 64 MB of it."""
    leader = Replica(options=WIDE)
    leader.log.keep_recent()
    leader.put(1, bytes(100_000))
    assert leader.log._recent is not None
    leader.log.close()
    assert leader.log._recent is None
