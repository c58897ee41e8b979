"""What a handler's loop does in the world, with either client: written once, for both.

The loop is a coroutine. Under a blocking client nothing in it ever waits on an event loop: what
the client answers is there at once, and `awaited` and `entered` pass it on.
"""

from collections.abc import AsyncGenerator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    suppress,
)
from typing import TypeVar

from oncemq.apps.connecting import Attachment
from oncemq.apps.dead_letters import Sealed
from oncemq.apps.handler import TRANSACTIONAL, Handler
from oncemq.apps.handler_loop import TakenMessages
from oncemq.client.aio.client import AsyncClient
from oncemq.client.blocking.client import Client
from oncemq.databases.connections import awaited
from oncemq.errors import Refused
from oncemq.protocol.records import Retention

T = TypeVar("T")

FOREVER = Retention(forever=True)
POLL_SECONDS = 0.2  # one long poll; a stop is noticed after it


class Nothing(Exception):
    """No message came: the transaction is given up, for an empty commit would be a record too."""


class ClientHandlerIO:
    """A client's verbs for one handler; how to call it and how to pause, each shell adds."""

    def __init__(self, handler: Handler, client: Client | AsyncClient) -> None:
        self._handler = handler
        self._client = client
        into, awaitable = handler.options.into, isinstance(client, AsyncClient)
        self._attachment = None if into is None else Attachment(into, awaitable=awaitable)

    async def subscribe(self) -> bool:
        """Have the subscription; whether it was made now."""
        start = self._handler.options.start
        return await awaited(self._client.subscribe(self._handler.topic, start=start))

    @asynccontextmanager
    async def take(self, limit: int) -> AsyncGenerator[TakenMessages]:
        """Messages, settled with whatever the block did."""
        client, topic, wait = self._client, self._handler.topic, POLL_SECONDS
        if self._handler.kind == TRANSACTIONAL:
            required = self._handler.options.required
            with suppress(Nothing):
                async with entered(client.transaction(required=required)) as transaction:
                    messages = await awaited(transaction.get(topic, limit=limit, wait=wait))
                    yield TakenMessages(messages, transaction=transaction)
                    if not messages:
                        raise Nothing
            return
        into = None if self._attachment is None else await self._attachment.get()
        async with entered(client.consume(topic, limit=limit, wait=wait, into=into)) as messages:
            yield TakenMessages(messages, connection=into)

    async def output(self, taken: TakenMessages, payloads: list[bytes]) -> None:
        """Put what the handler returned, in the transaction of its message."""
        if payloads:
            await awaited(taken.transaction.put_many(self._handler.options.to, payloads))

    async def bury(self, letter: Sealed) -> None:
        """Put a dead letter, once; what is there already under its key stays."""
        await keep_forever(self._client, self._handler.dead)
        try:
            await awaited(
                self._client.put(
                    self._handler.dead,
                    letter.payload,
                    key=letter.key,
                    headers=letter.headers,
                    idempotency_key=letter.idempotency_key,
                    required=True,
                )
            )
        except Refused as refused:
            if refused.code != "payload_conflict":
                raise  # else: put before, by a start whose note was lost

    async def sound(self) -> bool:
        """Whether a failure was the handler's: nothing that it stands on is broken."""
        return self._attachment is None or await self._attachment.is_sound()

    async def aclose(self) -> None:
        """Let go of the database."""
        if self._attachment is not None:
            await self._attachment.close()


async def keep_forever(client: Client | AsyncClient, topic: str) -> None:
    """Have a topic that keeps what nobody subscribes to; one that keeps anything is left so."""
    made = await awaited(client.create_topic(topic, FOREVER))
    if not made:
        shown = await awaited(client.topic(topic))
        if not shown.topic.retention.keeps:
            await awaited(client.configure_topic(topic, FOREVER))


@asynccontextmanager
async def entered(
    block: AbstractContextManager[T] | AbstractAsyncContextManager[T],
) -> AsyncGenerator[T]:
    """Enter a block of either client."""
    if isinstance(block, AbstractAsyncContextManager):
        async with block as found:
            yield found
    else:
        with block as found:
            yield found
