"""Receipts that are still to come, for puts that did not wait: futures of asyncio."""

import asyncio
from collections.abc import Generator
from typing import Any, Protocol, TypeVar

from oncemq.client.pending import pick
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipts

T = TypeVar("T")


class AsyncAnswering(Protocol):
    """Who waits for the receipts of a batch, on an event loop."""

    async def answer(self, ticket: Ticket[Receipts], timeout: float | None) -> Receipts: ...


class AwaitedReceipt(asyncio.Future[T]):
    """The future of a put with `wait=False`. Whoever awaits it hears what became of the put.

    If nobody does, `flush` and `close` say it, so asyncio need not complain of it.
    """

    def __init__(
        self,
        ticket: Ticket[Receipts],
        place: int,
        count: int,
        turns: AsyncAnswering,
    ) -> None:
        waiting = asyncio.ensure_future(_picked(ticket, place, count, turns))
        super().__init__(loop=waiting.get_loop())
        self._ticket = ticket
        self._waiting = waiting
        waiting.add_done_callback(self._take_over)

    def __await__(self) -> Generator[Any, None, T]:
        self._ticket.looked_at = True
        return super().__await__()

    def result(self) -> T:
        self._ticket.looked_at = True
        return super().result()

    def exception(self) -> BaseException | None:
        self._ticket.looked_at = True
        return super().exception()

    def cancel(self, msg: object = None) -> bool:
        self._waiting.cancel()
        return super().cancel()

    def _take_over(self, waiting: asyncio.Task[T]) -> None:
        if self.done():
            return
        if waiting.cancelled():
            super().cancel()
            return
        error = waiting.exception()
        if error is None:
            self.set_result(waiting.result())
        else:
            self.set_exception(error)
            super().exception()  # retrieved, as asyncio calls it, and not looked at by anyone


async def _picked(
    ticket: Ticket[Receipts],
    place: int,
    count: int,
    turns: AsyncAnswering,
) -> Any:
    return pick(await turns.answer(ticket, None), place, count)
