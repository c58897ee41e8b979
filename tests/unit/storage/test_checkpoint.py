"""Checkpoints: a cache of state that proves which log it stands for."""

from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Corrupt


def names(scribe: Any) -> list[str]:
    return sorted(path.name for path in (scribe.directory / "checkpoints").iterdir())


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_replay_begins_after_the_checkpoint(scribe: Any) -> None:
    for cursor in range(5):
        scribe.fact(cursor)
    scribe.commit()
    scribe.checkpoint(b"five", b"", b"x" * 1000)
    scribe.fact(6)
    scribe.commit()
    opened = scribe.reopen()
    assert opened.states == [b"five", b"", b"x" * 1000]
    assert opened.checkpoint_end == 5
    assert [serial for serial, _ in opened.replay] == [6]


def test_records_appended_while_the_state_is_gathered_are_replayed(scribe: Any) -> None:
    scribe.fact(1)
    writer = scribe.log.begin_checkpoint()
    writer.add(b"first half")
    scribe.fact(2)
    writer.flush().run()
    writer.add(b"second half")
    job = writer.finish()
    scribe.fact(3)
    with pytest.raises(AssertionError, match="ahead of its log"):
        job.run()
    scribe.commit()
    job.run()
    scribe.log.complete(job)
    job.clean()
    opened = scribe.reopen()
    assert opened.states == [b"first half", b"second half"]
    assert opened.checkpoint_end == 2
    assert [serial for serial, _ in opened.replay] == [2, 3]


def test_the_two_newest_are_kept(scribe: Any) -> None:
    for number in range(4):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"%d" % number)
    assert names(scribe) == [f"{3:020d}.ckpt", f"{4:020d}.ckpt"]


def test_a_damaged_checkpoint_gives_way_to_the_one_before(scribe: Any) -> None:
    for number in range(3):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"state %d" % number)
    damage(scribe.directory / "checkpoints" / names(scribe)[-1])
    opened = scribe.reopen()
    assert opened.states == [b"state 1"]
    assert [serial for serial, _ in opened.replay] == [3]
    assert opened.report.damaged_checkpoints == [f"{3:020d}.ckpt"]


def test_a_whole_log_needs_no_checkpoint(scribe: Any) -> None:
    scribe.fact(1)
    scribe.commit()
    scribe.checkpoint(b"state")
    damage(scribe.directory / "checkpoints" / names(scribe)[0])
    opened = scribe.reopen()
    assert opened.states == []
    assert [serial for serial, _ in opened.replay] == [1]


def test_one_damaged_checkpoint_never_loses_state_whatever_was_compacted(scribe: Any) -> None:
    for number in range(60):
        scribe.store(1, b"m%d" % number + b"x" * 90)
        if number % 20 == 19:
            scribe.checkpoint(b"%d" % scribe.log.last_serial)
    assert scribe.compact(lambda topic: 60)
    damage(scribe.directory / "checkpoints" / names(scribe)[-1])
    opened = scribe.reopen()
    assert opened.states == [b"40"]
    assert [serial for serial, _ in opened.replay] == list(range(41, 61))


def test_a_log_shorter_than_its_checkpoint_is_refused(scribe: Any) -> None:
    scribe.fact(1)
    scribe.commit()
    end = scribe.log._current.end
    scribe.fact(2)
    scribe.commit()
    scribe.checkpoint(b"state")
    scribe.log.close()
    data = scribe.segments[0].read_bytes()
    scribe.segments[0].write_bytes(data[:end])
    with pytest.raises(Corrupt, match="serials 2 to 2 are lost"):
        scribe.open()
    (scribe.directory / "END").unlink()  # the checkpoint alone proves as much
    (checkpoint,) = (scribe.directory / "checkpoints").iterdir()
    with pytest.raises(Corrupt) as refused:
        scribe.open()
    assert refused.value.detail == (
        f"{scribe.directory}: the log ends at serial 1 but the checkpoint {checkpoint} proves it "
        "was durable up to 2; serials 2 to 2 are lost: run `once repair`"
    )
    scribe.segments[0].write_bytes(data)
    scribe.open()


def test_a_log_that_is_another_one_at_the_checkpoint_is_refused(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    logs = [make_scribe(tmp_path / name, quick_disk) for name in ("one", "two")]
    for number, log in enumerate(logs):
        log.fact(number)
        log.commit()
        log.checkpoint(b"state")
        log.log.close()
    (logs[0].segments[0]).write_bytes(logs[1].segments[0].read_bytes())
    with pytest.raises(Corrupt, match="comes from another time"):
        logs[0].open()


def test_a_checkpoint_is_due_after_so_many_records_or_bytes(scribe: Any) -> None:
    scribe.options = type(scribe.options)(checkpoint_records=3, checkpoint_bytes=5000)
    scribe.reopen()
    assert not scribe.log.reclaiming.checkpoint_due
    for number in range(3):
        scribe.fact(number)
    assert scribe.log.reclaiming.checkpoint_due
    scribe.commit()
    scribe.checkpoint(b"")
    assert not scribe.log.reclaiming.checkpoint_due
    scribe.store(1, b"x" * 6000)
    assert scribe.log.reclaiming.checkpoint_due


def test_a_full_segment_waits_for_two_checkpoints_that_cover_it(scribe: Any) -> None:
    scribe.store(1, b"x" * 700)
    scribe.checkpoint(b"first")
    assert not scribe.log.reclaiming.reclaim_waits  # there is no full one
    scribe.store(1, b"x" * 700)
    assert len(scribe.segments) == 2
    assert scribe.log.reclaiming.reclaim_waits
    scribe.checkpoint(b"second")
    assert not scribe.log.reclaiming.reclaim_waits  # it ends exactly where the older of them begins
    scribe.store(1, b"x" * 700)
    assert len(scribe.segments) == 3
    assert scribe.log.reclaiming.reclaim_waits
