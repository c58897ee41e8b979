"""The asyncio client: the same engine and verbs, moved by the event loop.

Use it from the loop it was opened in.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from oncemq.client.aio.columns import AsyncColumnar
from oncemq.client.aio.listener import AsyncListener, Owner
from oncemq.client.aio.puts import AsyncPublishing
from oncemq.client.aio.runner import AsyncRunner
from oncemq.client.blocking.client import AWAY_SECONDS
from oncemq.client.checks import wait_ms_of
from oncemq.client.shell.opening import open_engine
from oncemq.client.shell.turn_taking import AsyncBlock
from oncemq.client.state.state import State
from oncemq.client.values import Message
from oncemq.client.verbs import messages as verbs
from oncemq.client.verbs.messages import Where
from oncemq.errors import OnceMQError, Unreachable
from oncemq.protocol.records import Retention
from oncemq.protocol.replies import SubscriptionInfo, TopicInfo, TopicShown
from oncemq.session.inbox_rule import Inbox
from oncemq.session.subscriber import several

T = TypeVar("T")


class AsyncClient(AsyncPublishing, AsyncColumnar):
    """A publisher and subscriber for asyncio, with the verbs of `Client`, awaitable."""

    def __init__(
        self,
        server: str | Sequence[str] = "",
        *,
        id: str | None = None,
        state: str | Path | State | None = None,
        timeout: float = 30.0,
        outbox_bytes_max: int = 256 << 20,
    ) -> None:
        self._engine = open_engine(
            server, id, state, timeout=timeout, outbox_bytes_max=outbox_bytes_max
        )
        self._timeout = timeout
        self._turns = AsyncRunner(self._engine, timeout)
        self._inbox = Inbox(self._engine.losses.over)

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

    def __repr__(self) -> str:
        closed = " closed" if self._turns.closed else ""
        return f"<AsyncClient {self.id!r} of {self._engine.address}{closed}>"

    # Subscribing

    async def subscribe(self, topic: str, *, start: Where = "new") -> bool:
        """Subscribe from now on (or from 'earliest', an offset, a time); False: already so.

        When the answer was lost on its way and the client asked again, False may be said of a
        subscription that this very call has made. Either way there is one when it returns.
        """
        return await self._turns.run(verbs.subscribe(self._engine, topic, start))

    async def unsubscribe(self, topic: str) -> bool:
        """End the subscription; False when there was none."""
        return await self._turns.run(verbs.unsubscribe(self._engine, topic))

    async def unsubscribe_all(self) -> int:
        """End every subscription of this client; how many there were."""
        return await self._turns.run(verbs.unsubscribe_all(self._engine))

    async def get(
        self, topic: str | None = None, *, limit: int = 1, wait: float = 0.0
    ) -> list[Message]:
        """The next messages of a topic, or of any subscribed one, oldest first; [] when none."""
        async with self._turns.getting.block(topic or ""):
            messages = await self._take(topic, limit, wait)
            verbs.settle(self._engine, messages)
            return messages

    @asynccontextmanager
    async def consume(
        self,
        topic: str | None = None,
        *,
        limit: int = 100,
        wait: float = 5.0,
        into: object | None = None,
    ) -> AsyncGenerator[list[Message]]:
        """Messages that are settled when the block ends well, and come again when it raises.

        `into`: a connection to your own database, on which the block is one transaction: what
        you write there and the cursor are committed together, exactly once.
        """
        async with self._turns.getting.block(topic or ""):
            try:
                if into is not None:
                    async with self._block(into, topic or "", limit, wait) as messages:
                        yield messages
                    return
                messages = await self._take(topic, limit, wait)
                yield messages
            except BaseException:
                self._engine.subscriber.put_back(topic or "")
                raise
            verbs.settle(self._engine, messages)

    def listen(self, *topics: str, wait: float = 20.0) -> AsyncGenerator[Message]:
        """Messages as they come, without end; each is settled when the next is asked for.

        It is over when you leave the loop. Where you keep the iterator, close it
        (`contextlib.aclosing` does): until then its topics cannot be got from.
        """
        return AsyncListener(lambda owner: self._listen(owner, topics, wait))

    async def read(self, topic: str, offset: int, *, limit: int = 100) -> list[Message]:
        """Stored messages from an offset on, without a subscription; settles nothing."""
        return await self._turns.run(verbs.read(self._engine, topic, offset, limit))

    # Topics and the server

    async def topics(self) -> list[TopicInfo]:
        """Every topic of the server."""
        return await self._turns.run(verbs.topics(self._engine))

    async def topic(self, name: str) -> TopicShown:
        """One topic, its subscriptions, and why what it holds is kept."""
        return await self._turns.run(verbs.topic(self._engine, name))

    async def create_topic(self, name: str, retention: Retention | None = None) -> bool:
        """Make a topic; False when it was there."""
        return await self._turns.run(
            verbs.create_topic(self._engine, name, retention or Retention())
        )

    async def configure_topic(self, name: str, retention: Retention) -> bool:
        """Change what a topic keeps; False when it was so already."""
        return await self._turns.run(verbs.configure_topic(self._engine, name, retention))

    async def delete_topic(self, name: str) -> bool:
        """Delete a topic, its messages, subscriptions and numbers."""
        return await self._turns.run(verbs.delete_topic(self._engine, name))

    async def subscriptions(
        self, topic: str | None = None, client: str | None = None
    ) -> list[SubscriptionInfo]:
        """Subscriptions with their cursors."""
        return await self._turns.run(verbs.subscriptions(self._engine, topic, client))

    async def status(self) -> dict[str, str | int | float | bool]:
        """The server's counters and promises."""
        return await self._turns.run(verbs.status(self._engine))

    # Ending

    async def close(self) -> None:
        """Send what is unsent, tell what is settled, let go.

        Raises what a put that nobody looked at met, as `flush` does.
        """
        await self._close(self._timeout)

    async def __aenter__(self) -> Self:
        self._turns.pump_soon()
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
        if self._turns.closed:
            return
        lost: OnceMQError | None = None
        try:
            if timeout > 0:
                lost = await self._last_words(timeout)
        finally:
            self._turns.close()
            self._engine.close()
        if lost is not None:
            raise lost

    async def _last_words(self, timeout: float) -> OnceMQError | None:
        outflow = self._engine.outflow
        try:
            if not self._engine.connected and not outflow.unrecorded:
                timeout = min(timeout, AWAY_SECONDS)
            await self._turns.wait_until(lambda: outflow.idle, timeout, "the last puts")
            await self._turns.run(verbs.leave(self._engine), timeout=min(timeout, 2.0))
        except Unreachable as unreachable:
            return unreachable if outflow.unrecorded else None
        except OnceMQError:
            pass  # it is done for: what became of its puts is all there is to say
        return outflow.take_failure()

    async def _listen(
        self, owner: Owner, topics: tuple[str, ...], wait: float
    ) -> AsyncGenerator[Message, None]:
        engine, getting, listening = self._engine, self._turns.getting, self._engine.listening
        engine.check_own()

        def give_up() -> None:
            listening.put_back(topics)
            listening.leave(topics)

        while not self._turns.closed:
            with getting.inside(AsyncBlock(owner, give_up)) as block:
                try:
                    await getting.add(block, several(topics))
                    taking = listening.take(topics, 100, wait_ms_of(wait))
                    taken = await self._turns.run(taking, timeout=self._timeout + wait)
                    # Asked before each: an unsubscribe may come between two of them (G6).
                    for message in filter(engine.subscriber.has, taken):
                        yield message
                        verbs.settle_one(engine, message)
                except BaseException:
                    if not block.over:  # else it has been given up, and others get by now
                        give_up()
                    raise

    async def _take(self, topic: str | None, limit: int, wait: float) -> list[Message]:
        verb = verbs.take(self._engine, topic or "", limit, wait_ms_of(wait))
        return await self._turns.run(verb, timeout=self._timeout + wait)

    def _block(
        self, into: object, topic: str, limit: int, wait: float
    ) -> AbstractAsyncContextManager[list[Message]]:
        from oncemq.client.shell.inbox_blocks import block_awaitable  # loaded by those who use it

        wait_until, engine, inbox = self._turns.wait_until, self._engine, self._inbox
        return block_awaitable(wait_until, engine, inbox, into, topic, limit, wait=wait)
