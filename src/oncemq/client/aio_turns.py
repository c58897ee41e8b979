"""Coroutines taking turns at one engine, moved by the event loop: `client.turns` for asyncio.

The socket's descriptor is watched with `add_reader` and drained without waiting, which costs
a quarter of `zmq.asyncio`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from oncemq.client.engine import Engine
from oncemq.client.turns import monotonic_clock
from oncemq.client.verbs import Verb
from oncemq.errors import Unreachable

T = TypeVar("T")

IDLE_SECONDS = 0.2


class AsyncTurns:
    """The waiting of an asyncio client, in the loop it was opened in."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._engine = engine
        self._timeout = timeout
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._moved = asyncio.Event()

    async def run(self, verb: Verb[T], *, timeout: float | None = None) -> T:
        """Carry out a verb, waiting for each ticket it yields."""
        try:
            ticket = next(verb)
            while True:
                waited = ticket
                await self.wait_until(lambda t=waited: t.done, timeout, "an answer")
                ticket = verb.send(None)
        except StopIteration as end:
            return end.value
        finally:
            verb.close()

    async def wait_until(self, ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Move the engine until `ready`."""
        limit = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                while True:
                    self.pump()
                    if ready():
                        return
                    if self._engine.failure is not None:
                        raise self._engine.failure
                    if self.closed:
                        raise Unreachable("the client is closed")
                    await self._moved.wait()
        except TimeoutError:
            raise self._engine.gave_up(limit, what) from None

    def pump(self) -> None:
        """Move the engine, wake who waits, and come back when there is reason to."""
        if self.closed:
            return
        self._soon = None
        self._engine.pump()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        self._watch()

    def pump_soon(self) -> None:
        """Once for all puts of this turn of the loop."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self.pump)

    def _watch(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        descriptors = self._engine.descriptors
        if descriptors != self._watched:
            for descriptor in self._watched:
                loop.remove_reader(descriptor)
            for descriptor in descriptors:
                loop.add_reader(descriptor, self.pump)
            self._watched = descriptors
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._engine.next_deadline()
        pause = IDLE_SECONDS
        if deadline is not None:
            pause = min(pause, max(0.001, (deadline - monotonic_clock()) / 1_000_000))
        self._timer = loop.call_later(pause, self.pump)

    def close(self) -> None:
        """No pump after this; whoever still waits learns that it is over."""
        self.closed = True
        self._moved.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            for descriptor in self._watched:
                self._loop.remove_reader(descriptor)
        self._watched = ()
