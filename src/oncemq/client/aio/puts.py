"""The publisher's verbs of the asyncio client; see `client.blocking_puts`."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, TypeVar, overload

from oncemq.client.aio.runner import AsyncRunner
from oncemq.client.aio.transactions import AsyncTransacting
from oncemq.client.blocking.puts import ALL_OR_NONE, FLOW_BYTES
from oncemq.client.bodies import encode_many, largest
from oncemq.client.checks import check_payloads, item_of, size_of
from oncemq.client.engine.engine import Engine
from oncemq.client.puts.open_batch import GATHER_MESSAGES
from oncemq.client.ticket import Ticket
from oncemq.client.values import Headers, Receipt, Receipts
from oncemq.client.verbs.keyed_puts import check_key, put_keyed
from oncemq.errors import InvalidRequest, OutboxFull
from oncemq.wire import batch

T = TypeVar("T")


class AsyncPublishing(AsyncTransacting):
    """What `AsyncClient` puts with."""

    _engine: Engine
    _turns: AsyncRunner

    @overload
    async def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: Literal[True] = ..., idempotency_key: str | None = ...,
        required: bool = ...,
    ) -> Receipt: ...  # fmt: skip
    @overload
    async def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: Literal[False], required: bool = ...,
    ) -> asyncio.Future[Receipt]: ...  # fmt: skip
    @overload
    async def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: bool, required: bool = ...,
    ) -> Receipt | asyncio.Future[Receipt]: ...  # fmt: skip
    @overload
    async def put(
        self, topic: list[str] | tuple[str, ...], payload: bytes, *, key: bytes | None = ...,
        headers: Headers | None = ..., required: bool = ...,
    ) -> list[Receipt]: ...  # fmt: skip
    async def put(
        self,
        topic: str | list[str] | tuple[str, ...],
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        durable: bool = True,
        wait: bool = True,
        idempotency_key: str | None = None,
        required: bool = False,
    ) -> Receipt | asyncio.Future[Receipt] | list[Receipt]:
        """Put a message; its receipt, once the server has it on disk.

        `wait=False` gives a future of the receipt and gathers single puts into batches.
        `required` as in `Client.put`: what nobody would get raises `Unwanted`.
        """
        outflow = self._engine.outflow
        item = item_of(payload, key, headers)
        if not isinstance(topic, str):
            if idempotency_key is not None or not wait:
                raise InvalidRequest(ALL_OR_NONE)
            return await self._put_to_all(topic, item, required=required)
        if idempotency_key is not None:
            columns, body = batch.encode([item])
            keyed = await self._put_keyed(
                topic, idempotency_key, 1, columns, body, wait=wait, required=required
            )
            return keyed[0]
        await self._room_for(topic, size_of(item))
        if not wait:
            side = item if key is not None or headers else None
            ticket, place, full = outflow.gather(
                topic, (item.payload,), side, lasting=durable, required=required
            )
            self._turns.pump() if full else self._turns.pump_soon()
            return self._future(ticket, lambda receipts: receipts[place])
        columns, body = batch.encode([item])
        ticket = outflow.put(
            topic, count=1, columns=columns, body=body, lasting=durable, required=required
        )
        return (await self._receipts(ticket))[0]

    @overload
    async def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ...,
        wait: Literal[True] = ..., idempotency_key: str | None = ..., required: bool = ...,
    ) -> Receipts: ...  # fmt: skip
    @overload
    async def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ..., wait: Literal[False],
        required: bool = ...,
    ) -> asyncio.Future[Receipts]: ...  # fmt: skip
    @overload
    async def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ..., wait: bool,
        required: bool = ...,
    ) -> Receipts | asyncio.Future[Receipts]: ...  # fmt: skip
    async def put_many(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        durable: bool = True,
        wait: bool = True,
        idempotency_key: str | None = None,
        required: bool = False,
    ) -> Receipts | asyncio.Future[Receipts]:
        """Put a batch: stored whole or not at all, in one record (with others, when small)."""
        check_payloads(payloads)
        if not payloads:
            return Receipts(Receipt(topic, None, stored=False, duplicate=False), 0)
        if idempotency_key is not None:
            columns, body = encode_many(payloads, keys, headers)
            return await self._put_keyed(
                topic, idempotency_key, len(payloads), columns, body, wait=wait, required=required
            )
        outflow = self._engine.outflow
        plain = keys is None and headers is None
        if plain and not wait and len(payloads) < GATHER_MESSAGES:
            await self._room_for(topic, max(map(len, payloads)))
            ticket, place, full = outflow.gather(
                topic, payloads, None, lasting=durable, required=required
            )
            self._turns.pump() if full else self._turns.pump_soon()
            count = len(payloads)
            return self._future(ticket, lambda receipts: receipts.part(place, count))
        columns, body = encode_many(payloads, keys, headers)
        over = self._engine.settings.limits.message_bytes
        size = largest(payloads, keys, headers, over=over, body=body)
        await self._room_for(topic, size, len(body))
        ticket = outflow.put(
            topic,
            count=len(payloads),
            columns=columns,
            body=body,
            lasting=durable,
            required=required,
        )
        if not wait:
            self._turns.pump()
            return self._future(ticket, lambda receipts: receipts)
        return await self._receipts(ticket)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every put has its answer; raises what a put that nobody looked at met."""
        outflow = self._engine.outflow
        await self._turns.wait_until(lambda: outflow.idle, timeout, "the puts made so far")
        unseen = outflow.take_failure()
        error = self._engine.failure or unseen
        if error is not None:
            raise error

    # Inside

    async def _put_keyed(
        self, topic: str, key: str, count: int, columns: int, body: bytes, *, wait: bool,
        required: bool,
    ) -> Receipts:  # fmt: skip
        check_key(key, wait=wait)
        self._engine.outflow.check(topic, 0, len(body))
        verb = put_keyed(
            self._engine, topic, key, count=count, columns=columns, body=body, required=required
        )
        return await self._turns.run(verb)

    async def _room_for(self, topic: str, largest: int, size: int | None = None) -> None:
        engine, outflow = self._engine, self._engine.outflow
        try:
            outflow.check(topic, largest, size)
        except OutboxFull:
            if not engine.connected:
                raise
            room = engine.settings.outbox_bytes_max // 2
            await self._turns.wait_until(lambda: outflow.unsent_bytes < room, None, "the outbox")
        if outflow.unsent_bytes > FLOW_BYTES and engine.connected:
            await self._turns.wait_until(
                lambda: outflow.unsent_bytes < FLOW_BYTES // 2 or not engine.connected,
                None,
                "earlier puts",
            )

    def _future(self, ticket: Ticket[Receipts], pick: Callable[[Receipts], T]) -> asyncio.Future[T]:
        async def wait() -> T:
            return pick(await self._answer(ticket))

        return AwaitedReceipt(ticket, asyncio.ensure_future(wait()))

    async def _receipts(self, ticket: Ticket[Receipts]) -> Receipts:
        ticket.looked_at = True
        return await self._answer(ticket)

    async def _answer(self, ticket: Ticket[Receipts]) -> Receipts:
        await self._turns.wait_until(lambda: ticket.done, None, "the receipt")
        return ticket.result()


class AwaitedReceipt(asyncio.Future[T]):
    """The future of a put with `wait=False`. Whoever awaits it hears what became of the put.

    If nobody does, `flush` and `close` say it, so asyncio need not complain of it.
    """

    def __init__(self, ticket: Ticket[Receipts], waiting: asyncio.Task[T]) -> None:
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
