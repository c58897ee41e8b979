"""A replica's directory: its log, and a state that stands at what is committed."""

import pytest

from oncemq.broker.state import snapshot
from oncemq.cluster.replica_directory import ReplicaDirectory, link, place
from oncemq.errors import Corrupt, Locked
from oncemq.protocol.names import LeaderEpoch, Serial
from oncemq.protocol.records import EpochBegan
from oncemq.protocol.replicas.messages import Life, Place
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from tests.harness.replica_logs import LeaderLog, opened, sync, topic, topics
from tests.harness.replicas import epoch_starts


def take_in(directory: ReplicaDirectory, leader: LeaderLog, after: int = 0) -> None:
    """All that the leader has behind a serial."""
    _, frames = leader.append(after)
    received = directory.log.check_frames(frames, directory.log.newest)
    directory.log.append_received(received, 0)
    directory.received(received.frames)


def checkpoint(directory: ReplicaDirectory) -> None:
    """Of the state as it is."""
    writer = directory.log.begin_checkpoint(lambda: directory.folded)
    for blob in snapshot.capture(directory.shard):
        writer.add(blob)
    job = writer.finish()
    job.run()
    directory.log.complete(job)
    job.clean()


# ------------------------------------------------------------------ what is open


def test_nothing_of_a_log_is_in_the_state_before_it_is_known_to_be_committed() -> None:
    leader = LeaderLog(topics=2)
    last = place(leader.log.newest)
    directory = opened(leader.own_home())
    assert (directory.tail, directory.applied, directory.shard.serial) == (last, 0, 0)
    assert topics(directory) == []
    assert directory.epochs().starts == epoch_starts((1, 1))
    assert directory.shard.leader_epochs.starts == ()


def test_what_waits_is_folded_in_order_up_to_the_commit() -> None:
    directory = opened(LeaderLog(topics=3).own_home())
    directory.apply_to(Serial(3))
    assert (topics(directory), directory.applied, directory.shard.serial) == ([1, 2], 3, 3)
    assert directory.folded == directory.log.place_of(3)
    directory.apply_to(Serial(2))
    assert directory.applied == 3
    directory.apply_to(Serial(99))
    assert (topics(directory), directory.applied) == ([1, 2, 3], 4)
    assert directory.epochs().starts == epoch_starts((1, 1))


def test_frames_of_a_leader_wait_for_the_commit_as_well() -> None:
    leader = LeaderLog(topics=2)
    directory = opened(leader.new_home())
    take_in(directory, leader)
    assert (directory.applied, directory.tail) == (0, place(leader.log.newest))
    assert directory.epochs().starts == epoch_starts((1, 1))
    directory.apply_to(Serial(2))
    assert topics(directory) == [1]


def test_the_first_record_of_an_own_epoch_waits_for_the_commit() -> None:
    directory = opened(LeaderLog(topics=1).own_home())
    record = EpochBegan(LeaderEpoch(4), "me")
    serial = directory.log.begin_epoch(record)
    directory.began(record)
    assert directory.epochs().starts == epoch_starts((1, 1), (4, serial))
    directory.apply_to(Serial(serial - 1))
    assert directory.shard.leader_epochs.starts == epoch_starts((1, 1))
    directory.apply_to(serial)
    assert directory.shard.leader_epochs.starts == epoch_starts((1, 1), (4, serial))
    assert directory.folded == directory.log.newest


def test_a_state_begins_at_its_checkpoint_and_the_rest_waits() -> None:
    leader = LeaderLog(topics=3)
    home = leader.own_home()
    directory = opened(home)
    directory.apply_to(Serial(3))
    checkpoint(directory)
    folded = directory.folded
    directory.close()
    again = opened(home)
    assert (topics(again), again.applied, again.folded) == ([1, 2], 3, folded)
    assert again.shard.checkpointed == 3
    assert again.epochs().starts == epoch_starts((1, 1))
    again.apply_to(Serial(4))
    assert topics(again) == [1, 2, 3]


def test_an_empty_log_has_nothing() -> None:
    leader = LeaderLog()
    directory = opened(leader.new_home())
    assert (directory.tail.serial, directory.applied) == (0, 0)
    assert directory.epochs().starts == ()
    assert directory.life == Life(b"\7" * 16, 1)
    assert directory.log.identity == leader.log.identity


# ------------------------------------------------------------------ cut, led, opened anew


def test_what_is_cut_was_never_in_the_state() -> None:
    leader = LeaderLog(topics=3)
    home = leader.own_home()
    directory = opened(home)
    directory.apply_to(Serial(2))
    directory.close()
    again = opened(home, cut_to=3, opening=directory.log.openings)
    assert again.log.last_serial == 3
    again.apply_to(Serial(99))
    assert topics(again) == [1, 2]


def test_the_same_process_opens_it_again_as_the_same_life() -> None:
    home = LeaderLog().own_home()
    first = opened(home)
    first.close()
    again = opened(home, opening=first.log.openings)
    assert again.life == first.life
    again.close()
    assert opened(home).life == Life(first.life.incarnation, first.life.openings + 1)


def test_who_leads_has_all_of_the_log_in_the_state() -> None:
    directory = opened(LeaderLog(topics=3).own_home())
    directory.apply_to(Serial(2))
    assert directory.lead() == []
    assert topics(directory) == [1, 2, 3]
    assert directory.shard.serial == directory.log.last_serial == directory.applied


def test_room_for_what_frees_room_is_there_before_anything_is_written() -> None:
    home = LeaderLog().new_home()
    (segment,) = home.disk.names(f"{home.directory}/log")
    path = f"{home.directory}/log/{segment}"
    before = home.disk.open(path).size()
    directory = opened(home)
    assert directory.log.last_serial == 0
    assert home.disk.open(path).size() >= before + home.options.reserve_bytes


# ------------------------------------------------------------------ the promise


def test_a_promise_is_on_the_disk_when_it_returns() -> None:
    home = LeaderLog().own_home()
    directory = opened(home)
    directory.promise(LeaderEpoch(7))
    assert isinstance(home.disk, FaultyDisk)
    home.disk.crash(PowerCut.NOTHING)
    again = opened(home)
    assert again.promised.leader_epoch == 7
    again.promise(LeaderEpoch(6))
    assert again.promised.leader_epoch == 7


def test_a_directory_that_does_not_open_is_left_unlocked() -> None:
    leader = LeaderLog(topics=1)
    home = leader.own_home()
    disk = home.disk
    disk.open(f"{home.directory}/EPOCH", create=True).close()
    with pytest.raises(Corrupt, match="EPOCH"):
        opened(home)
    disk.remove(f"{home.directory}/EPOCH")
    assert opened(home).tail.serial == 2


def test_an_open_directory_is_nobody_elses() -> None:
    home = LeaderLog().own_home()
    directory = opened(home)
    with pytest.raises(Locked):
        opened(home)
    directory.close()
    opened(home).close()


# ------------------------------------------------------------------ places


def test_a_place_is_told_and_understood_as_the_same() -> None:
    leader = LeaderLog(topics=1)
    newest = leader.log.newest
    assert place(newest) == Place(Serial(2), LeaderEpoch(1), newest.chain)
    assert link(place(newest)) == newest


def test_what_was_appended_is_synced_as_any_other() -> None:
    leader = LeaderLog(topics=1)
    home = leader.new_home()
    directory = opened(home)
    take_in(directory, leader)
    sync(directory)
    assert isinstance(home.disk, FaultyDisk)
    home.disk.crash(PowerCut.NOTHING)
    again = opened(home)
    assert again.tail == place(leader.log.newest)
    serial = leader.write(topic(7))
    take_in(again, leader, 2)
    again.apply_to(serial)
    assert topics(again) == [1, 7]
