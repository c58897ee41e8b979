"""Failed puts that nobody looked at: the first of them is told, and they cannot fill the memory."""

from typing import Any

from oncemq.client.puts.unread_failures import KEPT, Unseen
from oncemq.client.ticket import Ticket
from oncemq.errors import OnceMQError


def failed(unseen: Unseen, *details: str) -> list[Ticket[Any]]:
    """Tickets of puts that failed so, in this order."""
    tickets: list[Ticket[Any]] = []
    for detail in details:
        tickets.append(Ticket())
        unseen.fail(tickets[-1], OnceMQError(detail))
    return tickets


def test_the_first_that_nobody_looked_at_is_told_and_with_it_all() -> None:
    unseen = Unseen()
    first, second, _ = failed(unseen, "1", "2", "3")
    first.looked_at = True
    assert unseen.take() is second.error
    assert (unseen.take(), len(unseen)) == (None, 0)


def test_what_somebody_waits_for_is_told_there_alone() -> None:
    unseen = Unseen()
    ticket: Ticket[Any] = Ticket()
    ticket.looked_at = True
    unseen.fail(ticket, OnceMQError("1"))
    assert (str(ticket.error), len(unseen), unseen.take()) == ("1", 0, None)


def test_no_more_than_so_many_are_kept_the_first_ones() -> None:
    unseen = Unseen()
    tickets = failed(unseen, *(str(number) for number in range(KEPT + 2)))
    assert len(unseen) == KEPT
    assert all(each.error is not None for each in tickets)
    for each in tickets[: KEPT - 1]:
        each.looked_at = True
    assert unseen.take() is tickets[KEPT - 1].error


def test_those_that_were_looked_at_make_room_for_others_once_there_is_none() -> None:
    unseen = Unseen()
    tickets = failed(unseen, *(str(number) for number in range(KEPT - 1)))
    for each in tickets:
        each.looked_at = True
    failed(unseen, "last")
    assert len(unseen) == KEPT
    failed(unseen, "one more")
    assert len(unseen) == 2
    assert str(unseen.take()) == "last"
