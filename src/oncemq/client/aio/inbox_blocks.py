"""The block of an inbox: `async with client.consume(..., into=connection)`.

Laws: a transaction that was begun here ends here, whatever ends the block; one of the user's own
is never touched. In a process that was forked within the block the connection is the parent's:
nothing is sent on it there, and it is not closed, not even at the end of that process. (A rollback
by a child undoes the parent's writes; on SQLite it damages the file.)
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from oncemq.client.aio.runner import AsyncRunner
from oncemq.client.checks import wait_ms_of
from oncemq.client.engine.engine import Engine
from oncemq.client.shell.tracked import TrackedConnection
from oncemq.client.ticket import Awaited
from oncemq.client.values import Message
from oncemq.client.verbs.inbox_verbs import InboxVerb, close_block, open_block
from oncemq.databases.aio.work import carry_out
from oncemq.databases.connections import awaited, never_close, recognize
from oncemq.databases.statements import Bound, Step
from oncemq.session.inbox_rule import Inbox

T = TypeVar("T")


@asynccontextmanager
async def block(
    turns: AsyncRunner,
    engine: Engine,
    inbox: Inbox,
    into: object,
    topic: str,
    limit: int,
    *,
    wait: float,
) -> AsyncGenerator[list[Message]]:
    """Messages in a transaction of the user's own; committed with their cursor at the end."""
    tracked = TrackedConnection(recognize(into, awaitable=True))
    timeout = engine.settings.timeout + wait
    opening = open_block(engine, inbox, tracked.connection, topic, limit, wait_ms_of(wait))
    try:
        messages = await _run(turns, tracked, opening, timeout)
        yield messages
        await _run(turns, tracked, close_block(engine, inbox, messages), timeout)
    except BaseException:
        if not engine.is_own:
            never_close(into)
        elif tracked.is_open:
            with suppress(Exception):  # a connection that is lost has rolled back by itself
                _ = await awaited(tracked.connection.perform(Bound.ROLLBACK))
        raise


async def _run(
    turns: AsyncRunner, tracked: TrackedConnection, verb: InboxVerb[T], timeout: float
) -> T:
    """Carry out a verb: the engine under its lock, the database outside of it."""

    async def perform(step: Step | Awaited) -> Any:
        if not isinstance(step, Step):
            await turns.wait_until(lambda: step.done, timeout, "an answer")
            return None
        tracked.before(step)
        answer = await awaited(tracked.connection.perform(step))
        tracked.after(step)
        return answer

    return await carry_out(verb, perform, turns.lock)
