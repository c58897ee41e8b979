# Generated from client/aio/inbox_blocks.py by tools/unasync.py; do not edit.
"""The block of an inbox: `with client.consume(..., into=connection)`.

Laws: a transaction that was begun here ends here, whatever ends the block; one of the user's own
is never touched. In a process that was forked within the block the connection is the parent's:
nothing is sent on it there, and it is not closed, not even at the end of that process. (A rollback
by a child undoes the parent's writes; on SQLite it damages the file.)
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from oncemq.client.blocking.runner import Runner
from oncemq.client.checks import wait_ms_of
from oncemq.client.engine.engine import Engine
from oncemq.client.shell.tracked import TrackedConnection
from oncemq.client.ticket import Awaited
from oncemq.client.values import Message
from oncemq.client.verbs.inbox_verbs import InboxVerb, close_block, open_block
from oncemq.databases.blocking.work import carry_out
from oncemq.databases.connections import never_close, recognize
from oncemq.databases.statements import Bound, Step
from oncemq.session.inbox_rule import Inbox

T = TypeVar("T")


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
    tracked = TrackedConnection(recognize(into, awaitable=False))
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
                _ = tracked.connection.perform(Bound.ROLLBACK)
        raise


def _run(turns: Runner, tracked: TrackedConnection, verb: InboxVerb[T], timeout: float) -> T:
    """Carry out a verb: the engine under its lock, the database outside of it."""

    def perform(step: Step | Awaited) -> Any:
        if not isinstance(step, Step):
            turns.wait_until(lambda: step.done, timeout, "an answer")
            return None
        tracked.before(step)
        answer = tracked.connection.perform(step)
        tracked.after(step)
        return answer

    return carry_out(verb, perform, turns.lock)
