"""The asyncio client: the same engine and verbs, moved by the event loop.

The socket's descriptor is watched with `add_reader` and drained without waiting, which costs
a quarter of `zmq.asyncio`. Use it from the loop it was opened in.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar, overload

from oncemq.client import verbs
from oncemq.client.blocking import AWAY_SECONDS, FLOW_BYTES, encode_many, payload_of
from oncemq.client.engine import Engine
from oncemq.client.outflow import GATHER_MESSAGES
from oncemq.client.settings import DEFAULT_SERVER, Settings, servers_from
from oncemq.client.state import open_state
from oncemq.client.ticket import Ticket
from oncemq.client.turns import monotonic_clock
from oncemq.client.values import Headers, Message, Receipt, Receipts
from oncemq.client.verbs import Verb, Where
from oncemq.core.records import Retention
from oncemq.core.replies import SubscriptionInfo, TopicInfo, TopicShown
from oncemq.core.subscriber import several
from oncemq.errors import OnceMQError, OutboxFull, Unreachable
from oncemq.transport.link import Link
from oncemq.wire import batch

T = TypeVar("T")

IDLE_SECONDS = 0.2


class AsyncClient:
    """A publisher and subscriber for asyncio, with the verbs of `Client`, awaitable."""

    def __init__(
        self,
        server: str | Sequence[str] = DEFAULT_SERVER,
        *,
        id: str | None = None,
        state: str | Path | None = None,
        timeout: float = 30.0,
        outbox_bytes_max: int = 256 << 20,
    ) -> None:
        settings = Settings(servers_from(server), timeout, outbox_bytes_max, random.random)
        self._state = open_state(id, state)
        try:
            self._engine = Engine(settings, self._state, Link(), monotonic_clock)
        except BaseException:
            self._state.close()
            raise
        self._timeout = timeout
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._moved = asyncio.Event()
        self._getting = asyncio.Lock()

    @property
    def id(self) -> str:
        """The client's id; a made-up one when it is anonymous."""
        return self._engine.client

    @property
    def unsent(self) -> int:
        """Messages put that have no receipt yet."""
        return self._engine.outflow.unsent

    @property
    def counters(self) -> dict[str, int]:
        """Requests sent (retries included), and duplicates the server recognized."""
        engine = self._engine
        return {"sends": engine.exchanges.sends, "duplicates": engine.outflow.duplicates}

    # Publishing

    @overload
    async def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: Literal[True] = ...,
    ) -> Receipt: ...  # fmt: skip
    @overload
    async def put(
        self, topic: str, payload: bytes, *, key: bytes | None = ..., headers: Headers | None = ...,
        durable: bool = ..., wait: bool,
    ) -> Receipt | asyncio.Future[Receipt]: ...  # fmt: skip
    async def put(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        durable: bool = True,
        wait: bool = True,
    ) -> Receipt | asyncio.Future[Receipt]:
        """Put a message; its receipt, once the server has it on disk.

        `wait=False` gives a future of the receipt and gathers single puts into batches.
        """
        outflow = self._engine.outflow
        item = batch.Item(payload_of(payload), key, headers)
        await self._room_for(topic, len(item.payload))
        if not wait:
            side = item if key is not None or headers else None
            ticket, place, full = outflow.gather(topic, (item.payload,), side, lasting=durable)
            self._pump() if full else self._pump_soon()
            return self._future(ticket, lambda receipts: receipts[place])
        columns, body = batch.encode([item])
        ticket = outflow.put(topic, count=1, columns=columns, body=body, lasting=durable)
        return (await self._receipts(ticket))[0]

    @overload
    async def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ...,
        wait: Literal[True] = ...,
    ) -> Receipts: ...  # fmt: skip
    @overload
    async def put_many(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = ...,
        headers: Sequence[Headers | None] | None = ..., durable: bool = ..., wait: bool,
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
    ) -> Receipts | asyncio.Future[Receipts]:
        """Put a batch: stored whole or not at all, in one record (with others, when small)."""
        if not payloads:
            return Receipts(Receipt(topic, None, stored=False, duplicate=False), 0)
        outflow = self._engine.outflow
        plain = keys is None and headers is None
        if plain and not wait and len(payloads) < GATHER_MESSAGES:
            await self._room_for(topic, max(map(len, payloads)))
            ticket, place, full = outflow.gather(topic, payloads, None, lasting=durable)
            self._pump() if full else self._pump_soon()
            count = len(payloads)
            return self._future(ticket, lambda receipts: receipts.part(place, count))
        columns, body = encode_many(payloads, keys, headers)
        await self._room_for(topic, outflow.largest(payloads, body), len(body))
        ticket = outflow.put(
            topic, count=len(payloads), columns=columns, body=body, lasting=durable
        )
        if not wait:
            self._pump()
            return self._future(ticket, lambda receipts: receipts)
        return await self._receipts(ticket)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every put has its answer; raises what a put that nobody looked at met."""
        outflow = self._engine.outflow
        await self._wait_until(lambda: outflow.idle, timeout, "the puts made so far")
        error = self._engine.failure or outflow.take_failure()
        if error is not None:
            raise error

    # Subscribing

    async def subscribe(self, topic: str, *, start: Where = "new") -> bool:
        """Subscribe from now on (or from 'earliest', an offset, a time); False: already so."""
        return await self._run(verbs.subscribe(self._engine, topic, start))

    async def unsubscribe(self, topic: str) -> bool:
        """End the subscription; False when there was none."""
        return await self._run(verbs.unsubscribe(self._engine, topic))

    async def unsubscribe_all(self) -> int:
        """End every subscription of this client; how many there were."""
        return await self._run(verbs.unsubscribe_all(self._engine))

    async def get(
        self, topic: str | None = None, *, limit: int = 1, wait: float = 0.0
    ) -> list[Message]:
        """The next messages of a topic, or of any subscribed one, oldest first; [] when none."""
        async with self._getting:
            messages = await self._take(topic, limit, wait)
            verbs.settle(self._engine, messages)
            return messages

    @asynccontextmanager
    async def consume(
        self, topic: str | None = None, *, limit: int = 100, wait: float = 5.0
    ) -> AsyncGenerator[list[Message]]:
        """Messages that are settled when the block ends well, and come again when it raises."""
        async with self._getting:
            messages = await self._take(topic, limit, wait)
            try:
                yield messages
            except BaseException:
                self._engine.subscriber.put_back(topic or "")
                raise
            verbs.settle(self._engine, messages)

    async def listen(self, *topics: str, wait: float = 20.0) -> AsyncIterator[Message]:
        """Messages as they come, without end; each is settled when the next is asked for."""
        topic = several(topics)
        while not self._closed:
            async with self._getting:
                messages = await self._take(topic, 100, wait)
                try:
                    for message in messages:
                        yield message
                        verbs.settle(self._engine, [message])
                except GeneratorExit:
                    self._engine.subscriber.put_back(topic)
                    raise

    async def read(self, topic: str, offset: int, *, limit: int = 100) -> list[Message]:
        """Stored messages from an offset on, without a subscription; settles nothing."""
        return await self._run(verbs.read(self._engine, topic, offset, limit))

    # Topics and the server

    async def topics(self) -> list[TopicInfo]:
        """Every topic of the server."""
        return await self._run(verbs.topics(self._engine))

    async def topic(self, name: str) -> TopicShown:
        """One topic, its subscriptions, and why what it holds is kept."""
        return await self._run(verbs.topic(self._engine, name))

    async def create_topic(self, name: str, retention: Retention | None = None) -> bool:
        """Make a topic; False when it was there."""
        return await self._run(verbs.create_topic(self._engine, name, retention or Retention()))

    async def configure_topic(self, name: str, retention: Retention) -> bool:
        """Change what a topic keeps; False when it was so already."""
        return await self._run(verbs.configure_topic(self._engine, name, retention))

    async def delete_topic(self, name: str) -> bool:
        """Delete a topic, its messages, subscriptions and numbers."""
        return await self._run(verbs.delete_topic(self._engine, name))

    async def subscriptions(
        self, topic: str | None = None, client: str | None = None
    ) -> list[SubscriptionInfo]:
        """Subscriptions with their cursors."""
        return await self._run(verbs.subscriptions(self._engine, topic, client))

    async def status(self) -> dict[str, str | int | float | bool]:
        """The server's counters and promises."""
        return await self._run(verbs.status(self._engine))

    # Ending

    async def close(self) -> None:
        """Send what is unsent, tell what is settled, let go."""
        await self._close(self._timeout)

    async def __aenter__(self) -> Self:
        self._pump_soon()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(self._timeout if kind is None else 0.0)

    # Inside

    async def _close(self, timeout: float) -> None:
        if self._closed:
            return
        lost: OnceMQError | None = None
        outflow = self._engine.outflow
        try:
            if self._engine.failure is None and timeout > 0:
                if not self._engine.connected and not outflow.unrecorded:
                    timeout = min(timeout, AWAY_SECONDS)
                try:
                    await self._wait_until(lambda: outflow.idle, timeout, "the last puts")
                    await self._run(verbs.leave(self._engine), timeout=min(timeout, 2.0))
                except Unreachable as unreachable:
                    lost = unreachable if outflow.unrecorded else None
        finally:
            self._closed = True
            self._moved.set()  # whoever still waits learns that it is over
            self._unwatch()
            self._engine.close()
        if lost is not None:
            raise lost

    async def _room_for(self, topic: str, largest: int, size: int | None = None) -> None:
        engine, outflow = self._engine, self._engine.outflow
        try:
            outflow.check(topic, largest, size)
        except OutboxFull:
            if not engine.connected:
                raise
            room = engine.settings.outbox_bytes_max // 2
            await self._wait_until(lambda: outflow.unsent_bytes < room, None, "the outbox")
        if outflow.unsent_bytes > FLOW_BYTES and engine.connected:
            await self._wait_until(
                lambda: outflow.unsent_bytes < FLOW_BYTES // 2 or not engine.connected,
                None,
                "earlier puts",
            )

    async def _take(self, topic: str | None, limit: int, wait: float) -> list[Message]:
        verb = verbs.take(self._engine, topic or "", limit, int(wait * 1000))
        return await self._run(verb, timeout=self._timeout + wait)

    def _future(self, ticket: Ticket[Receipts], pick: Callable[[Receipts], T]) -> asyncio.Future[T]:
        async def wait() -> T:
            return pick(await self._receipts(ticket))

        return asyncio.ensure_future(wait())

    async def _receipts(self, ticket: Ticket[Receipts]) -> Receipts:
        ticket.looked_at = True
        await self._wait_until(lambda: ticket.done, None, "the receipt")
        return ticket.result()

    async def _run(self, verb: Verb[T], *, timeout: float | None = None) -> T:
        try:
            ticket = next(verb)
            while True:
                waited = ticket
                await self._wait_until(lambda t=waited: t.done, timeout, "an answer")
                ticket = verb.send(None)
        except StopIteration as end:
            return end.value
        finally:
            verb.close()

    async def _wait_until(
        self, ready: Callable[[], bool], timeout: float | None, what: str
    ) -> None:
        limit = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                while True:
                    self._pump()
                    if ready():
                        return
                    if self._engine.failure is not None:
                        raise self._engine.failure
                    if self._closed:
                        raise Unreachable("the client is closed")
                    await self._moved.wait()
        except TimeoutError:
            raise Unreachable(self._engine.why_not(limit, what)) from None

    def _pump(self) -> None:
        """Move the engine, wake who waits, and come back when there is reason to."""
        if self._closed:
            return
        self._soon = None
        self._engine.pump()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        self._watch()

    def _pump_soon(self) -> None:
        """Once for all puts of this turn of the loop."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._pump)

    def _watch(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        descriptors = self._engine.descriptors
        if descriptors != self._watched:
            for descriptor in self._watched:
                loop.remove_reader(descriptor)
            for descriptor in descriptors:
                loop.add_reader(descriptor, self._pump)
            self._watched = descriptors
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._engine.next_deadline()
        pause = IDLE_SECONDS
        if deadline is not None:
            pause = min(pause, max(0.001, (deadline - monotonic_clock()) / 1_000_000))
        self._timer = loop.call_later(pause, self._pump)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            for descriptor in self._watched:
                self._loop.remove_reader(descriptor)
        self._watched = ()
