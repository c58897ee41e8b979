"""Receipts that are still to come, for puts that did not wait."""

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipts

T = TypeVar("T")

ONE = -1  # a single put: its receipt, and not a sequence of one


class Answering(Protocol):
    """Who waits for the receipts of a batch, in the way of its shell."""

    def answer(self, ticket: Ticket[Receipts], timeout: float | None) -> Receipts: ...


class Pending(msgspec.Struct, Generic[T], eq=False):
    """The answer to a put with `wait=False`: `done()`, then `result()`."""

    _ticket: Ticket[Receipts]  # of the batch that it left in
    _place: int  # of its first message there
    _count: int  # of its messages, or ONE
    _turns: Answering

    def __repr__(self) -> str:
        if not self._ticket.done:
            return "<Pending: no answer yet>"
        if self._ticket.error is not None:
            return f"<Pending: failed, {self._ticket.error!r}>"
        return f"<Pending: {pick(self._ticket.result(), self._place, self._count)!r}>"

    def done(self) -> bool:
        """Whether the server has answered."""
        return self._ticket.done

    def result(self, timeout: float | None = None) -> T:
        """The receipt; waits for it up to `timeout` seconds (the client's own by default)."""
        self._ticket.looked_at = True
        return pick(self._turns.answer(self._ticket, timeout), self._place, self._count)


def pick(receipts: Receipts, place: int, count: int) -> Any:
    """The receipts of a put, out of those of the batch that it left in."""
    return receipts[place] if count == ONE else receipts.part(place, count)
