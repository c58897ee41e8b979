"""What a leader knows of one other replica: by its newest answer, of the directory that it has."""

import pytest

from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId, ShardId
from oncemq.protocol.replicas.messages import AnswerNumber, Appended, Life
from oncemq.replication.remote_member import MemberStage, RemoteMember
from oncemq.replication.view import SECOND

PATIENCE = Micros(2 * SECOND)
NOW = Micros(10 * SECOND)
FIRST, SECOND_DISK = Life(b"one", 3), Life(b"two", 1)


@pytest.fixture
def remote() -> RemoteMember:
    member = RemoteMember(ServerId("b"), Serial(10), NOW, NOW, NOW, Serial(10))
    assert member.hears(AnswerNumber(FIRST, 5), NOW, PATIENCE)
    return member


def hears(remote: RemoteMember, life: Life, number: int, *, at: int = NOW) -> bool:
    return remote.hears(AnswerNumber(life, number), Micros(at), PATIENCE)


def has(remote: RemoteMember, serial: int, *, is_full: bool = False) -> None:
    """It says that it has everything up to there, of 20 records."""
    end, answered = Serial(serial), AnswerNumber(FIRST, 9)
    said = Appended(ShardId(1), LeaderEpoch(1), end, end, is_full, answered, 3)
    remote.acknowledged(said, last=Serial(20), kept_from=Serial(1), now=NOW)


def test_an_answer_is_heard_once_and_in_order(remote: RemoteMember) -> None:
    later = NOW + SECOND
    assert not hears(remote, FIRST, 5, at=later)  # a copy
    assert not hears(remote, FIRST, 4, at=later)
    assert remote.heard_at == NOW
    assert hears(remote, FIRST, 6, at=later)
    assert remote.heard_at == later


def test_a_later_opening_begins_to_count_anew(remote: RemoteMember) -> None:
    again = Life(FIRST.incarnation, 4)
    assert hears(remote, again, 1)
    assert not hears(remote, FIRST, 99)


def test_another_directory_has_nothing(remote: RemoteMember) -> None:
    has(remote, 15)
    assert (remote.acked, remote.round, remote.stage) == (15, 3, MemberStage.STREAMING)
    assert hears(remote, SECOND_DISK, 1)
    assert (remote.incarnation, remote.acked, remote.round) == (b"two", 0, 0)
    assert (remote.stage, remote.after, remote.caught_up_at) == (MemberStage.UNMATCHED, 0, None)


def test_what_was_under_way_to_a_full_disk_was_not_taken(remote: RemoteMember) -> None:
    has(remote, 12)
    remote.sent(Serial(18), 500, NOW)
    assert (remote.after, remote.in_flight_bytes) == (18, 500)
    has(remote, 12, is_full=True)
    assert (remote.after, remote.in_flight_bytes, remote.is_full) == (12, 0, True)


def test_the_directory_that_is_gone_is_back_only_when_the_other_is_silent(
    remote: RemoteMember,
) -> None:
    assert hears(remote, SECOND_DISK, 1)
    assert not hears(remote, FIRST, 6, at=NOW + PATIENCE)
    assert remote.incarnation == b"two"
    assert hears(remote, FIRST, 7, at=NOW + PATIENCE + 1)
    assert remote.incarnation == b"one"
