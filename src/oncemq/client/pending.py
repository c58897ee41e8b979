"""Receipts that are still to come, for puts that did not wait."""

from collections.abc import Callable
from typing import Generic, TypeVar

from oncemq.client.engine.ticket import Ticket
from oncemq.client.values import Receipt, Receipts

T = TypeVar("T")


class Pending(Generic[T]):
    """The answer to a put with `wait=False`: `done()`, then `result()`."""

    __slots__ = ("_pick", "_ticket", "_wait")

    def __init__(
        self,
        ticket: Ticket[Receipts],
        pick: Callable[[Receipts], T],
        wait: Callable[[Ticket[Receipts], float | None], Receipts],
    ) -> None:
        self._ticket = ticket
        self._pick = pick
        self._wait = wait

    def __repr__(self) -> str:
        if not self._ticket.done:
            return "<Pending: no answer yet>"
        if self._ticket.error is not None:
            return f"<Pending: failed, {self._ticket.error!r}>"
        return f"<Pending: {self._pick(self._ticket.result())!r}>"

    def done(self) -> bool:
        """Whether the server has answered."""
        return self._ticket.done

    def result(self, timeout: float | None = None) -> T:
        """The receipt; waits for it up to `timeout` seconds (the client's own by default)."""
        self._ticket.looked_at = True
        return self._pick(self._wait(self._ticket, timeout))


def one(place: int) -> Callable[[Receipts], Receipt]:
    """Picks a single put's receipt out of the batch it left in."""
    return lambda receipts: receipts[place]


def some(place: int, count: int) -> Callable[[Receipts], Receipts]:
    """Picks the receipts of a batch out of the larger one it left in."""
    return lambda receipts: receipts.part(place, count)
