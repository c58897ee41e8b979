"""The subscriber's side of G4: nothing below a cursor, in order, without gap, told once settled."""

import pytest

from oncemq.protocol.names import Offset, SubscriptionId
from oncemq.protocol.requests import Settled
from oncemq.session.prefetched import FETCH_MAX, is_single, several
from oncemq.session.subscriber import Subscriber
from oncemq.session.told_cursors import TOLD_MAX
from tests.harness.messages import ID, Batch, Note

LATER = SubscriptionId(2)


def subscriber(**cursors: int) -> Subscriber[Note]:
    return Subscriber({topic: (ID, Offset(cursor)) for topic, cursor in cursors.items()})


def came(one: Subscriber[Note], topic: str, *batches: Batch, more: bool = False) -> None:
    one.came(topic, batches, more=more)


def names(notes: list[Note]) -> list[str]:
    return [f"{note.topic}@{note.offset}" for note in notes]


def settled(topic: str, cursor: int, subscription: SubscriptionId = ID) -> Settled:
    return Settled(topic, subscription, Offset(cursor))


def settle(one: Subscriber[Note], taken: list[Note]) -> list[tuple[str, SubscriptionId, Offset]]:
    """As the client does it, whose disk knows in between."""
    moved = one.cursors.moves(taken)
    one.move(moved)
    return moved


# ------------------------------------------------------------------ handing out


def test_what_came_is_handed_out_in_order_as_many_as_asked_for() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(3)), Batch("a", range(3, 5)))
    assert names(one.prefetched.take("a", 2)) == ["a@0", "a@1"]
    assert names(one.prefetched.take("a", 2)) == ["a@2", "a@3"]
    assert not one.prefetched.drained("a")
    assert names(one.prefetched.take("a", 9)) == ["a@4"]
    assert one.prefetched.take("a", 9) == []
    assert one.prefetched.drained("a")


def test_what_is_below_the_cursor_is_dropped() -> None:
    one = subscriber(a=2)
    came(one, "a", Batch("a", range(1)), Batch("a", range(1, 4)))
    assert names(one.prefetched.take("a", 9)) == ["a@2", "a@3"]


def test_what_is_below_the_cursor_is_dropped_from_any_feed() -> None:
    one = subscriber(a=2, b=1)
    came(one, "", Batch("a", range(3)), Batch("b", range(1)), Batch("b", range(1, 2)))
    assert names(one.prefetched.take("", 9)) == ["a@2", "b@1"]


def test_what_was_fetched_already_is_not_handed_out_twice() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(3)), more=True)
    came(one, "a", Batch("a", range(5)))
    assert names(one.prefetched.take("a", 9)) == ["a@0", "a@1", "a@2", "a@3", "a@4"]


def test_an_unknown_subscription_begins_where_the_server_begins() -> None:
    one = subscriber()
    came(one, "a", Batch("a", range(7, 9)))
    assert names(one.prefetched.take("a", 9)) == ["a@7", "a@8"]
    assert one.told.untold() == ()


def test_another_subscription_on_the_topic_begins_afresh() -> None:
    one = subscriber(a=5)
    came(one, "a", Batch("a", range(2), LATER))
    assert names(one.prefetched.take("a", 9)) == ["a@0", "a@1"]


# ------------------------------------------------------------------ reading ahead


def test_the_next_fetch_goes_on_after_what_was_fetched() -> None:
    one = subscriber(a=0)
    assert one.prefetched.feed("a").ahead == -1
    came(one, "a", Batch("a", range(3)))
    assert one.prefetched.feed("a").ahead == 3


def test_a_fetch_grows_while_there_is_more_up_to_a_limit() -> None:
    one = subscriber(a=0)
    wanted = []
    for _ in range(9):
        wanted.append(one.prefetched.want("a", 10))
        came(one, "a", more=True)
    assert wanted[:4] == [10, 40, 160, 640]
    assert wanted[-1] == FETCH_MAX
    came(one, "a", more=False)
    assert one.prefetched.want("a", 10) == 10


def test_a_feed_is_hungry_when_half_of_what_it_fetches_is_taken_and_there_is_more() -> None:
    one = subscriber(a=0)
    one.prefetched.want("a", 4)
    came(one, "a", Batch("a", range(4)), more=True)
    one.prefetched.take("a", 1)
    assert not one.prefetched.hungry("a")
    one.prefetched.take("a", 1)
    assert one.prefetched.hungry("a")
    came(one, "a", more=False)
    assert not one.prefetched.hungry("a")


def test_a_feed_of_any_topic_is_never_hungry_because_it_reads_from_the_cursors() -> None:
    one = subscriber(a=0)
    one.prefetched.want("", 1)
    came(one, "", Batch("a", range(1)), more=True)
    one.prefetched.take("", 1)
    assert not one.prefetched.hungry("")


# ------------------------------------------------------------------ taken and not settled


def test_what_is_put_back_is_fetched_again_from_the_cursor() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(3)))
    one.prefetched.take("a", 2)
    one.prefetched.put_back("a")
    assert (one.prefetched.drained("a"), one.prefetched.feed("a").ahead) == (True, -1)
    came(one, "a", Batch("a", range(3)))
    assert names(one.prefetched.take("a", 9)) == ["a@0", "a@1", "a@2"]


def test_a_fetch_ahead_that_comes_after_the_put_back_leaves_no_gap() -> None:
    one = subscriber(a=0)
    one.prefetched.want("a", 2)
    came(one, "a", Batch("a", range(2)), more=True)
    one.prefetched.take("a", 2)
    one.prefetched.want("a", 2)  # the next ones are asked for while these are worked on ...
    one.prefetched.put_back("a")  # ... which fails,
    came(one, "a", Batch("a", range(2, 4)))  # and then they come
    assert names(one.prefetched.take("a", 9)) == []
    one.prefetched.want("a", 2)
    came(one, "a", Batch("a", range(4)))
    assert names(one.prefetched.take("a", 9)) == ["a@0", "a@1", "a@2", "a@3"]


def test_a_fetch_ahead_that_comes_after_a_get_of_any_topic_leaves_no_gap() -> None:
    one = subscriber(a=0)
    one.prefetched.want("a", 2)
    came(one, "a", Batch("a", range(2)), more=True)
    one.prefetched.take("a", 1)
    one.prefetched.want("a", 2)
    one.prefetched.feed("")
    came(one, "a", Batch("a", range(2, 4)))
    assert names(one.prefetched.take("a", 9)) == []


def test_a_fetch_ahead_of_a_subscription_that_ended_leaves_no_gap_in_the_next_one() -> None:
    one = subscriber(a=0)
    one.prefetched.want("a", 2)
    came(one, "a", Batch("a", range(2)), more=True)
    one.prefetched.want("a", 2)
    one.forget("a")
    one.subscribed("a", LATER, Offset(0))
    came(one, "a", Batch("a", range(2, 4), LATER))
    assert names(one.prefetched.take("a", 9)) == []


def test_one_topic_and_any_exclude_each_other_and_fetch_again() -> None:
    one = subscriber(a=0, b=0)
    came(one, "a", Batch("a", range(2)))
    came(one, "b", Batch("b", range(1)))
    assert names(one.prefetched.take("b", 1)) == ["b@0"]  # two topics do not
    assert one.prefetched.take("", 9) == []
    came(one, "", Batch("a", range(2)), Batch("b", range(1)))
    assert one.prefetched.take("a", 9) == []
    assert one.prefetched.take("", 9) == []
    assert one.prefetched.feed("a").ahead == -1


# ------------------------------------------------------------------ settling


def test_settling_moves_the_cursor_after_the_last_message() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(3)))
    assert settle(one, one.prefetched.take("a", 2)) == [("a", ID, 2)]
    assert one.told.untold() == (settled("a", 2),)


def test_settling_messages_of_several_topics_moves_each_cursor() -> None:
    one = subscriber(a=0, b=0)
    came(one, "", Batch("a", range(1)), Batch("b", range(2)))
    assert settle(one, one.prefetched.take("", 9)) == [("a", ID, 1), ("b", ID, 2)]


def test_settling_moves_the_cursor_of_a_topic_between_two_of_another() -> None:
    one = subscriber(a=0, b=0)
    came(one, "", Batch("a", range(1)), Batch("b", range(1)), Batch("a", range(1, 2)))
    taken = one.prefetched.take("", 9)
    assert names(taken) == ["a@0", "b@0", "a@1"]
    assert sorted(settle(one, taken)) == [("a", ID, 2), ("b", ID, 1)]
    came(one, "", Batch("b", range(1)))
    assert one.prefetched.take("", 9) == []


def test_settling_nothing_moves_nothing() -> None:
    assert settle(subscriber(a=0), []) == []


def test_settling_what_was_settled_before_does_not_move_the_cursor_back() -> None:
    one = subscriber(a=5)
    assert settle(one, [Note("a", 2)]) == [("a", ID, 5)]


def test_settling_after_the_subscription_ended_changes_nothing() -> None:
    one = subscriber(a=0, b=0)
    came(one, "", Batch("a", range(1)), Batch("b", range(1)))
    taken = one.prefetched.take("", 9)
    one.forget("a")
    assert settle(one, taken) == [("b", ID, 1)]


@pytest.mark.parametrize(
    "note", [Note("a", 4), Note("a", 5), Note("a", 9), Note("b", 0), Note("a", 6, LATER)]
)
def test_settling_one_is_settling(note: Note) -> None:
    """Below the cursor, at it, beyond it; of no subscription, and of one that ended."""
    one, other = subscriber(a=5), subscriber(a=5)
    for each in (one, other):
        each.told.answered((settled("a", 5),))
    one.settle_one(note)
    settle(other, [note])
    assert one.told.untold() == other.told.untold()
    assert one.cursors.reached("a", ID) == other.cursors.reached("a", ID)


def test_the_server_is_told_until_it_has_answered() -> None:
    one = subscriber(a=0)
    settle(one, [Note("a", 4)])
    telling = one.told.untold()
    assert telling == one.told.untold() == (settled("a", 5),)
    settle(one, [Note("a", 5)])
    one.told.answered(telling)
    assert one.told.untold() == (settled("a", 6),)
    one.told.answered(one.told.untold())
    assert one.told.untold() == ()
    one.told.answered(telling)
    assert one.told.untold() == ()


def test_a_server_that_gives_again_what_it_was_told_is_settled_is_told_again() -> None:
    one = subscriber(a=0)
    settle(one, [Note("a", 0), Note("a", 1)])
    one.told.answered(one.told.untold())
    assert one.told.untold() == ()
    came(one, "a", Batch("a", range(1)), more=True)  # a crash took the cursor
    assert one.prefetched.take("a", 9) == []
    assert one.told.untold() == (settled("a", 2),)


def test_a_server_that_gives_from_where_it_was_told_is_told_nothing_again() -> None:
    one = subscriber(a=2)
    one.told.answered((settled("a", 2),))
    came(one, "a", Batch("a", range(2, 4)))
    came(one, "a", Batch("a", range(2, 5)))  # again, for the first one was late
    assert not one.told.waiting
    assert names(one.prefetched.take("a", 9)) == ["a@2", "a@3", "a@4"]


def test_a_cursor_from_an_earlier_start_is_told_again() -> None:
    assert subscriber(a=5).told.untold() == (settled("a", 5),)


def test_many_cursors_are_told_some_at_a_time() -> None:
    topics = [f"t{number}" for number in range(2 * TOLD_MAX + 1)]
    one = subscriber(**dict.fromkeys(topics, 5))
    told: list[str] = []
    for count in (TOLD_MAX, TOLD_MAX, 1):
        assert (len(one.told.waiting) > TOLD_MAX) == (
            count == TOLD_MAX and len(told) < 2 * TOLD_MAX
        )
        some = one.told.untold()
        assert len(some) == count
        told += [each.topic for each in some]
        one.told.answered(some)
    assert (one.told.untold(), told) == ((), topics)


def test_a_subscription_that_ended_leaves_the_others_as_they_are() -> None:
    one = subscriber(a=0, b=0)
    came(one, "", Batch("a", range(2)), Batch("b", range(2)))
    assert names(one.prefetched.take("", 1)) == ["a@0"]
    one.ended(["a"])
    assert names(one.prefetched.take("", 9)) == ["b@0", "b@1"]  # nothing is fetched and taken again
    assert (one.cursors.topics, one.prefetched.held("")) == (["b"], (0, 0))
    assert [each.topic for each in one.told.untold()] == ["b"]
    came(one, "b", Batch("b", range(2)))
    one.ended(["b"])
    assert (one.prefetched.drained("b"), len(one.cursors)) == (True, 0)


def test_what_was_told_of_another_subscription_does_not_count() -> None:
    one = subscriber(a=5)
    one.told.answered((settled("a", 5, LATER), settled("unknown", 5)))
    assert one.told.untold() == (settled("a", 5),)


# ------------------------------------------------------------------ subscriptions


def test_a_new_subscription_begins_where_the_server_says_and_drops_what_was_fetched() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(3)))
    one.subscribed("a", LATER, Offset(9))
    assert one.prefetched.drained("a")
    came(one, "a", Batch("a", range(8, 11), LATER))
    assert names(one.prefetched.take("a", 9)) == ["a@9", "a@10"]


def test_a_subscription_known_already_keeps_its_cursor() -> None:
    one = subscriber(a=5)
    one.subscribed("a", ID, Offset(2))
    came(one, "a", Batch("a", range(2, 7)))
    assert names(one.prefetched.take("a", 9)) == ["a@5", "a@6"]


def test_nothing_fetched_is_handed_out_after_the_subscription_ended() -> None:
    one = subscriber(a=0, b=0)
    assert one.cursors.topics == ["a", "b"]
    came(one, "", Batch("a", range(3)))
    one.forget("a")
    assert (one.prefetched.take("", 9), one.cursors.topics) == ([], ["b"])


# ------------------------------------------------------------------ several topics


def test_several_topics_are_one_feed_whatever_order_they_are_named_in() -> None:
    assert several(["b", "a", "b"]) == several(["a", "b"]) == "a\nb"
    assert [is_single(each) for each in ("", "a", several(["a", "b"]))] == [False, True, False]


def test_several_topics_read_from_their_cursors_and_exclude_other_feeds() -> None:
    one = subscriber(a=1, b=0)
    both = several(["a", "b"])
    came(one, both, Batch("a", range(2)), Batch("b", range(1)), more=True)
    assert (one.prefetched.feed(both).ahead, one.prefetched.hungry(both)) == (-1, False)
    assert names(one.prefetched.take(both, 9)) == ["a@1", "b@0"]
    came(one, both, Batch("a", range(1, 2)))
    assert one.prefetched.take("a", 9) == []
    assert one.prefetched.drained(both)


# ------------------------------------------------------------------ another process before this one


def test_cursors_an_older_process_moved_are_taken_over_with_nothing_fetched_left() -> None:
    one = subscriber(a=0, b=5)
    came(one, "a", Batch("a", range(3)))
    one.recall({"a": (ID, Offset(2)), "b": (ID, Offset(4)), "c": (LATER, Offset(1))})
    assert one.prefetched.drained("a")
    came(one, "a", Batch("a", range(3)))
    assert names(one.prefetched.take("a", 9)) == ["a@2"]
    assert set(one.told.untold()) == {settled("a", 2), settled("b", 5), settled("c", 1, LATER)}


def test_a_fetch_under_way_is_outdated_once_its_feed_was_put_back() -> None:
    one = subscriber(a=0)
    one.prefetched.want("a", 2)
    assert not one.prefetched.outdated("a")
    came(one, "a", Batch("a", range(2)), more=True)
    one.prefetched.want("a", 2)
    assert not one.prefetched.outdated("a")
    one.prefetched.put_back("a")
    assert one.prefetched.outdated("a")


def test_what_came_again_while_its_first_copy_was_worked_on_is_not_handed_out_again() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(3)))
    taken = one.prefetched.take("a", 3)
    one.prefetched.put_back_all()  # another thread subscribed to something, say
    came(one, "a", Batch("a", range(5)))
    settle(one, taken)
    assert names(one.prefetched.take("a", 9)) == ["a@3", "a@4"]
    assert one.prefetched.held("a") == (0, 0)
    came(one, "a", Batch("a", range(5, 7)))
    taken = one.prefetched.take("a", 1)
    one.prefetched.put_back_all()
    came(one, "a", Batch("a", range(5, 8)))
    settle(one, taken)
    assert names(one.prefetched.take("a", 9)) == ["a@6", "a@7"]


# ------------------------------------------------------------------ another subscription


def test_what_another_subscription_brings_begins_where_it_says() -> None:
    """As of a topic that was deleted and made anew under a pattern: its offsets begin again."""
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(5)))
    settle(one, one.prefetched.take("a", 3))
    came(one, "a", Batch("a", range(2), LATER))
    assert names(one.prefetched.take("a", 9)) == ["a@0", "a@1"]
    assert one.told.untold() == ()


def test_settling_what_is_of_an_ended_subscription_moves_no_cursor_of_the_next() -> None:
    one = subscriber(a=0)
    came(one, "a", Batch("a", range(5)))
    taken = one.prefetched.take("a", 9)
    came(one, "", Batch("a", range(2), LATER))
    assert settle(one, taken) == []
    assert settle(one, [*taken, *one.prefetched.take("", 9)]) == [("a", LATER, 2)]


# ------------------------------------------------------------------ what the client knows


def test_what_was_handed_out_is_known_with_what_is_on_the_disk() -> None:
    one = subscriber(a=3, b=3, c=3, d=0)
    came(one, "d", Batch("d", range(2)))
    one.prefetched.take("d", 1)
    for topic in "abc":
        came(one, topic, Batch(topic, range(3, 9)))
        one.prefetched.take(topic, 2)
    one.prefetched.take("b", 2)  # settled by nobody: its effect may be there
    came(one, "e", Batch("e", range(2)))  # fetched only
    on_disk = {
        "a": (ID, Offset(6)),  # further, as another process noted it
        "b": (ID, Offset(3)),
        "c": (LATER, Offset(0)),  # another subscription: the place of the first says nothing
        "f": (LATER, Offset(4)),
    }
    assert one.cursors.known_with(on_disk) == [
        settled("a", 6),
        settled("b", 7),
        settled("c", 0, LATER),
        settled("d", 1),
        settled("f", 4, LATER),
    ]


def test_what_was_put_back_was_not_handed_out() -> None:
    one = subscriber(a=3, b=3)
    for topic in "ab":
        came(one, topic, Batch(topic, range(3, 9)))
        one.prefetched.take(topic, 2)
    one.prefetched.put_back("a")
    assert one.cursors.known_with({}) == [settled("b", 5)]


# ------------------------------------------------------------------ subscriptions that ended


def test_what_was_taken_of_a_subscription_that_ended_meanwhile_is_told_apart() -> None:
    one = subscriber(a=0, b=0)
    came(one, "", Batch("a", range(2)), Batch("b", range(1)))
    taken = one.prefetched.take("", 9)
    one.cursors.end("a")
    assert one.cursors.moves(taken) == [("b", ID, 1)]
    assert one.cursors.over(taken) == [("a", ID, 2)]


def test_nothing_waits_to_be_told_of_a_subscription_that_ended() -> None:
    one = subscriber(a=3, b=4)
    assert one.told.untold() == (settled("a", 3), settled("b", 4))
    one.told.ended("a")
    one.told.ended("b")
    assert not one.told.waiting
