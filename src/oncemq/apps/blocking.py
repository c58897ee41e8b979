"""The hands of a blocking handler: a client of its own, on a thread of its own."""

import threading
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from oncemq.apps.connecting import Attachment
from oncemq.apps.dead_letters import Sealed
from oncemq.apps.handler import TRANSACTIONAL, Handler
from oncemq.apps.handler_loop import TakenMessages
from oncemq.client.blocking.client import Client
from oncemq.errors import Refused
from oncemq.protocol.records import Retention

T = TypeVar("T")

FOREVER = Retention(forever=True)
POLL_SECONDS = 0.2  # one long poll; a stop is noticed after it


class Nothing(Exception):
    """No message came: the transaction is given up, for an empty commit would be a record too."""


class BlockingHandlerIO:
    """A client's verbs, carried out at once."""

    def __init__(self, handler: Handler, client: Client, stop: threading.Event) -> None:
        self._handler = handler
        self._client = client
        self._stop = stop
        into = handler.options.into
        self._attachment = None if into is None else Attachment(into)

    async def subscribe(self) -> bool:
        """Have the subscription; whether it was made now."""
        return self._client.subscribe(self._handler.topic, start=self._handler.options.start)

    @asynccontextmanager
    async def take(self, limit: int) -> AsyncGenerator[TakenMessages]:
        """Messages, settled with whatever the block did."""
        topic, wait = self._handler.topic, POLL_SECONDS
        if self._handler.kind == TRANSACTIONAL:
            required = self._handler.options.required
            with suppress(Nothing), self._client.transaction(required=required) as transaction:
                messages = transaction.get(topic, limit=limit, wait=wait)
                yield TakenMessages(messages, transaction=transaction)
                if not messages:
                    raise Nothing
            return
        into = None if self._attachment is None else self._attachment.get()
        with self._client.consume(topic, limit=limit, wait=wait, into=into) as messages:
            yield TakenMessages(messages, connection=into)

    async def call(self, payload: Any, extras: dict[str, Any]) -> Any:
        """The handler itself; all it yields, when it yields."""
        answer = self._handler.function(payload, **extras)
        return list(answer) if self._handler.signature.yields else answer

    async def output(self, taken: TakenMessages, payloads: list[bytes]) -> None:
        """Put what the handler returned, in the transaction of its message."""
        if payloads:
            taken.transaction.put_many(self._handler.options.to, payloads)

    async def bury(self, letter: Sealed) -> None:
        """Put a dead letter, once; what is there already under its key stays."""
        keep_forever(self._client, self._handler.dead)
        try:
            self._client.put(
                self._handler.dead,
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
        return self._attachment is None or self._attachment.is_sound()

    async def pause(self, seconds: float) -> None:
        """Wait; not longer than until the app is to stop."""
        self._stop.wait(seconds)

    def close(self) -> None:
        """Let go of the database."""
        if self._attachment is not None:
            self._attachment.close()


def keep_forever(client: Client, topic: str) -> None:
    """Have a topic that keeps what nobody subscribes to; one that keeps anything is left so."""
    made = client.create_topic(topic, FOREVER)
    if not made and not client.topic(topic).topic.retention.keeps:
        client.configure_topic(topic, FOREVER)


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run work whose hands are blocking: it goes through in one go."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("blocking hands wait for no event loop")
