"""The hands of an awaitable handler: a client of its own, in a task of its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from oncemq.apps.blocking import FOREVER, POLL_SECONDS, Nothing
from oncemq.apps.connecting import AsyncAttachment
from oncemq.apps.dead_letters import Sealed
from oncemq.apps.handler import TRANSACTIONAL, Handler
from oncemq.apps.handler_loop import TakenMessages
from oncemq.client.aio.client import AsyncClient
from oncemq.errors import Refused


class AsyncHandlerIO:
    """A client's verbs, awaited."""

    def __init__(self, handler: Handler, client: AsyncClient, stop: asyncio.Event) -> None:
        self._handler = handler
        self._client = client
        self._stop = stop
        into = handler.options.into
        self._attachment = None if into is None else AsyncAttachment(into)

    async def subscribe(self) -> bool:
        """Have the subscription; whether it was made now."""
        return await self._client.subscribe(self._handler.topic, start=self._handler.options.start)

    @asynccontextmanager
    async def take(self, limit: int) -> AsyncGenerator[TakenMessages]:
        """Messages, settled with whatever the block did."""
        topic, wait = self._handler.topic, POLL_SECONDS
        if self._handler.kind == TRANSACTIONAL:
            required = self._handler.options.required
            with suppress(Nothing):
                async with self._client.transaction(required=required) as transaction:
                    messages = await transaction.get(topic, limit=limit, wait=wait)
                    yield TakenMessages(messages, transaction=transaction)
                    if not messages:
                        raise Nothing
            return
        into = None if self._attachment is None else await self._attachment.get()
        async with self._client.consume(topic, limit=limit, wait=wait, into=into) as messages:
            yield TakenMessages(messages, connection=into)

    async def call(self, payload: Any, extras: dict[str, Any]) -> Any:
        """The handler itself; all it yields, when it yields."""
        answer = self._handler.function(payload, **extras)
        if self._handler.signature.yields:
            return [each async for each in answer]
        return await answer

    async def output(self, taken: TakenMessages, payloads: list[bytes]) -> None:
        """Put what the handler returned, in the transaction of its message."""
        if payloads:
            await taken.transaction.put_many(self._handler.options.to, payloads)

    async def bury(self, letter: Sealed) -> None:
        """Put a dead letter, once; what is there already under its key stays."""
        dead = self._handler.dead
        made = await self._client.create_topic(dead, FOREVER)
        if not made and not (await self._client.topic(dead)).topic.retention.keeps:
            await self._client.configure_topic(dead, FOREVER)
        try:
            await self._client.put(
                dead,
                letter.payload,
                key=letter.key,
                headers=letter.headers,
                idempotency_key=letter.idempotency_key,
                required=True,
            )
        except Refused as refused:
            if refused.code != "payload_conflict":
                raise  # else: put before, by a start whose note was lost

    async def sound(self) -> bool:
        """Whether a failure was the handler's: nothing that it stands on is broken."""
        return self._attachment is None or await self._attachment.is_sound()

    async def pause(self, seconds: float) -> None:
        """Wait; not longer than until the app is to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    async def aclose(self) -> None:
        """Let go of the database."""
        if self._attachment is not None:
            await self._attachment.close()
