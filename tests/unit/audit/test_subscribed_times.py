"""Who was surely subscribed for a whole span of time, against a search through all stays."""

from hypothesis import given
from hypothesis import strategies as st

from oncemq.audit.facts import NEVER
from oncemq.audit.subscribed_times import Stay, SubscribedTimes

MOMENTS = st.integers(0, 8)
LEAVINGS = st.one_of(MOMENTS, st.none())
STAYS = st.lists(st.tuples(st.one_of(MOMENTS, st.none()), LEAVINGS), max_size=6)


def stay(number: int, joined: int | None, leaving: int | None) -> Stay:
    return Stay(f"client-{number}", "orders", joined=joined, leaving=leaving)


def was_there(stay: Stay, begin: int, end: int) -> bool:
    """Whether it had surely begun by then, and surely not ended."""
    lasts = stay.leaving is None or stay.leaving > end
    return stay.joined is not None and stay.joined <= begin and lasts


@given(STAYS, MOMENTS, st.one_of(MOMENTS, st.just(NEVER)))
def test_one_is_found_when_there_is_one_and_it_was_there(
    moments: list[tuple[int | None, int | None]], begin: int, end: int
) -> None:
    stays = [stay(number, *each) for number, each in enumerate(moments)]
    found = SubscribedTimes(stays).during(begin, end)
    those = [each for each in stays if was_there(each, begin, end)]
    assert found in those if those else found is None


def test_of_those_who_were_there_the_last_to_go_is_named() -> None:
    first, second, third = stay(1, 0, 5), stay(2, 1, 9), stay(3, 2, None)
    times = SubscribedTimes([third, first, second])
    assert [times.during(moment, moment) for moment in (0, 1, 2)] == [first, second, third]
