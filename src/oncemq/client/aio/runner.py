"""Coroutines taking turns at one engine, moved by the event loop.

The descriptors of the engine are watched with `add_reader`, and what came is taken without waiting.

One loop has a client at a time: the one that runs when a verb is asked for. It goes along to
another when the one before does not run any more (`asyncio.run` twice, a loop for each test), and
is refused to another while it does: two threads would move the engine at once.

The loop keeps a client alive only while puts of it are unsent. One that nobody closed is closed
when it is collected, or when the process ends, and that waits for nobody.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import TypeVar

from oncemq.client.aio.getting import AsyncGetting
from oncemq.client.aio.pending import AsyncAnswering
from oncemq.client.clock import monotonic_clock
from oncemq.client.context import CLOSED
from oncemq.client.engine.engine import Engine
from oncemq.client.engine.survival import surviving
from oncemq.client.shell.abandoned import let_go
from oncemq.client.shell.forks import tell_of_forks
from oncemq.client.ticket import Ticket
from oncemq.client.values import Receipts
from oncemq.client.verbs.messages import Verb
from oncemq.errors import Forked, InvalidRequest, Unreachable

T = TypeVar("T")

IDLE_SECONDS = 0.2


class LoopLock:
    """In place of a lock: nothing comes between two awaits, so it only has to be the right loop.

    Signals are not put off either: asyncio turns Ctrl-C into a cancelled task. `plain` is for what
    was begun under it.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self.plain = nullcontext()

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, *_: object) -> None: ...


class AsyncRunner:
    """The waiting of an asyncio client, in the loop that has it."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._engine = engine
        self._timeout = timeout
        self.lock = LoopLock(self._go_along)
        self.closed = False
        self.getting = self._new_getting()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch = WatchedDescriptors()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._moved = asyncio.Event()
        self._readable = True  # a descriptor of the engine's is, or it is not known
        tell_of_forks(self)
        weakref.finalize(self, _close_for_good, engine, self._watch)

    def begin(self) -> None:
        """Connect, and send what an earlier start left unsent; later, where no loop runs yet."""
        with suppress(RuntimeError):
            self.pump_soon()

    def check(self) -> None:
        """Refuse who cannot go on: in a closed client, a fork's copy, or beside its loop."""
        self._engine.check_open()
        self._go_along()

    async def run(self, verb: Verb[T], *, timeout: float | None = None) -> T:
        """Carry out a verb, waiting for each ticket it yields."""
        self.check()
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
        await self.wait_here(ready, timeout, what)

    async def wait_here(self, ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        """The same: there is no lock to have."""
        self.check()
        limit = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                while True:
                    self.pump()
                    if ready():
                        return
                    if self._engine.failure is not None:
                        raise self._engine.failure.with_traceback(None)
                    if self.closed:
                        raise Unreachable(CLOSED, code="closed")
                    await self._moved.wait()
        except TimeoutError:
            raise self._engine.gave_up(limit, what) from None

    def change(self, change: Callable[[], None]) -> None:
        """Carry out what the end of a block changes; the loop ends what nobody has by itself."""
        with self.lock:
            change()

    def puts_off(self, close: Callable[[], object]) -> bool:
        """Whether a close is carried out later: not here, nothing comes between two awaits."""
        del close
        return False

    def pump(self) -> None:
        """Move the engine, wake who waits, and come back when there is reason to."""
        if self.closed:
            return
        self._soon = None
        readable, self._readable = self._readable, False
        self._engine.pump(readable=readable)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        self._come_back()

    def pump_alone(self) -> None:
        """As a callback of a descriptor or of the timer.

        Nobody waits here, so who asks next must hear of what went wrong.
        """
        self._readable = True
        with surviving(self._engine):
            self.pump()
        if self._engine.failure is not None:
            self._moved.set()

    def pump_soon(self) -> None:
        """Once for all puts of this turn of the loop."""
        self._go_along()
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self.pump_alone)

    def append(
        self, topic: str, payload: bytes, durable: bool, required: bool, turns: AsyncAnswering
    ) -> None:
        """On an event loop every put takes the long way, which makes it a future."""

    async def answer(self, ticket: Ticket[Receipts], timeout: float | None) -> Receipts:
        """The receipts of a batch, waited for."""
        if not ticket.done:
            await self.wait_until(lambda: ticket.done, timeout, "the receipt")
        return ticket.result()

    def see_out(self, *, now: bool = False) -> None:
        """A put that nobody waits for leaves with the others of this turn of the loop, or now."""
        self.pump() if now else self.pump_soon()

    def _go_along(self) -> None:
        """To the loop that runs now, if that is another one than before."""
        if self.closed:
            return  # every verb says so
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # something is let go of where no loop runs
        before = self._loop
        if loop is before:
            return
        if before is not None and before.is_running():
            raise InvalidRequest(
                "this client is used in another event loop, which runs: ask it there "
                "(asyncio.run_coroutine_threadsafe does), or make a client for this loop"
            )
        self._loop = loop
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        self._timer = self._soon = None
        self._watch.end()
        self._readable = True
        moved, self._moved = self._moved, asyncio.Event()
        if before is not None and before.is_closed():
            self.getting.end_closed()  # and who waits there waits for ever
        else:
            moved.set()  # who waits there looks again when it runs

    def _new_getting(self) -> AsyncGetting:
        return AsyncGetting(self.check, partial(_put_back, self._engine))

    def _come_back(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # what a closed loop left open is collected; the next verb comes back
        weakly = partial(_pump_if_alive, weakref.ref(self))
        self._watch.change(loop, self._engine.descriptors, weakly)
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._engine.next_deadline()
        pause = IDLE_SECONDS
        if deadline is not None:
            pause = min(pause, max(0.001, (deadline - monotonic_clock()) / 1_000_000))
        self._timer = loop.call_later(
            pause, weakly if self._engine.outflow.idle else self.pump_alone
        )

    def close(self) -> None:
        """No pump after this; whoever still waits learns that it is over."""
        self.closed = True
        self._moved.set()
        self.getting.refuse_all(Unreachable(CLOSED, code="closed"))
        if self._timer is not None:
            self._timer.cancel()
        self._watch.end()

    def forked(self, error: Forked) -> None:
        """In a child of a fork: the loop's descriptors are the parent's, too, and not touched."""
        self.getting = self._new_getting()
        self.closed = True
        self._engine.disown(error)


class WatchedDescriptors:
    """The descriptors that a loop watches for one client."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._descriptors: tuple[int, ...] = ()

    def change(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptors: tuple[int, ...],
        callback: Callable[[], None],
    ) -> None:
        """Watch these, and no others."""
        if descriptors != self._descriptors:
            self.end()
            self.loop = loop
            for descriptor in descriptors:
                loop.add_reader(descriptor, callback)
            self._descriptors = descriptors

    def end(self) -> None:
        """Watch nothing; before the descriptors are closed, or the loop takes others for them."""
        if self.loop is not None and not self.loop.is_closed():
            for descriptor in self._descriptors:
                self.loop.remove_reader(descriptor)
        self._descriptors = ()


def _put_back(engine: Engine, feeds: Iterable[str]) -> None:
    for feed in feeds:
        engine.subscriber.prefetched.put_back(feed)
    engine.listening.live.put_back()


def _pump_if_alive(reference: "weakref.ref[AsyncRunner]") -> None:
    turns = reference()
    if turns is not None:
        turns.pump_alone()


def _close_for_good(engine: Engine, watch: WatchedDescriptors) -> None:
    """Nobody has these turns any more, or the process ends."""
    if engine.closed:
        return
    if watch.loop is not None and watch.loop.is_running():
        # The collector may run in another thread, or in the middle of the loop's own work.
        watch.loop.call_soon_threadsafe(_close_now, engine, watch)
    else:
        _close_now(engine, watch)


def _close_now(engine: Engine, watch: WatchedDescriptors) -> None:
    watch.end()
    let_go(engine)
