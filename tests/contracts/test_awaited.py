"""What everything that a verb waits for says: whether it is done, as of now."""

from collections.abc import Callable

import pytest

from oncemq.client.ticket import Awaited, Ticket, Until
from oncemq.errors import Unreachable

Made = tuple[Awaited, Callable[[], object]]  # and what makes it done


def filled() -> Made:
    ticket: Ticket[int] = Ticket()
    return ticket, lambda: ticket.fill(1)


def failed() -> Made:
    ticket: Ticket[int] = Ticket()
    return ticket, lambda: ticket.fail(Unreachable("nobody is there"))


def until() -> Made:
    things: list[int] = []
    return Until(lambda: bool(things)), lambda: things.append(1)


@pytest.mark.parametrize("make", [filled, failed, until])
def test_it_is_done_once_that_is_so_and_stays_done(make: Callable[[], Made]) -> None:
    awaited, finish = make()
    assert (awaited.done, awaited.done) == (False, False)
    finish()
    assert awaited.done is True
    finish()
    assert (awaited.done, awaited.done) == (True, True)
