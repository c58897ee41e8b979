"""For how long a connection may bring no answer: pieces of time go in, a verdict comes out."""

from oncemq.protocol.names import Micros
from oncemq.replication.awaited_answer import (
    FIRST_PATIENCE,
    LONGEST_PATIENCE,
    LOOK_MAX,
    Arrival,
    AwaitedAnswer,
)

TICK = Micros(50_000)


def until_in_vain(awaited: AwaitedAnswer) -> int:
    """How many microseconds it takes; a message is sent in each tick."""
    for ticks in range(1, 1_000):
        awaited.sent()
        if awaited.is_in_vain(TICK):
            return ticks * TICK
    raise AssertionError("it is never in vain")


def test_a_connection_on_which_nothing_was_sent_owes_no_answer() -> None:
    awaited = AwaitedAnswer()
    assert not any(awaited.is_in_vain(TICK) for _ in range(1_000))


def test_one_that_answers_nothing_for_a_second_is_in_vain() -> None:
    assert until_in_vain(AwaitedAnswer()) == FIRST_PATIENCE == 1_000_000


def test_an_answer_is_enough_for_all_that_was_sent_before() -> None:
    awaited = AwaitedAnswer()
    for _ in range(100):
        awaited.sent()
        assert not awaited.is_in_vain(TICK)
        awaited.answered()
    assert not any(awaited.is_in_vain(TICK) for _ in range(1_000))


def test_what_was_sent_on_the_connection_before_is_not_waited_for() -> None:
    awaited = AwaitedAnswer()
    awaited.sent()
    awaited.is_gone()
    assert not any(awaited.is_in_vain(TICK) for _ in range(1_000))


def test_each_further_connection_has_twice_as_long_until_one_answers() -> None:
    awaited = AwaitedAnswer()
    waits = [until_in_vain(awaited) for _ in range(6)]
    assert waits == [FIRST_PATIENCE << n for n in range(5)] + [LONGEST_PATIENCE]
    awaited.answered()
    assert until_in_vain(awaited) == FIRST_PATIENCE


def test_a_server_that_stood_still_does_not_blame_the_other_for_that() -> None:
    awaited = AwaitedAnswer()
    awaited.sent()
    assert not awaited.is_in_vain(Micros(60_000_000))
    assert until_in_vain(awaited) == FIRST_PATIENCE - LOOK_MAX


def test_while_a_message_arrives_the_time_has_not_begun() -> None:
    awaited = AwaitedAnswer()
    awaited.arrives()
    awaited.sent()
    for _ in range(100):
        assert not awaited.is_in_vain(TICK)
        awaited.arrives()
    assert until_in_vain(awaited) == FIRST_PATIENCE


def test_a_message_arrives_until_it_is_whole() -> None:
    arrival = Arrival()
    arrival.sent(1_000, 1_000)
    assert [arrival.goes_on(left) for left in (1_000, 700, 700, 1, 0, 0)] == [
        False, True, False, True, False, False,
    ]  # fmt: skip


def test_what_is_sent_behind_it_is_not_taken_for_a_part_of_it() -> None:
    arrival = Arrival()
    arrival.sent(1_000, 1_000)
    arrival.sent(5_000, 6_000)
    assert [arrival.goes_on(left) for left in (6_000, 5_500, 5_000, 4_000)] == [
        False, True, False, False,
    ]  # fmt: skip


def test_small_messages_that_the_system_takes_for_who_has_stopped_are_no_sign_of_life() -> None:
    arrival = Arrival()
    for _ in range(10):
        arrival.sent(40, 40)
        assert not arrival.goes_on(0)


def test_what_was_under_way_on_the_connection_before_does_not_arrive_any_more() -> None:
    arrival = Arrival()
    arrival.sent(1_000, 1_000)
    arrival.is_gone()
    assert not arrival.goes_on(500)
