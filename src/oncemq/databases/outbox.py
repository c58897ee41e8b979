"""The outbox in a user's own database: what is put commits, or rolls back, with the user's writes.

Law: a put is one INSERT on the user's connection and nothing else: no transaction is begun or
ended, no server is spoken to. What is committed, a relay publishes exactly once; what is rolled
back never was.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, overload

from oncemq.databases.aio.outbox import AsyncOutbox
from oncemq.databases.blocking.outbox import Outbox
from oncemq.databases.connections import recognize


class AwaitableConnection(Protocol):
    """What tells a connection that is awaited from one that blocks."""

    @property
    def execute(self) -> Callable[..., Awaitable[Any]]: ...


@overload
def outbox(  # pyright: ignore[reportOverlappingOverload] - awaited ones are told by `execute`
    connection: AwaitableConnection,
) -> AsyncOutbox: ...
@overload
def outbox(connection: Any) -> Outbox: ...
def outbox(connection: Any) -> Outbox | AsyncOutbox:
    """The outbox of the database that this connection is to.

    With a connection that is awaited (asyncpg, psycopg and SQLAlchemy for asyncio) its verbs are.
    """
    found = recognize(connection, awaitable=None, joins=True)
    return AsyncOutbox(found) if found.awaitable else Outbox(found)
