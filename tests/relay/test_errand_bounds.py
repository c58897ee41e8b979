"""The rules of one topic at their bounds, and whole values of what they decide."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import msgspec
import pytest

from oncemq.protocol.replies import PutAccepted, RefusedReply, Resumed
from oncemq.relay.topic_relay import (
    AskStanding,
    NumberRows,
    Row,
    Send,
    StandingChange,
    TopicRelay,
    TopicStanding,
)
from tests.relay.test_errand import UNDER_WAY, accepted, committed, sure

ROWS = [Row(number, 1, 10) for number in (21, 22, 23, 24)]
STOPPED = TopicStanding("orders", b"p", 7, 10, (5, 6), 11, 12, "because", 3)


def test_what_a_person_decides_is_a_change_like_any_other() -> None:
    assert STOPPED.anew(b"q") == TopicStanding(
        "orders", b"q", last_place=12, version=4, newest="0@0"
    )
    assert STOPPED.again() == TopicStanding("orders", b"p", 7, 10, (5, 6), 11, 12, "", 4)


@pytest.mark.parametrize(
    ("acknowledged", "last_place", "published"), [(0, 0, False), (1, 0, True), (0, 1, True)]
)
def test_one_row_is_enough_to_have_published(
    acknowledged: int, last_place: int, published: bool
) -> None:
    standing = TopicStanding("orders", b"p", acknowledged=acknowledged, last_place=last_place)
    assert standing.has_published is published


@pytest.mark.parametrize(
    ("inherited", "sends", "stops"),
    [(False, 0, False), (False, 1, False), (False, 2, True), (True, 0, True)],
)
def test_rows_go_into_another_topic_only_if_no_copy_can_be_in_the_old_one(
    inherited: bool, sends: int, stops: bool
) -> None:
    errand = sure(UNDER_WAY)
    errand.inherited, errand.sends = inherited, sends
    errand.refused(RefusedReply("topic_changed", ""))
    errand.resumed(Resumed(8, 0))
    assert bool(committed(errand).stopped) is stops
    assert errand.next() == (None if stops else Send(1, (5, 6)))
    assert errand.may_be_stored is stops


def test_rows_are_under_way_until_they_are_answered() -> None:
    answers: list[Resumed | PutAccepted | RefusedReply] = [
        Resumed(7, 10, permit=4), Resumed(7, 9, permit=4), accepted(), accepted(stored=False),
        RefusedReply("storage_full", ""), RefusedReply("unwanted", ""),
        RefusedReply("discarded", ""), RefusedReply("sequence_gap", ""),
        RefusedReply("not_allowed", ""),
    ]  # fmt: skip
    for reply in answers:
        errand = sure(UNDER_WAY)
        errand.under_way = True
        match reply:
            case Resumed():
                errand.resumed(reply)
                assert errand.permit == 4
            case RefusedReply():
                errand.refused(reply)
            case _:
                errand.accepted(reply)
        assert not errand.under_way, reply


@pytest.mark.parametrize("code", ["topic_changed", "sequence_gap", "outdated"])
def test_a_refusal_is_of_the_rows_it_was_said_of(code: str) -> None:
    """Those behind them are not rejected for it, when the server is asked again."""
    errand = sure(UNDER_WAY, sets_aside=True)
    errand.refused(RefusedReply("limit", "too much"))
    errand.resumed(Resumed(7, 12))
    errand.accepted(accepted(4, duplicate=True))
    committed(errand)
    errand.plan(ROWS, rows_max=2, bytes_max=100)
    committed(errand)
    errand.refused(RefusedReply(code, ""))
    assert isinstance(errand.next(), AskStanding)
    errand.resumed(Resumed(7, 12))
    assert (errand.change, errand.next()) == (None, Send(13, (21, 22)))


def test_rows_among_which_one_was_refused_go_one_by_one_and_those_behind_them_together() -> None:
    errand = sure(UNDER_WAY, sets_aside=True)
    errand.refused(RefusedReply("limit", "too much"))
    errand.resumed(Resumed(7, 10))
    assert committed(errand).planned == ()
    for count, planned in ((1, (21,)), (0, (22,)), (0, (23, 24))):
        assert isinstance(errand.next(), NumberRows)
        errand.plan(ROWS[planned[0] - 21 :], rows_max=9, bytes_max=100)
        assert committed(errand).planned == planned
        assert errand.singly == count
        errand.accepted(accepted())
        committed(errand)


@pytest.mark.parametrize(
    ("deleted_after", "stopped"),
    [(0, "while 2 rows were under way to it"), (1, "had numbers up to 1 of this outbox then"),
     (9, "had numbers up to 9 of this outbox then"), (10, ""),
     (11, "while 2 rows were under way to it"), (12, "")],
)  # fmt: skip
def test_how_far_the_deleted_topic_had_come_decides(deleted_after: int, stopped: str) -> None:
    errand = TopicRelay(UNDER_WAY)
    errand.resumed(Resumed(8, 0, deleted_after=deleted_after))
    after = committed(errand)
    assert stopped in after.stopped
    assert bool(after.stopped) is bool(stopped)
    if not stopped:  # those that it has are published, those that it has not are under way
        assert (after.topic_id, after.acknowledged) == (8, 0)
        assert after.planned == ((5, 6) if deleted_after == 10 else ())


def test_what_is_decided_is_a_whole_change() -> None:
    standing = TopicStanding("orders", b"p", 7, 10, (5, 6), 11, 9, "unwanted: …", 3)
    receipt = sure(standing)
    receipt.accepted(accepted())
    free = TopicStanding("orders", b"p", 7, 12, (), 11, 11, "", 4, "12@0")
    assert receipt.change == StandingChange(standing, free, freed=(5, 6))
    planned = sure(TopicStanding("orders", b"p", 7, 10, (), 11, 9, version=3))
    planned.plan([Row(4, 8, 10), Row(3, 9, 10)], rows_max=9, bytes_max=20)
    numbered = TopicStanding("orders", b"p", 7, 10, (4, 3), 9, 9, version=4)
    assert planned.change == StandingChange(planned.standing, numbered)
    poison = sure(TopicStanding("orders", b"p", 7, 10, (5,), 11, 9, version=3), sets_aside=True)
    poison.refused(RefusedReply("limit", "too much"))
    poison.resumed(Resumed(7, 10))
    without = msgspec.structs.replace(poison.standing, planned=(), version=4)
    assert poison.change == StandingChange(
        poison.standing, without, set_aside=(5,), reason="limit: too much"
    )


@pytest.mark.parametrize(("sends", "left"), [(1, 0), (2, 2), (3, 3)])
def test_of_rows_that_nobody_wants_each_copy_but_the_answered_one_counts(
    sends: int, left: int
) -> None:
    errand = sure(UNDER_WAY)
    errand.inherited, errand.sends = False, sends
    errand.refused(RefusedReply("unwanted", ""))
    assert (errand.sends, errand.may_be_stored) == (left, left > 0)
    assert (errand.put_off, errand.put_offs) == (True, 1)


def test_one_number_of_the_deleted_topic_says_that_the_others_are_nowhere() -> None:
    errand = TopicRelay(TopicStanding("orders", b"p", 7, 1, (5, 6)))
    errand.resumed(Resumed(8, 0, deleted_after=1))
    assert committed(errand).stopped == ""
    assert (errand.sure, errand.inherited, errand.sends) == (True, False, 0)


def test_rows_that_were_discarded_are_not_sent_again_at_once() -> None:
    errand = sure(UNDER_WAY)
    errand.refused(RefusedReply("discarded", ""))
    committed(errand)
    assert (errand.put_off, errand.put_offs, errand.next()) == (True, 1, None)


def test_who_stopped_asks_before_anything_else() -> None:
    errand = sure(UNDER_WAY)
    errand.missing()
    committed(errand)
    assert not errand.sure
