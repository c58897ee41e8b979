"""A replica that follows: what its rules decide is done with a real log, in their order."""

import pytest

from oncemq.cluster import following as following_module
from oncemq.cluster.following import Following
from oncemq.cluster.replica_directory import Home, ReplicaDirectory, place
from oncemq.protocol.names import LeaderEpoch, Micros, Serial
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Append,
    Appended,
    Cut,
    LeaderMessage,
    MemberMessage,
    Mismatch,
    Place,
    RefillBegin,
    RefillFile,
    RefillPart,
    Stale,
)
from oncemq.replication.actions import BeginRefill, Halt, Reopen
from oncemq.storage.segments.promised_epoch import PromisedEpoch
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire.replica_codec import decode_replica
from tests.harness.replica_logs import SHARD, LeaderLog, opened, topic, topics
from tests.harness.replicas import epoch_starts

ROUTE = b"leader"
NOW = Micros(5_000_000)


class Follows:
    """One that follows, and what it says to whom."""

    def __init__(self, home: Home, *, number: int = 0) -> None:
        self.home = home
        self.directory: ReplicaDirectory = opened(home)
        self.following = Following(SHARD, self.directory, number=number, is_proven=False)
        self.number = number

    def hear(
        self, message: LeaderMessage, body: bytes = b"", *, route: bytes = ROUTE
    ) -> list[tuple[bytes, MemberMessage]]:
        self.following.receive(route, message, body, NOW)
        return self.said()

    def write(self) -> list[tuple[bytes, MemberMessage]]:
        """What was gathered comes to the disk."""
        group = self.following.commit()
        assert group is not None
        self.directory.log.write(group)
        self.following.written(group)
        return self.said()

    def said(self) -> list[tuple[bytes, MemberMessage]]:
        outgoing, self.following.outgoing = self.following.outgoing, []
        said: list[tuple[bytes, MemberMessage]] = []
        for route, frames in outgoing:
            message, _ = decode_replica(frames)
            assert isinstance(message, MemberMessage)
            said.append((route, message))
        return said

    def has(
        self, synced: int, held: int, *, is_full: bool = False, round: int = 0
    ) -> list[tuple[bytes, Appended]]:
        """What it says when it has so much, to the leader of epoch 1."""
        epoch, end = LeaderEpoch(1), Serial(held)
        said = Appended(SHARD, epoch, Serial(synced), end, is_full, self.answer(), round)
        return [(ROUTE, said)]

    def appended(
        self, synced: int, held: int, *, is_full: bool = False, round: int = 0
    ) -> Appended:
        return Appended(
            SHARD, LeaderEpoch(1), Serial(synced), Serial(held), is_full, self.answer(), round
        )

    def answer(self) -> AnswerNumber:
        """Of its next answer."""
        self.number += 1
        return AnswerNumber(self.directory.life, self.number)

    def misses(self, epoch: int = 1) -> tuple[bytes, Mismatch]:
        starts = self.directory.epochs().starts
        tail = place(self.directory.log.newest)
        return ROUTE, Mismatch(SHARD, LeaderEpoch(epoch), tail, starts, self.answer())


@pytest.fixture
def leader() -> LeaderLog:
    return LeaderLog(topics=3)


@pytest.fixture
def follows(leader: LeaderLog) -> Follows:
    """It has nothing yet."""
    return Follows(leader.new_home())


def cut(follows: Follows, serial: int) -> Cut:
    return Cut(SHARD, LeaderEpoch(2), follows.directory.tail, Serial(serial))


def refill(leader: LeaderLog, tail: Place, epoch: int = 1) -> RefillBegin:
    pinned = leader.log.pin()
    files = tuple(RefillFile(each.name, each.size, 0) for each in pinned.files)
    pinned.release()
    return RefillBegin(SHARD, LeaderEpoch(epoch), tail, place(leader.log.newest), files)


# ------------------------------------------------------------------ frames


def test_nothing_is_said_before_a_leader_speaks(leader: LeaderLog) -> None:
    assert Follows(leader.own_home()).said() == []


def test_frames_are_acknowledged_once_they_are_on_the_disk(
    leader: LeaderLog, follows: Follows
) -> None:
    assert follows.hear(*leader.append()) == []
    assert follows.directory.tail == place(leader.log.newest)
    assert follows.write() == follows.has(4, 4)
    assert follows.following.commit() is None
    assert follows.following.heard_at == NOW


def test_a_heartbeat_is_answered_at_once_with_what_is_synced_and_its_round(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.hear(*leader.append())
    assert follows.hear(*leader.append(4, round=3)) == follows.has(0, 4, round=3)
    assert follows.write() == follows.has(4, 4, round=3)


def test_what_recovery_found_is_synced(leader: LeaderLog) -> None:
    follows = Follows(leader.own_home())
    append = Append(SHARD, LeaderEpoch(1), follows.directory.tail, 0, Serial(0))
    assert follows.hear(append) == follows.has(4, 4)


def test_frames_that_are_there_already_are_passed_over(leader: LeaderLog, follows: Follows) -> None:
    follows.hear(*leader.append(upto=2))
    follows.write()
    follows.said()
    follows.number = 1
    follows.hear(*leader.append(after=1))
    assert follows.write() == follows.has(4, 4)
    assert follows.hear(*leader.append(after=1)) == follows.has(4, 4)
    assert follows.following.commit() is None


def test_what_is_committed_and_synced_is_in_the_state_at_the_end_of_a_turn(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.hear(*leader.append(commit=3))
    follows.following.apply()
    assert topics(follows.directory) == []
    follows.write()
    assert topics(follows.directory) == []  # the answer goes first: the leader waits for it
    follows.following.apply()
    assert topics(follows.directory) == [1, 2]
    follows.hear(*leader.append(4, commit=9))
    follows.following.apply()
    assert topics(follows.directory) == [1, 2, 3]


def test_answers_go_on_from_the_number_of_the_part_before(leader: LeaderLog) -> None:
    follows = Follows(leader.new_home(), number=41)
    follows.hear(*leader.append())
    ((_, said),) = follows.write()
    assert isinstance(said, Appended)
    assert said.answered.number == 42


def test_frames_that_do_not_follow_are_a_mismatch(leader: LeaderLog, follows: Follows) -> None:
    assert follows.hear(*leader.append(2)) == [follows.misses()]
    assert follows.following.commit() is None


def test_damaged_frames_change_nothing_and_are_not_answered(
    leader: LeaderLog, follows: Follows
) -> None:
    append, frames = leader.append()
    damaged = bytearray(frames)
    damaged[-1] ^= 1
    assert follows.hear(append, bytes(damaged)) == []
    assert follows.hear(append, frames[:-5]) == []
    assert follows.directory.log.last_serial == 0
    assert follows.following.commit() is None


def test_another_number_of_frames_than_announced_is_refused(
    leader: LeaderLog, follows: Follows
) -> None:
    append, _ = leader.append()
    _, fewer = leader.append(upto=2)
    assert follows.hear(append, fewer) == []
    assert follows.directory.log.last_serial == 0


def test_a_full_disk_is_said_and_nothing_is_appended(leader: LeaderLog, follows: Follows) -> None:
    follows.hear(*leader.append(upto=2))
    follows.write()
    follows.number = 1
    disk = follows.home.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.capacity = 0
    leader.write(*(topic(number) for number in range(4, 40)))
    assert follows.hear(*leader.append(2)) == follows.has(2, 2, is_full=True)
    assert follows.directory.log.last_serial == 2


def test_it_is_full_while_too_much_waits_for_the_disk(
    leader: LeaderLog, follows: Follows, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, frames = leader.append()
    monkeypatch.setattr(following_module, "GATHERED_BYTES_MAX", len(frames))
    first, some = leader.append(upto=3)
    follows.hear(first, some)
    assert not follows.following.is_full
    follows.hear(append, frames)  # one of them is new
    assert follows.following.is_full
    group = follows.following.commit()
    assert group is not None
    assert follows.following.is_full
    follows.directory.log.write(group)
    follows.following.written(group)
    assert not follows.following.is_full


# ------------------------------------------------------------------ leaders


def test_a_higher_epoch_is_promised_on_the_disk_before_it_is_answered(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.hear(*leader.append())
    promised = PromisedEpoch(follows.home.disk, follows.home.directory)
    assert promised.leader_epoch == 1
    later = Append(SHARD, LeaderEpoch(6), place(leader.log.newest), 0, Serial(0))
    ((_, said),) = follows.hear(later)
    assert isinstance(said, Appended)
    assert said.leader_epoch == 6
    assert PromisedEpoch(follows.home.disk, follows.home.directory).leader_epoch == 6


def test_a_lower_epoch_is_refused_on_the_route_it_came_on(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.directory.promise(LeaderEpoch(5))
    follows.following.has_promised(LeaderEpoch(5))
    stale = Stale(SHARD, LeaderEpoch(1), LeaderEpoch(5))
    assert follows.hear(*leader.append(), route=b"old") == [(b"old", stale)]
    assert follows.directory.log.last_serial == 0


def test_each_leader_is_answered_where_its_frames_came_from_and_where_it_was_heard_last(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.hear(*leader.append(), route=b"before")
    follows.hear(*leader.append(4), route=ROUTE)
    follows.number = 1
    told = follows.write()
    assert told[:1] == follows.has(4, 4)
    assert told == [(ROUTE, told[0][1]), (b"before", told[0][1])]
    tail = follows.directory.tail
    for epoch, route in ((2, b"two"), (3, b"three")):
        append = Append(SHARD, LeaderEpoch(epoch), tail, 0, Serial(0))
        assert [each for each, _ in follows.hear(append, route=route)] == [route]
    refused = follows.hear(Append(SHARD, LeaderEpoch(2), tail, 0, Serial(0)), route=b"moved")
    assert refused == [(b"moved", Stale(SHARD, LeaderEpoch(2), LeaderEpoch(3)))]
    assert follows.hear(*leader.append(4)) == [
        (ROUTE, Stale(SHARD, LeaderEpoch(1), LeaderEpoch(3)))
    ]


# ------------------------------------------------------------------ what ends it


def test_a_cut_closes_the_log_and_nothing_more_is_heard(leader: LeaderLog) -> None:
    follows = Follows(leader.own_home())
    assert follows.hear(cut(follows, 2)) == []
    assert follows.following.closing == Reopen(Serial(2))
    assert PromisedEpoch(follows.home.disk, follows.home.directory).leader_epoch == 2
    tail = follows.directory.tail
    assert follows.hear(Append(SHARD, LeaderEpoch(2), tail, 0, Serial(4))) == []
    follows.following.apply()
    assert topics(follows.directory) == []
    follows.hear(cut(follows, 1))
    assert follows.following.closing == Reopen(Serial(2))


def test_once_it_closes_nothing_is_gathered_and_what_is_written_is_not_acknowledged(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.hear(*leader.append(upto=3))
    group = follows.following.commit()
    assert group is not None
    follows.hear(*leader.append(3))
    # A later leader, whose log parts from this one.
    later = LeaderEpoch(2)
    follows.hear(Append(SHARD, later, Place(Serial(9), later, 1), 0, Serial(0)))
    follows.hear(cut(follows, 1))
    follows.said()
    assert follows.following.commit() is None
    follows.directory.log.write(group)
    follows.following.written(group)
    assert follows.said() == []
    assert follows.directory.log.durable_serial == 3


def test_a_late_cut_is_for_another_end(leader: LeaderLog) -> None:
    follows = Follows(leader.own_home())
    other = Cut(SHARD, LeaderEpoch(2), Place(Serial(3), LeaderEpoch(1), 1), Serial(2))
    assert follows.hear(other) == [follows.misses(2)]
    assert follows.following.closing is None


def test_a_refill_closes_the_log_for_the_leader_that_wants_it(leader: LeaderLog) -> None:
    busy = LeaderLog(topics=9)
    follows = Follows(leader.new_home())
    begin = refill(busy, follows.directory.tail)
    assert follows.hear(begin, route=b"filler") == []
    assert follows.following.closing == BeginRefill(begin)
    assert follows.following.closing_route == b"filler"


def test_a_part_of_a_refill_that_is_over_is_passed_over(follows: Follows) -> None:
    assert follows.hear(RefillPart(SHARD, LeaderEpoch(1), "log/1.log", 0), b"bytes") == []
    assert follows.following.closing is None


def test_the_same_record_with_another_chain_value_halts_it(leader: LeaderLog) -> None:
    follows = Follows(leader.own_home())
    tail = follows.directory.tail
    other = Place(tail.serial, tail.leader_epoch, tail.chain ^ 1)
    assert follows.hear(Append(SHARD, LeaderEpoch(1), other, 0, Serial(0))) == []
    closing = follows.following.closing
    assert isinstance(closing, Halt)
    assert "one of the two disks changed it" in closing.why


def test_a_new_leaders_first_record_is_known_before_it_is_committed(
    leader: LeaderLog, follows: Follows
) -> None:
    follows.hear(*leader.append())
    follows.write()
    leader.epoch = LeaderEpoch(3)
    leader.lead(3)
    leader.write(topic(4))
    follows.hear(*leader.append(4))
    assert follows.directory.epochs().starts == epoch_starts((1, 1), (3, 5))
    ((_, said),) = follows.write()
    assert isinstance(said, Appended)
    assert (said.leader_epoch, said.synced) == (3, 6)
