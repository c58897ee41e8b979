"""Requests under way: sent again under their own token, later and later, until answered."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from collections.abc import Sequence

from oncemq.protocol.names import Micros
from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import StatusRequest
from oncemq.protocol.step import Body
from oncemq.session.inflight import FIRST_WAIT, LONGEST_WAIT, InFlight
from oncemq.session.outgoing import Outgoing


class Asking:
    """A part that asks one thing, and does nothing with the answer."""

    def request(self, key: object) -> tuple[StatusRequest, None]:
        return StatusRequest(), None

    def on_reply(self, key: object, reply: Reply, bodies: Sequence[Body]) -> None: ...


ASKING = Asking()


def exchanges(chance: float = 0.5) -> InFlight:
    """With chance 0.5 the waits are as long as they say."""
    return InFlight(lambda: chance)


def send_due(open_: InFlight, now: int) -> list[int]:
    due = open_.due(Micros(now))
    for each in due:
        open_.sent(each, Micros(now))
    return [each.token for each in due]


def test_a_new_request_is_due_at_once_and_oldest_first() -> None:
    open_ = exchanges()
    tokens = [open_.begin(ASKING, object()) for _ in range(3)]
    assert open_.next_due() is None  # what was not sent waits for no clock
    assert send_due(open_, 5) == tokens
    assert (len(open_), open_.sends) == (3, 3)


def test_a_request_is_sent_again_under_its_token_after_growing_waits() -> None:
    open_ = exchanges()
    token = open_.begin(ASKING, object())
    now, waits = 0, []
    for _ in range(7):
        assert send_due(open_, now) == [token]
        due = open_.next_due() or 0
        waits.append(due - now)
        assert send_due(open_, due - 1) == []
        now = due
    assert waits == [min(FIRST_WAIT << n, LONGEST_WAIT) for n in range(7)]


def test_the_waits_are_jittered_by_a_quarter() -> None:
    for chance, wait in ((0.0, 0.75), (1.0, 1.25)):
        open_ = exchanges(chance)
        open_.begin(ASKING, object())
        send_due(open_, 0)
        assert open_.next_due() == FIRST_WAIT * wait


def test_a_long_poll_has_the_time_it_asked_for_on_top() -> None:
    open_ = exchanges()
    open_.begin(ASKING, object(), patience_ms=7_000)
    send_due(open_, 0)
    assert open_.next_due() == 7_000_000 + FIRST_WAIT


def test_it_knows_whether_just_one_answer_is_soon_to_come() -> None:
    open_ = exchanges()
    assert not open_.awaits_one
    open_.begin(ASKING, object(), patience_ms=55_000)
    assert not open_.awaits_one, "of a long poll nobody knows when it comes"
    first = open_.begin(ASKING, object())
    assert open_.awaits_one
    open_.begin(ASKING, object())
    assert not open_.awaits_one
    open_.end(first)
    assert open_.awaits_one


def test_an_answered_request_is_not_sent_again() -> None:
    open_ = exchanges()
    token = open_.begin(ASKING, object())
    send_due(open_, 0)
    assert token in open_
    assert open_.end(token) is True
    assert open_.end(token) is False
    assert token not in open_
    assert (open_.next_due(), send_due(open_, 10**9)) == (None, [])


def test_a_token_is_used_once() -> None:
    open_ = exchanges()
    first = open_.begin(ASKING, object())
    open_.end(first)
    assert open_.begin(ASKING, object()) != first


def test_a_new_connection_sends_everything_again_at_once_in_order() -> None:
    open_ = exchanges()
    tokens = [open_.begin(ASKING, object()) for _ in range(3)]
    send_due(open_, 0)
    assert send_due(open_, 1) == []
    open_.retry_all()
    assert send_due(open_, 1) == tokens
    assert open_.next_due() == 1 + FIRST_WAIT  # and the waits begin anew


def test_a_request_sent_twice_without_an_answer_is_trouble() -> None:
    open_ = exchanges()
    token = open_.begin(ASKING, object())
    assert not open_.troubled
    send_due(open_, 0)
    assert not open_.troubled
    send_due(open_, open_.next_due())
    assert open_.troubled
    open_.end(token)
    assert not open_.troubled


def test_an_answer_to_a_copy_from_an_earlier_epoch_of_its_own_counts_once() -> None:
    open_ = exchanges()
    token = open_.begin(ASKING, object())
    (exchange,) = open_.due(Micros(0))
    open_.sent(exchange, Micros(0), 1)
    assert not open_.is_of_before(token, 1)
    assert open_.is_of_before(token, None)  # it is being let in: that tells
    assert open_.is_of_before(token, 2)
    assert open_.due(Micros(0)) == [exchange]  # so it goes again, under the epoch of now
    open_.sent(exchange, Micros(0), 2)
    assert not open_.is_of_before(token, 2)


def test_what_is_wanted_is_carried_out_in_its_order_and_known_by_the_very_key() -> None:
    open_, out = exchanges(), Outgoing()
    first, second, third = [1], [1], [1]  # equal, and three things
    for each in (first, second):
        out.begin(ASKING, each, patience_ms=7_000)
    out.give_up(first)
    out.begin(ASKING, third)
    out.give_up([1])  # nothing of the kind is under way
    open_.carry_out(out.take())
    assert [open_.is_asked(each) for each in (first, second, third)] == [False, True, True]
    assert [each.key is key for each, key in zip(open_.due(0), (second, third), strict=True)]
    assert out.take() == []
    out.give_up(second)
    open_.carry_out(out.take())
    assert len(open_) == 1
    open_.end(open_.due(0)[0].token)
    open_.carry_out([(ASKING, third, 0)])  # answered, and asked anew
    assert open_.is_asked(third)
