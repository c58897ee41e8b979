"""The rule of the inbox: what may be handed out, and what a commit must change."""

from oncemq.protocol.names import Micros, Offset, SubscriptionId
from oncemq.session.inbox_rule import NO_SUBSCRIPTION, ConsumedSpan, Inbox, Mark, Move

SUBSCRIPTION = SubscriptionId(7)


def span(
    first: int, end: int, topic: str = "orders", subscription: int = SUBSCRIPTION
) -> ConsumedSpan:
    return ConsumedSpan(topic, SubscriptionId(subscription), Offset(first), Offset(end))


def standing(cursor: int, reached: int | None = None, fence: int = 3) -> Inbox:
    """An inbox whose database stands at `cursor`."""
    inbox = Inbox()
    there = Offset(cursor if reached is None else reached)
    inbox.took("orders", Mark(SUBSCRIPTION, fence, Offset(cursor), there))
    return inbox


def test_only_messages_from_where_the_database_stands_are_handed_out() -> None:
    inbox = standing(10)
    assert inbox.misfits([span(10, 15)]) == []
    assert inbox.misfits([span(9, 15)]) == ["orders"]  # it has @9
    assert inbox.misfits([span(11, 15)]) == ["orders"]  # it lacks @10


def test_messages_of_another_subscription_are_not_handed_out() -> None:
    inbox = standing(10)
    assert inbox.misfits([span(10, 15, subscription=8)]) == ["orders"]
    assert inbox.misfits([span(10, 15, topic="refunds")]) == ["refunds"]


def test_messages_read_again_end_where_the_client_has_been() -> None:
    inbox = standing(10, reached=20)
    assert inbox.behind("orders") == ("orders", inbox.marks["orders"])
    assert inbox.misfits([span(10, 20, subscription=NO_SUBSCRIPTION)]) == []
    assert inbox.misfits([span(10, 21, subscription=NO_SUBSCRIPTION)]) == ["orders"]


def test_a_database_that_lacks_nothing_is_not_behind() -> None:
    assert standing(10).behind("orders") is None
    assert standing(10, reached=20).behind("refunds") is None
    assert standing(10, reached=20).behind("") is not None  # asked for any


def test_a_commit_moves_from_where_the_database_stands_under_our_fence() -> None:
    inbox = standing(10, fence=3)
    inbox.took("a", Mark(SubscriptionId(8), 1, Offset(0), Offset(0)))
    moves = inbox.moves([span(10, 15), span(0, 2, "a", 8)])
    assert moves == [
        Move("a", SubscriptionId(8), 1, Offset(0), Offset(2)),
        Move("orders", SUBSCRIPTION, 3, Offset(10), Offset(15)),
    ]  # in an order that all processes share, or two could wait for each other
    inbox.committed(moves)
    assert inbox.misfits([span(15, 16), span(2, 3, "a", 8)]) == []


def test_what_was_read_again_counts_until_the_client_is_reached() -> None:
    inbox = standing(10, reached=12)
    inbox.committed(inbox.moves([span(10, 11, subscription=NO_SUBSCRIPTION)]))
    assert inbox.behind("orders") is not None
    inbox.committed(inbox.moves([span(11, 12, subscription=NO_SUBSCRIPTION)]))
    assert inbox.behind("orders") is None


def test_any_is_known_once_all_were_surveyed_and_until_one_is_forgotten() -> None:
    inbox = standing(10)
    assert (inbox.knows("orders"), inbox.knows("refunds"), inbox.knows("")) == (True, False, False)
    inbox.surveyed()
    assert inbox.knows("")
    inbox.forget(["orders"])
    assert (inbox.knows("orders"), inbox.knows("")) == (False, False)


def test_a_hole_that_the_server_names_is_passed_over() -> None:
    holes = {"orders": (Offset(8), Offset(14))}

    def over(topic: str, offset: Offset) -> Offset:
        first, end = holes[topic]
        return end if first <= offset < end else offset

    inbox = Inbox(over)
    inbox.took("orders", Mark(SUBSCRIPTION, 3, Offset(10), Offset(12)))
    assert inbox.behind("orders") is None  # what it lacks is lost
    assert inbox.misfits([span(14, 20)]) == []
    assert inbox.misfits([span(15, 20)]) == ["orders"]  # it lacks @14
    assert inbox.moves([span(14, 20)]) == [Move("orders", SUBSCRIPTION, 3, Offset(10), Offset(20))]


def test_of_a_pattern_only_the_topics_that_match_are_looked_at() -> None:
    inbox = Inbox()
    lacking, whole = Offset(12), Offset(10)
    for topic, reached in (("refunds", lacking), ("shop.a", whole), ("shop.b", lacking)):
        inbox.took(topic, Mark(SUBSCRIPTION, 3, Offset(10), reached))
    assert inbox.behind("shop.*") == ("shop.b", inbox.marks["shop.b"])
    assert inbox.behind("orders.*") is None


def test_a_move_notes_its_last_message_where_the_table_has_room_and_the_moment_is_known() -> None:
    inbox = Inbox()
    for topic, notes in (("a", True), ("b", False), ("c", True)):
        inbox.took(topic, Mark(SUBSCRIPTION, 3, Offset(10), Offset(10), notes))
    spans = [span(10, 15, topic) for topic in "abc"]
    moves = inbox.moves(spans, {"a": Micros(77), "b": Micros(78)})
    assert [move.newest for move in moves] == ["14@77", "", ""]


def test_what_is_in_doubt_is_asked_for_by_who_asks_for_it() -> None:
    """The rows of other topics may be in another database."""
    inbox = standing(10)
    other = Mark(SubscriptionId(8), 1, Offset(0), Offset(0))
    inbox.took("orders.eu", other)
    inbox.doubt(["orders", "orders.eu", "forgotten"])
    assert inbox.doubted("refunds") == {}
    assert inbox.doubted("orders") == {"orders": inbox.marks["orders"]}
    assert inbox.doubted("orders.*") == {"orders.eu": other}
    assert inbox.doubted("") == inbox.marks
    inbox.is_sure(["orders"])
    assert (inbox.doubted("orders"), inbox.doubted("orders.eu")) == ({}, {"orders.eu": other})
    inbox.forget(["orders.eu"])
    inbox.took("orders.eu", other)  # which reads the row
    assert inbox.doubted("") == {}
