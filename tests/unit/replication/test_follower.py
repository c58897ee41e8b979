"""A follower: what it appends, answers, cuts and applies."""

from oncemq.protocol.names import LeaderEpoch, Serial, ShardId
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Append,
    Appended,
    Cut,
    Life,
    Mismatch,
    Place,
    RefillBegin,
    Stale,
)
from oncemq.replication.actions import (
    AnswerLeader,
    AppendFrames,
    ApplyTo,
    BeginRefill,
    FollowerAction,
    Halt,
    PromiseEpoch,
    Reopen,
)
from oncemq.replication.follower import Follower

SHARD = ShardId(7)
LIFE = Life(b"b", 3)
START = (EpochStart(LeaderEpoch(1), Serial(1)),)


def place(serial: int, epoch: int = 1) -> Place:
    return Place(Serial(serial), LeaderEpoch(epoch), 100 * epoch + serial)


def follower(last: int = 5, *, promised: int = 1, applied: int = 0) -> Follower:
    return Follower(
        SHARD,
        LIFE,
        promised=LeaderEpoch(promised),
        tail=place(last),
        starts=LeaderEpochs(START),
        applied=Serial(applied),
    )


def append(
    who: Follower, after: int, count: int, *, epoch: int = 1, commit: int = 0, room: bool = True
) -> list[FollowerAction]:
    message = Append(SHARD, LeaderEpoch(epoch), place(after), count, Serial(commit))
    return who.append(message, place(after + count), (), has_room=room)


def appended(number: int, held: int, synced: int = 0, *, epoch: int = 1, full: bool = False):
    answered = AnswerNumber(LIFE, number)
    return AnswerLeader(
        Appended(SHARD, LeaderEpoch(epoch), Serial(synced), Serial(held), full, answered)
    )


def mismatch(number: int, last: int, epoch: int = 1) -> AnswerLeader:
    answered = AnswerNumber(LIFE, number)
    return AnswerLeader(Mismatch(SHARD, LeaderEpoch(epoch), place(last), START, answered))


def test_frames_that_follow_are_appended_and_acknowledged_when_they_are_synced() -> None:
    who = follower()
    assert append(who, 5, 2) == [AppendFrames(0)]
    assert who.synced(Serial(7)) == [appended(1, 7, 7)]


def test_a_copy_is_acknowledged_again_and_what_overlaps_is_skipped() -> None:
    who = follower()
    append(who, 5, 2)
    assert append(who, 5, 2) == [appended(1, 7)]
    assert append(who, 6, 3) == [AppendFrames(1)]
    assert who.tail == place(9)


def test_a_gap_is_answered_with_where_the_log_ends() -> None:
    who = follower()
    append(who, 5, 1)
    assert append(who, 8, 1) == [mismatch(1, 6)]


def test_a_log_that_was_not_matched_is_not_taken_for_the_leaders() -> None:
    who = follower()
    assert append(who, 3, 1) == [mismatch(1, 5)]
    assert who.synced(Serial(5)) == []


def test_a_higher_epoch_is_promised_first_and_a_lower_one_refused() -> None:
    who = follower()
    assert append(who, 5, 1, epoch=4)[:2] == [PromiseEpoch(LeaderEpoch(4)), AppendFrames(0)]
    stale = AnswerLeader(Stale(SHARD, LeaderEpoch(3), LeaderEpoch(4)))
    assert append(who, 6, 1, epoch=3) == [stale]
    assert who.cut(Cut(SHARD, LeaderEpoch(3), place(6), Serial(2))) == [stale]
    refill = RefillBegin(SHARD, LeaderEpoch(3), place(6), place(9), ())
    assert who.refill(refill) == [stale]


def test_nothing_is_acknowledged_in_an_epoch_before_the_log_matched_there() -> None:
    who = follower()
    append(who, 5, 1)
    who.has_promised(LeaderEpoch(2))
    assert who.synced(Serial(6)) == []


def test_only_what_is_committed_and_synced_is_applied() -> None:
    who = follower()
    assert append(who, 5, 2, commit=6) == [AppendFrames(0)]
    assert who.synced(Serial(5)) == [appended(1, 7, 5), ApplyTo(Serial(5))]
    assert who.synced(Serial(7)) == [appended(2, 7, 7), ApplyTo(Serial(6))]
    assert append(who, 7, 0, commit=99) == [appended(3, 7, 7), ApplyTo(Serial(7))]


def test_a_full_disk_is_said_and_takes_nothing() -> None:
    who = follower()
    assert append(who, 5, 2, room=False) == [appended(1, 5, full=True)]
    assert append(who, 5, 0, room=True) == [appended(2, 5)]


def test_a_cut_is_for_the_end_it_names() -> None:
    assert follower().cut(Cut(SHARD, LeaderEpoch(1), place(5), Serial(3))) == [Reopen(Serial(3))]
    late = Cut(SHARD, LeaderEpoch(1), place(6), Serial(3))
    assert follower().cut(late) == [mismatch(1, 5)]


def test_a_matched_log_is_not_cut() -> None:
    who = follower()
    append(who, 5, 1)
    cut = Cut(SHARD, LeaderEpoch(1), place(6), Serial(3))
    assert who.cut(cut) == [mismatch(1, 6)]


def test_what_is_committed_is_not_cut() -> None:
    (halt,) = follower(applied=4).cut(Cut(SHARD, LeaderEpoch(1), place(5), Serial(3)))
    assert isinstance(halt, Halt)
    assert "up to 4 all is committed" in halt.why


def test_the_same_record_with_other_bytes_halts() -> None:
    message = Append(SHARD, LeaderEpoch(1), Place(Serial(5), LeaderEpoch(1), 1), 0, Serial(0))
    (halt,) = follower().append(message, message.previous, (), has_room=True)
    assert isinstance(halt, Halt)
    assert "one of the two disks changed it" in halt.why


def test_a_refill_is_for_the_end_it_names() -> None:
    begin = RefillBegin(SHARD, LeaderEpoch(1), place(5), place(40), ())
    assert follower().refill(begin) == [BeginRefill(begin)]
    assert follower(6).refill(begin) == [mismatch(1, 6)]


def test_a_log_that_is_longer_than_the_leaders_files_is_replaced_by_them() -> None:
    begin = RefillBegin(SHARD, LeaderEpoch(1), place(5), place(4), ())
    assert follower(applied=3).refill(begin) == [BeginRefill(begin)]


def test_what_is_committed_is_not_replaced_by_less() -> None:
    (halt,) = follower(applied=4).refill(RefillBegin(SHARD, LeaderEpoch(1), place(5), place(3), ()))
    assert isinstance(halt, Halt)
    assert "up to 4 all is committed" in halt.why


def test_who_has_what_its_leader_committed_in_its_own_epoch_is_proven() -> None:
    who = follower()
    append(who, 5, 0, epoch=2, commit=5)
    who.synced(Serial(5))
    assert not who.is_proven  # an earlier leader may have got further
    message = Append(SHARD, LeaderEpoch(2), place(5), 1, Serial(6))
    begins = (EpochStart(LeaderEpoch(2), Serial(6)),)
    who.append(message, place(6, 2), begins, has_room=True)
    who.synced(Serial(6))
    assert who.is_proven
