"""The block of an inbox in both shells: `with` and `async with` over the same verbs.

Laws: a transaction that was begun here ends here, whatever ends the block; one of the user's own
is never touched. In a process that was forked within the block the connection is the parent's:
nothing is sent on it there, and it is not closed, not even at the end of that process. (A rollback
by a child undoes the parent's writes; on SQLite it damages the file.)
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from oncemq.client.blocking.runner import Runner
from oncemq.client.checks import wait_ms_of
from oncemq.client.engine.engine import Engine
from oncemq.client.state.never_close import never_close
from oncemq.client.ticket import Awaited
from oncemq.client.values import Message
from oncemq.client.verbs.inbox_verbs import InboxVerb, close_block, open_block
from oncemq.databases.connections import Connection, recognize
from oncemq.databases.statements import Bound, Step
from oncemq.session.inbox_rule import Inbox

T = TypeVar("T")


class _Tracked:
    """A connection, and whether a transaction of ours is open on it (or may be)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_open = False

    def before(self, step: Step) -> None:
        self.is_open = self.is_open or step is Bound.BEGIN

    def after(self, step: Step) -> None:
        self.is_open = self.is_open and step not in (Bound.COMMIT, Bound.ROLLBACK)


@contextmanager
def block(
    turns: Runner,
    engine: Engine,
    inbox: Inbox,
    into: object,
    topic: str,
    limit: int,
    *,
    wait: float,
) -> Generator[list[Message]]:
    """Messages in a transaction of the user's own; committed with their cursor at the end."""
    tracked = _Tracked(recognize(into, awaitable=False))
    timeout = engine.settings.timeout + wait
    opening = open_block(engine, inbox, tracked.connection, topic, limit, wait_ms_of(wait))
    try:
        messages = _run(turns, tracked, opening, timeout)
        yield messages
        _run(turns, tracked, close_block(engine, inbox, messages), timeout)
    except BaseException:
        if not engine.is_own:
            never_close(into)
        elif tracked.is_open:
            with suppress(Exception):  # a connection that is lost has rolled back by itself
                tracked.connection.perform(Bound.ROLLBACK)
        raise


def _run(turns: Runner, tracked: _Tracked, verb: InboxVerb[T], timeout: float) -> T:
    """Carry out a verb: the engine under its lock, the database outside of it."""
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            with turns.lock:
                step = verb.throw(error) if error is not None else verb.send(answer)
            answer = error = None
            try:
                if isinstance(step, Step):
                    tracked.before(step)
                    answer = tracked.connection.perform(step)
                    tracked.after(step)
                else:
                    waited: Awaited = step
                    turns.wait_until(lambda t=waited: t.done, timeout, "an answer")
            except Exception as raised:
                error = raised
    except StopIteration as end:
        return end.value
    finally:
        with turns.lock:
            verb.close()


@asynccontextmanager
async def block_awaitable(
    until: Callable[[Callable[[], bool], float | None, str], Awaitable[None]],
    engine: Engine,
    inbox: Inbox,
    into: object,
    topic: str,
    limit: int,
    *,
    wait: float,
) -> AsyncGenerator[list[Message]]:
    """The same on an event loop; `until` waits for the engine there."""
    tracked = _Tracked(recognize(into, awaitable=True))
    opening = open_block(engine, inbox, tracked.connection, topic, limit, wait_ms_of(wait))
    try:
        messages = await _run_awaitable(until, tracked, opening, engine.settings.timeout + wait)
        yield messages
        await _run_awaitable(
            until, tracked, close_block(engine, inbox, messages), engine.settings.timeout
        )
    except BaseException:
        if not engine.is_own:
            never_close(into)
        elif tracked.is_open:
            with suppress(Exception):
                await _perform(tracked.connection, Bound.ROLLBACK)
        raise


async def _run_awaitable(
    until: Callable[[Callable[[], bool], float | None, str], Awaitable[None]],
    tracked: _Tracked,
    verb: InboxVerb[T],
    timeout: float,
) -> T:
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            step = verb.throw(error) if error is not None else verb.send(answer)
            answer = error = None
            try:
                if isinstance(step, Step):
                    tracked.before(step)
                    answer = await _perform(tracked.connection, step)
                    tracked.after(step)
                else:
                    waited: Awaited = step
                    await until(lambda t=waited: t.done, timeout, "an answer")
            except Exception as raised:
                error = raised
    except StopIteration as end:
        return end.value
    finally:
        verb.close()


async def _perform(connection: Connection, step: Step) -> Any:
    answer = connection.perform(step)
    return await answer if connection.awaitable else answer
