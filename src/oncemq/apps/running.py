"""An app that runs: a thread for each blocking handler, a task for each awaitable one.

Laws: a stop lets each handler finish the message in hand and settle it; one handler that cannot
go on (fenced, say) stops them all, and its error is raised: half an app is worse than a restart.
"""

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncemq.apps.aio import AsyncHandlerIO
from oncemq.apps.blocking import BlockingHandlerIO, drive
from oncemq.apps.handler import Handler
from oncemq.apps.handler_loop import HandlerLoop
from oncemq.client.aio.client import AsyncClient
from oncemq.client.blocking.client import Client
from oncemq.client.state.paths import directory_name, state_directory
from oncemq.client.state.state import open_state

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DOUBLED_SECONDS = 1.0  # a terminal and a parent may both pass on one Ctrl-C

Hook = Callable[[], Any]

logger = logging.getLogger("oncemq.app")


@dataclass(frozen=True, slots=True)
class Setup:
    """What an app runs with."""

    id: str
    server: str | Sequence[str]
    state: Path | None
    timeout: float
    handlers: tuple[Handler, ...]
    startup: tuple[Hook, ...]
    shutdown: tuple[Hook, ...]

    def client_id(self, handler: Handler) -> str:
        """The client that a handler is to the server."""
        return f"{self.id}.{handler.name}"

    def directory(self, handler: Handler) -> Path:
        """Where that client's state lives."""
        client = self.client_id(handler)
        return state_directory(client, self.state and self.state / directory_name(client))


class AppRun:
    """One run of an app, in the event loop it was made in."""

    def __init__(self, setup: Setup, ready: Callable[[], None]) -> None:
        self._setup = setup
        self._ready = ready
        self._waiting = len(setup.handlers)  # handlers that have no subscription yet
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._stop_threads = threading.Event()

    def stop(self) -> None:
        """Finish what is in hand, settle, end. From the loop's own thread."""
        if not self._stop.is_set():
            logger.info("app stops app=%s", self._setup.id)
        self._stop.set()
        self._stop_threads.set()

    def stop_soon(self) -> None:
        """The same, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self.stop)

    async def serve(self) -> None:
        """Until `stop`, or until a handler cannot go on; raises what that one met."""
        setup = self._setup
        blocking = sum(not each.signature.awaitable for each in setup.handlers)
        for hook in setup.startup:
            await _call(hook)
        try:
            with ThreadPoolExecutor(max(1, blocking), f"{setup.id}-handler") as threads:
                await self._serve(threads)
        finally:
            for hook in setup.shutdown:
                await _call(hook)
        logger.info("app stopped app=%s", setup.id)

    async def _serve(self, threads: ThreadPoolExecutor) -> None:
        works = [
            asyncio.ensure_future(
                self._awaitable(each)
                if each.signature.awaitable
                else self._loop.run_in_executor(threads, self._blocking, each)
            )
            for each in self._setup.handlers
        ]
        try:
            stopped = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([stopped, *works], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        finally:
            self.stop()
            await _all(works)

    def _blocking(self, handler: Handler) -> None:
        setup = self._setup
        directory = setup.directory(handler)
        client_id = setup.client_id(handler)
        state = open_state(client_id, directory)
        with (
            Client(setup.server, state=state, timeout=setup.timeout) as client,
            closing(BlockingHandlerIO(handler, client, self._stop_threads)) as hands,
        ):
            work = HandlerLoop(
                handler,
                hands,
                client=client_id,
                directory=directory,
                hold=state.hold,
                stopping=self._stop_threads.is_set,
            )
            drive(work.run(self._one_is_ready_soon))

    async def _awaitable(self, handler: Handler) -> None:
        setup = self._setup
        directory = setup.directory(handler)
        client_id = setup.client_id(handler)
        state = open_state(client_id, directory)
        async with (
            AsyncClient(setup.server, state=state, timeout=setup.timeout) as client,
            aclosing(AsyncHandlerIO(handler, client, self._stop)) as hands,
        ):
            work = HandlerLoop(
                handler,
                hands,
                client=client_id,
                directory=directory,
                hold=state.hold,
                stopping=self._stop.is_set,
            )
            await work.run(self._one_is_ready)

    def _one_is_ready(self) -> None:
        self._waiting -= 1
        if self._waiting == 0 and not self._stop.is_set():
            logger.info("app ready app=%s handlers=%d", self._setup.id, len(self._setup.handlers))
            self._ready()

    def _one_is_ready_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._one_is_ready)

    # Signals

    def take_signals(self) -> None:
        """The first asks the app to stop; a later one is the system's own: it ends at once."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        for number in SIGNALS:
            self._loop.add_signal_handler(number, nothing)
        self._loop.call_later(DOUBLED_SECONDS, self._end_at_the_next_signal)
        self.stop()

    def _end_at_the_next_signal(self) -> None:
        self.give_signals_back()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def give_signals_back(self) -> None:
        """As they were before."""
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)


def nothing(_: object = None) -> None:
    """Nobody asked to be told."""


async def serve(
    setup: Setup,
    *,
    signals: bool = False,
    started: Callable[[AppRun], None] = nothing,
    ready: Callable[[], None] = nothing,
) -> None:
    """One run; `started` is told how to stop it."""
    run = AppRun(setup, ready)
    started(run)
    signals = signals and threading.current_thread() is threading.main_thread()
    if signals:
        run.take_signals()
    try:
        await run.serve()
    finally:
        if signals:
            run.give_signals_back()


class Background:
    """A run on a thread of its own; made when it is ready, or raises why it never will be."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._run: AppRun | None = None
        self._error: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"{setup.id}-app", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self.stop()

    def stop(self) -> None:
        """Finish what is in hand; raises what ended the app, if that was not this."""
        if self._run is not None and self._error is None:
            self._run.stop_soon()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        try:
            asyncio.run(serve(self._setup, started=self._started, ready=self._ready.set))
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    def _started(self, run: AppRun) -> None:
        self._run = run


async def _call(hook: Hook) -> None:
    answer = hook()
    if inspect.isawaitable(answer):
        await answer


async def _all(works: Sequence[Awaitable[None]]) -> None:
    """Wait for every one; the first error, once all have ended."""
    outcomes = await asyncio.shield(asyncio.gather(*works, return_exceptions=True))
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
