"""The rules of one topic, one by one: above all, what stops it."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.protocol.replies import NO_OFFSET, PutAccepted, RefusedReply, Resumed
from oncemq.relay.tables import format_ids, parse_ids
from oncemq.relay.topic_relay import AskStanding, NumberRows, Row, Send, TopicRelay, TopicStanding

ROWS = [Row(5, 1, 10), Row(6, 1, 10), Row(4, 2, 10)]
UNDER_WAY = TopicStanding("orders", b"p", topic_id=7, acknowledged=10, planned=(5, 6), version=3)


def committed(errand: TopicRelay) -> TopicStanding:
    assert errand.change is not None
    assert errand.change.after.version == errand.change.before.version + 1
    errand.committed()
    return errand.standing


def sure(standing: TopicStanding, **how: bool) -> TopicRelay:
    """An errand that the server has confirmed."""
    errand = TopicRelay(standing, **how)
    errand.resumed(Resumed(standing.topic_id, standing.acknowledged))
    assert errand.change is None
    return errand


def accepted(first: int = 0, *, stored: bool = True, duplicate: bool = False) -> PutAccepted:
    return PutAccepted(7, first, 2, stored, duplicate, 0)


def test_the_way_of_two_rows() -> None:
    errand = TopicRelay(TopicStanding("orders", b"p"))
    assert isinstance(errand.next(), AskStanding)
    errand.resumed(Resumed(0, 0))
    assert isinstance(errand.next(), NumberRows)
    errand.plan(ROWS, rows_max=2, bytes_max=100)
    assert errand.next() is None, "the plan is not committed yet"
    assert committed(errand).planned == (5, 6)
    assert errand.next() == Send(1, (5, 6))
    errand.accepted(accepted())
    assert errand.change is not None
    assert errand.change.freed == (5, 6)
    assert errand.next() is None, "the receipt is not committed yet"
    after = committed(errand)
    assert (after.topic_id, after.acknowledged, after.planned) == (7, 2, ())
    assert isinstance(errand.next(), NumberRows)


@pytest.mark.parametrize(("rows_max", "bytes_max", "planned"), [
    (3, 100, (5, 6, 4)), (1, 100, (5,)), (3, 20, (5, 6)), (3, 5, (5,)),
])  # fmt: skip
def test_a_plan_keeps_its_bounds(rows_max: int, bytes_max: int, planned: tuple[int, ...]) -> None:
    errand = sure(TopicStanding("orders", b"p"))
    errand.plan(ROWS, rows_max=rows_max, bytes_max=bytes_max)
    assert committed(errand).planned == planned


def test_nothing_waits() -> None:
    errand = sure(TopicStanding("orders", b"p"))
    errand.plan([], rows_max=2, bytes_max=100)
    assert errand.change is None


@pytest.mark.parametrize("last", [10, 12])
def test_after_a_crash_the_same_rows_are_sent_under_the_same_numbers(last: int) -> None:
    errand = TopicRelay(UNDER_WAY)
    errand.resumed(Resumed(7, last))
    assert errand.next() == Send(11, (5, 6))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Resumed(7, 9), "messages are missing there"),
        (Resumed(7, 11), "older copy"),
        (Resumed(7, 13), "older copy"),
        (Resumed(8, 0), "deleted, or made again"),
        (Resumed(0, 0), "deleted, or made again"),
        (Resumed(0, 0, lost=True), "messages are missing there"),
        (Resumed(8, 0, lost=True), "messages are missing there"),
        (Resumed(8, 0, deleted_after=9), "had numbers up to 9"),
    ],
)
def test_what_does_not_fit_stops_the_topic(reply: Resumed, words: str) -> None:
    errand = TopicRelay(UNDER_WAY)
    errand.resumed(reply)
    assert words in committed(errand).stopped
    assert errand.standing.planned == (5, 6), "nothing is let go of"
    assert errand.next() is None


def test_a_topic_made_again_while_nothing_is_under_way_is_numbered_from_the_start() -> None:
    errand = TopicRelay(TopicStanding("orders", b"p", topic_id=7, acknowledged=10))
    errand.resumed(Resumed(8, 0))
    after = committed(errand)
    assert (after.topic_id, after.acknowledged, after.stopped) == (8, 0, "")


@pytest.mark.parametrize("topic_id", [0, 8])
def test_rows_that_the_deleted_topic_had_are_published(topic_id: int) -> None:
    errand = TopicRelay(UNDER_WAY)
    errand.resumed(Resumed(topic_id, 0, deleted_after=12))
    change = errand.change
    assert change is not None
    assert change.freed == (5, 6)
    after = committed(errand)
    assert (after.topic_id, after.acknowledged, after.planned) == (topic_id, 0, ())
    assert isinstance(errand.next(), NumberRows)


def test_rows_that_the_deleted_topic_did_not_have_go_into_the_new_one() -> None:
    errand = TopicRelay(UNDER_WAY)
    errand.resumed(Resumed(8, 0, deleted_after=10))
    after = committed(errand)
    assert (after.topic_id, after.acknowledged, after.stopped) == (8, 0, "")
    assert errand.next() == Send(1, (5, 6))


def test_a_topic_that_the_server_lost_stops_though_nothing_is_under_way() -> None:
    errand = TopicRelay(TopicStanding("orders", b"p", topic_id=7, acknowledged=10))
    errand.resumed(Resumed(8, 0, lost=True))
    assert "messages of this outbox that it has acknowledged, 10 in it" in committed(errand).stopped
    assert errand.next() is None


@pytest.mark.parametrize(("last_place", "stops"), [(3, True), (0, False)])
def test_a_lost_topic_without_rows_stops_where_one_of_its_name_had_some(
    last_place: int, stops: bool
) -> None:
    """Those may be lost as well: the topic before is there again, as it was then."""
    errand = TopicRelay(TopicStanding("orders", b"p", topic_id=7, last_place=last_place))
    errand.resumed(Resumed(6, 0, lost=True))
    assert bool(committed(errand).stopped) is stops


def test_rows_that_met_the_new_topic_first_go_into_it() -> None:
    """One copy was sent, and it was answered: no other can be in the old topic."""
    errand = sure(TopicStanding("orders", b"p", topic_id=7, acknowledged=10))
    errand.plan(ROWS, rows_max=2, bytes_max=100)
    committed(errand)
    errand.sends = 1
    errand.refused(RefusedReply("topic_changed", ""))
    assert isinstance(errand.next(), AskStanding)
    errand.resumed(Resumed(8, 0))
    assert errand.next() is None, "the new numbers are not committed yet"
    committed(errand)
    assert errand.next() == Send(1, (5, 6))


def test_a_duplicate_that_the_server_has_long_forgotten_is_not_ours() -> None:
    errand = sure(UNDER_WAY)
    errand.accepted(accepted(NO_OFFSET, duplicate=True))
    assert errand.change is not None
    assert errand.change.freed == ()
    assert "another copy of this database" in committed(errand).stopped


def test_the_receipt_of_a_duplicate_frees_the_rows() -> None:
    errand = sure(UNDER_WAY)
    errand.accepted(accepted(4, duplicate=True))
    assert errand.change is not None
    assert errand.change.freed == (5, 6)


NOT_STORED = [
    accepted(NO_OFFSET, stored=False),
    accepted(NO_OFFSET, stored=False, duplicate=True),
]


@pytest.mark.parametrize("reply", NOT_STORED)
def test_rows_that_were_discarded_are_freed_where_that_was_asked_for(reply: PutAccepted) -> None:
    errand = sure(UNDER_WAY, required=False)
    errand.accepted(reply)
    assert errand.change is not None
    assert errand.change.freed == (5, 6)


@pytest.mark.parametrize("reply", [*NOT_STORED, RefusedReply("discarded", "")])
def test_rows_that_were_discarded_get_other_numbers(reply: PutAccepted | RefusedReply) -> None:
    errand = sure(UNDER_WAY)
    if isinstance(reply, RefusedReply):
        errand.refused(reply)
    else:
        errand.accepted(reply)
    assert errand.change is not None
    assert errand.change.freed == ()
    after = committed(errand)
    assert (after.acknowledged, after.planned, after.waits) == (12, (), True)
    errand.put_off = False
    assert isinstance(errand.next(), NumberRows)


def test_rows_that_nobody_would_get_wait_and_go_out_by_themselves() -> None:
    errand = sure(UNDER_WAY)
    errand.sends = 1
    errand.refused(RefusedReply("unwanted", "…"))
    assert errand.change is not None
    assert errand.change.freed == ()
    after = committed(errand)
    assert (after.planned, after.waits) == ((5, 6), True)
    assert "once topic create orders" in after.stopped
    assert errand.next() is None
    errand.put_off = False
    assert errand.next() == Send(11, (5, 6)), "the same rows under the same numbers"
    errand.sends += 1
    errand.refused(RefusedReply("unwanted", "…"))
    assert errand.change is None, "it is said once"
    errand.put_off = False
    errand.accepted(accepted())
    assert committed(errand).stopped == ""


def test_a_relay_that_finds_a_topic_waiting_tries_it() -> None:
    waiting = TopicStanding("orders", b"p", planned=(5,), stopped="unwanted: …")
    errand = TopicRelay(waiting)
    assert isinstance(errand.next(), AskStanding)
    errand.resumed(Resumed(0, 0))
    assert errand.next() == Send(1, (5,))


def test_a_topic_made_again_while_its_rows_wait_gets_them() -> None:
    """Every copy was answered: none can be in the topic that was deleted."""
    errand = sure(TopicStanding("orders", b"p", topic_id=7, acknowledged=10))
    errand.plan(ROWS, rows_max=2, bytes_max=100)
    committed(errand)
    for _ in range(3):
        errand.put_off = False
        errand.sends += 1
        errand.refused(RefusedReply("unwanted", "…"))
        if errand.change is not None:
            committed(errand)
    errand.put_off = False
    errand.refused(RefusedReply("topic_changed", ""))
    errand.resumed(Resumed(8, 0))
    assert committed(errand).topic_id == 8
    assert errand.next() == Send(1, (5, 6))


def test_waits_between_tries_are_counted_until_a_receipt() -> None:
    errand = sure(UNDER_WAY)
    for _ in range(3):
        errand.refused(RefusedReply("storage_full", ""))
    assert errand.put_offs == 3
    errand.accepted(accepted())
    assert errand.put_offs == 0


def test_a_full_server_is_tried_again_later() -> None:
    errand = sure(UNDER_WAY)
    errand.refused(RefusedReply("storage_full", ""))
    assert errand.next() is None
    errand.put_off = False
    assert errand.next() == Send(11, (5, 6))


def test_a_refusal_stops_the_topic_and_says_why() -> None:
    errand = sure(UNDER_WAY)
    errand.refused(RefusedReply("name_invalid", "no such name"))
    assert committed(errand).stopped == "name_invalid: no such name"


def test_a_refused_row_is_looked_for_and_set_aside() -> None:
    errand = sure(UNDER_WAY, sets_aside=True)
    errand.refused(RefusedReply("not_allowed", "not you"))
    assert isinstance(errand.next(), AskStanding), "another copy may be stored: ask first"
    errand.resumed(Resumed(7, 10))
    assert committed(errand).planned == (), "which of the two?"
    errand.plan(ROWS, rows_max=2, bytes_max=100)
    assert committed(errand).planned == (5,)
    errand.refused(RefusedReply("not_allowed", "not you"))
    errand.resumed(Resumed(7, 10))
    assert errand.change is not None
    assert errand.change.set_aside == (5,)
    assert errand.change.reason == "not_allowed: not you"
    assert committed(errand).acknowledged == 10


def test_a_refused_row_that_is_stored_after_all_is_published() -> None:
    errand = sure(UNDER_WAY, sets_aside=True)
    errand.refused(RefusedReply("limit", ""))
    errand.resumed(Resumed(7, 12))
    assert errand.next() == Send(11, (5, 6))
    errand.accepted(accepted(4, duplicate=True))
    assert committed(errand).acknowledged == 12


def test_other_bytes_under_used_numbers_always_stop_the_topic() -> None:
    errand = sure(UNDER_WAY, sets_aside=True)
    errand.refused(RefusedReply("payload_conflict", "other bytes"))
    assert "payload_conflict" in committed(errand).stopped


def test_a_row_that_cannot_be_sent_stops_the_topic_or_is_set_aside() -> None:
    rows = [Row(5, 1, 10, "too large"), Row(6, 1, 10)]
    errand = sure(TopicStanding("orders", b"p"))
    errand.plan(rows, rows_max=2, bytes_max=100)
    assert committed(errand).stopped == "row 5: too large"
    errand = sure(TopicStanding("orders", b"p"), sets_aside=True)
    errand.plan(rows, rows_max=2, bytes_max=100)
    assert errand.change is not None
    assert errand.change.set_aside == (5,)
    errand = sure(TopicStanding("orders", b"p"))
    errand.plan(rows[::-1], rows_max=2, bytes_max=100)
    assert committed(errand).planned == (6,), "those before it go"


def test_rows_removed_by_another_hand_stop_the_topic() -> None:
    errand = sure(UNDER_WAY)
    errand.missing()
    assert "another hand" in committed(errand).stopped


def test_a_person_lets_it_go_on() -> None:
    errand = TopicRelay(UNDER_WAY)
    errand.resumed(Resumed(7, 99))
    stopped = committed(errand)
    assert stopped.again().stopped == ""
    anew = stopped.anew(b"q")
    assert (anew.producer, anew.acknowledged, anew.topic_id, anew.stopped) == (b"q", 0, 0, "")
    assert anew.planned == (), "what is left of the rows is numbered again"
    errand = TopicRelay(anew)
    errand.resumed(Resumed(7, 0))
    committed(errand)
    assert isinstance(errand.next(), NumberRows)


@given(st.lists(st.integers(1, 1 << 62)))
def test_ids_are_kept_in_their_order(ids: list[int]) -> None:
    assert parse_ids(format_ids(ids)) == tuple(ids)


def test_runs_of_ids_are_short() -> None:
    assert format_ids([5, 6, 7, 3, 9, 10]) == "5-7,3,9-10"
    assert format_ids([]) == ""


NOTED = msgspec.structs.replace(UNDER_WAY, newest="10@500")


@pytest.mark.parametrize(
    "reply",
    [Resumed(7, 10, moment=501), Resumed(7, 12, moment=500, moment_before=501)],
)
def test_the_last_number_stored_at_another_moment_stops_the_topic(reply: Resumed) -> None:
    errand = TopicRelay(NOTED)
    errand.resumed(reply)
    assert "the server has a number 10 of this outbox" in committed(errand).stopped


@pytest.mark.parametrize(
    ("newest", "reply"),
    [
        ("10@500", Resumed(7, 10, moment=500)),
        ("10@500", Resumed(7, 12, moment=501, moment_before=500)),
        ("10@500", Resumed(7, 10)),  # a server from before moments were told
        ("10@500", Resumed(7, 12, moment=501)),  # or that knows just the last one
        ("10@0", Resumed(7, 10, moment=501)),
        ("8@500", Resumed(7, 10, moment=501)),  # an older version went on without a note
        ("", Resumed(7, 10, moment=501)),
    ],
)
def test_the_same_moment_or_none_goes_on(newest: str, reply: Resumed) -> None:
    errand = TopicRelay(msgspec.structs.replace(UNDER_WAY, newest=newest))
    errand.resumed(reply)
    assert errand.change is None
    assert errand.next() == Send(11, (5, 6))


def test_a_receipt_notes_its_moment() -> None:
    errand = sure(NOTED)
    errand.accepted(PutAccepted(7, 0, 2, True, False, 0, 600))
    after = committed(errand)
    assert (after.newest, after.moment) == ("12@600", 600)
    again = after.anew(b"q")
    assert (again.newest, again.moment, again.has_published) == ("0@600", 0, True)
    assert TopicStanding("orders", b"p").anew(b"q").newest == ""


def test_rows_in_a_topic_that_was_deleted_are_missed_too_where_all_is_lost() -> None:
    """On SQLite, where transactions have no places, nothing but the note says so."""
    empty = TopicStanding("orders", b"p", topic_id=7, acknowledged=3, newest="3@500")
    errand = TopicRelay(empty)
    errand.resumed(Resumed(8, 0))  # it was deleted and made anew
    made_anew = committed(errand)
    assert (made_anew.topic_id, made_anew.acknowledged) == (8, 0)
    errand = TopicRelay(made_anew)
    errand.resumed(Resumed(7, 0, lost=True))  # restored, from before all of that
    assert "the server lost the topic" in committed(errand).stopped
