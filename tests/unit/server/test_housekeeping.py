"""Housekeeping comes to rest, and what it finds damaged stops nobody."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Locked
from oncemq.protocol.names import Micros, Offset
from oncemq.protocol.requests import Settled
from oncemq.server.housekeeping import Housekeeping
from oncemq.storage.log import checkpoint
from oncemq.storage.log.log import LogOptions

SMALL = LogOptions(
    segment_bytes=1 << 20, allocate_bytes=1 << 18, reserve_bytes=100, checkpoint_records=3
)


class Janitor:
    """Does at once what it is given."""

    idle = True

    def give(self, task: Callable[[], None], then: Callable[[], None]) -> None:
        task()
        then()


def seconds_pass(host: Any, housekeeping: Housekeeping, seconds: int) -> None:
    for _ in range(seconds * 3):
        host.now += 400_000
        housekeeping.turn(Janitor(), Micros(host.now))  # type: ignore[arg-type]
        host.commit()


def fill(host: Any) -> None:
    """Segments that are mostly settled: the large messages are, the small ones are not."""
    host.subscribe("kept")
    host.subscribe("settled")
    for number in range(4):
        host.put("kept", b"kept %d" % number)
        host.put("kept", b"-" * 4_000)
        host.put("settled", b"x" * 1_040_000)
    reply, _ = host.ask_all(host.getting("settled", limit=1))
    settled = Settled("settled", reply.batches[0].subscription_id, Offset(4))
    host.ask(host.getting("settled", settled=(settled,)))
    assert host.broker.shard.by_name["settled"].low == 4


def test_a_damaged_segment_is_told_once_and_the_others_are_compacted(
    make_host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    place = host.log.find(host.broker.shard.by_name["kept"].id, 0)
    with open(place.segment.path, "r+b") as file:
        file.seek(place.position + place.size - 1)
        file.write(b"\xff")
    with caplog.at_level(logging.ERROR):
        seconds_pass(host, housekeeping, 20)
    assert [record.getMessage().partition(" detail")[0] for record in caplog.records] == [
        "compaction given up reason=corrupt"
    ]
    assert list(host.directory.glob("log/*.cold"))
    assert host.put("kept", b"goes on").stored


def test_a_log_at_rest_is_not_looked_through_again(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    seconds_pass(host, housekeeping, 20)
    assert list(host.directory.glob("log/*.cold"))
    looked: list[int] = []
    plan = host.log.plan
    monkeypatch.setattr(host.log, "plan", lambda live: looked.append(1) or plan(live))
    seconds_pass(host, housekeeping, 20)
    assert looked == []
    host.put("kept", b"something new")
    seconds_pass(host, housekeeping, 5)
    assert looked


def test_a_segment_that_cannot_be_read_stops_nobody(
    make_host: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    place = host.log.find(host.broker.shard.by_name["kept"].id, 0)
    segment, files = place.segment, type(host.log._current.file)
    opened = type(host.log._disk).open

    def broken(file: Any, position: int, size: int) -> bytes:
        raise OSError(errno.EIO, "one bad sector")

    class BadFile(files):  # type: ignore[misc,valid-type]
        read = broken

    def opens(disk: Any, path: str, create: bool = False) -> Any:
        file = opened(disk, path, create)
        if path == segment.path:
            file.__class__ = BadFile
        return file

    monkeypatch.setattr(type(host.log._disk), "open", opens)
    with caplog.at_level(logging.ERROR):
        seconds_pass(host, housekeeping, 60)
    assert "one bad sector" in segment.damage
    assert len([each for each in caplog.records if "given up" in each.getMessage()]) == 1
    assert host.put("kept", b"goes on").duplicate is False


def test_a_checkpoint_in_parts_that_finds_no_room_is_put_off_and_comes_later(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    monkeypatch.setattr(checkpoint, "FLUSH_BYTES", 1)
    monkeypatch.setattr("oncemq.server.housekeeping.CAPTURED_A_TURN", 1)
    with monkeypatch.context() as full:

        def no_room(_target: Any, _blobs: Any) -> None:
            raise OSError(errno.ENOSPC, "no room")

        full.setattr(checkpoint._Target, "write", no_room)
        seconds_pass(host, housekeeping, 5)
        assert host.log.reclaiming.checkpoints == []
    seconds_pass(host, housekeeping, 20)
    assert host.log.reclaiming.checkpoints


def test_a_checkpoint_leaves_in_parts_and_never_gathers_in_memory(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    monkeypatch.setattr(checkpoint, "FLUSH_BYTES", 1)
    monkeypatch.setattr("oncemq.server.housekeeping.CAPTURED_A_TURN", 1)
    parts: list[int] = []
    write = checkpoint._Target.write

    def noted(target: Any, blobs: list[bytes]) -> None:
        parts.append(len(blobs))
        write(target, blobs)

    monkeypatch.setattr(checkpoint._Target, "write", noted)
    seconds_pass(host, housekeeping, 20)
    assert host.log.reclaiming.checkpoints
    assert len(parts) > 2
    assert max(parts) <= 2


class Behind:
    """A household that follows another, which says nothing new."""

    def __init__(self, host: Any) -> None:
        self.log, self.shard, self.events = host.log, host.broker.shard, host.driver.events
        self.settled_serial, newest = host.log.last_serial, host.log.newest
        self.folded = lambda: newest

    def upkeep(self, now: Micros) -> None: ...
    def mark(self, now: Micros) -> None: ...
    def end_stages(self, stage_ids: object, now: Micros) -> bool:
        return False


def test_a_follower_whose_checkpoint_found_no_room_takes_its_room_back(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room that was lent to the checkpoint: without it nothing is taken from the leader."""
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(Behind(host), Micros(host.now))  # type: ignore[arg-type]

    def no_room(_target: Any, _blobs: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as full:
        full.setattr(checkpoint._Target, "write", no_room)
        seconds_pass(host, housekeeping, 3)
    seconds_pass(host, housekeeping, 3)
    assert host.log.has_room(100_000, now_ms=host.now // 1000, fact=True)


def test_a_follower_whose_leader_says_nothing_new_makes_one_checkpoint(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same state another one would be the same."""
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(Behind(host), Micros(host.now))  # type: ignore[arg-type]
    seconds_pass(host, housekeeping, 20)
    assert host.log.reclaiming.checkpoints
    begun: list[int] = []
    monkeypatch.setattr(host.log, "begin_checkpoint", lambda *_: begun.append(1))
    seconds_pass(host, housekeeping, 20)
    assert begun == []
    assert not housekeeping._checkpoint_due(Micros(host.now))


def test_a_checkpoint_that_never_finds_room_does_not_keep_compaction_from_making_some(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk a checkpoint is due again and again: what the others cover is freed."""
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    monkeypatch.setattr(host.log, "plan", lambda _live: None)
    seconds_pass(host, housekeeping, 20)
    assert len(host.log.reclaiming.checkpoints) == 2
    monkeypatch.undo()
    segments = len(list(host.directory.glob("log/*.log")))

    def no_room(_target: Any, _blobs: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(checkpoint._Target, "write", no_room)
    monkeypatch.setattr(type(host.log.reclaiming), "checkpoint_due", True)
    seconds_pass(host, housekeeping, 20)
    assert len(list(host.directory.glob("log/*.log"))) < segments


@pytest.mark.parametrize("full", [False, True])
def test_where_someone_waits_for_room_one_compaction_follows_another_at_once(
    make_host: Any, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    host = make_host(SMALL)
    fill(host)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    plan, looked = host.log.plan, list[int]()
    monkeypatch.setattr(host.log, "plan", lambda _live: None)
    seconds_pass(host, housekeeping, 20)
    host.put("kept", b"something new")
    monkeypatch.setattr(host.log, "plan", lambda live: looked.append(1) or plan(live))
    host.now += 1_000_000
    assert host.log.has_room(1 << 40 if full else 1, now_ms=host.now // 1000) is not full
    for _ in range(10):
        host.now += 1_000
        housekeeping.turn(Janitor(), Micros(host.now))  # type: ignore[arg-type]
        host.commit()
    assert list(host.directory.glob("log/*.cold"))
    assert len(looked) == (2 if full else 1)


def go_on_to_the_next_segment(host: Any) -> None:
    for _ in range(4):
        host.put("kept", b"x" * 500_000)


class Busy(Janitor):
    """Has been at one job for a long time."""

    idle = False


def test_a_lock_file_that_was_removed_is_put_back_within_a_second_and_told(
    make_host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(SMALL)
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    (host.directory / "lock").unlink()
    with caplog.at_level(logging.WARNING):
        housekeeping.turn(Busy(), Micros(host.now + 1_000_000))  # type: ignore[arg-type]
        seconds_pass(host, housekeeping, 3)
    assert [record.getMessage() for record in caplog.records] == [
        f"lock file was removed, and is put back directory={host.directory}"
    ]
    assert (host.directory / "lock").exists()
    assert host.put("kept", b"goes on").duplicate is False


def test_a_server_whose_lock_another_may_have_stops_before_it_writes_more(make_host: Any) -> None:
    host = make_host(SMALL)
    host.subscribe("kept")
    housekeeping = Housekeeping(host.driver, Micros(host.now))
    (host.directory / "lock").rename(host.directory / "old")  # so that its number stays taken
    (host.directory / "lock").touch()
    with pytest.raises(Locked, match="another lock file"):
        seconds_pass(host, housekeeping, 2)
    with pytest.raises(Locked, match="another lock file"):  # a new segment is a new name
        go_on_to_the_next_segment(host)


def test_a_server_whose_directory_was_replaced_begins_no_segment_in_the_other(
    make_host: Any, tmp_path: Path
) -> None:
    host = make_host(SMALL)
    host.subscribe("kept")
    host.directory.rename(tmp_path / "moved")
    (host.directory / "log").mkdir(parents=True)
    with pytest.raises(Locked, match="moved away"):
        go_on_to_the_next_segment(host)
    assert list((host.directory / "log").iterdir()) == []
