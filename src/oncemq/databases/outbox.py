"""The outbox in a user's own database: what is put commits, or rolls back, with the user's writes.

Law: a put is one INSERT on the user's connection and nothing else: no transaction is begun or
ended, no server is spoken to. What is committed, a relay publishes exactly once; what is rolled
back never was.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, overload

import msgspec

from oncemq.databases.aio.work import run as run_awaitable
from oncemq.databases.blocking.work import run
from oncemq.databases.connections import Connection, recognize
from oncemq.databases.outbox_schema import NO_OUTBOX, make_tables
from oncemq.databases.statements import Tell, TellMany, Work
from oncemq.errors import DatabaseRefused, InvalidRequest
from oncemq.protocol.names import is_system, name_fault
from oncemq.wire.batch import Headers, payload_of

_INSERT = (
    "INSERT INTO oncemq_outbox (topic, payload, key, headers) "
    "VALUES (:topic, :payload, :key, :headers)"
)


class Outbox:
    """The outbox on a connection that blocks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Outbox on {type(self._connection).__name__}>"

    def put(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Write a message into the outbox, in the transaction that is open (or will be)."""
        run(self._connection, _put(topic, [payload], [key], [headers]))

    def put_many(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Write messages into the outbox, in their order."""
        run(self._connection, _put(topic, payloads, keys, headers))

    def create(self) -> None:
        """Make the tables, where they are missing; outside a transaction of your own."""
        run(self._connection, _create(self._connection))


class AsyncOutbox:
    """The outbox on a connection that is awaited: the verbs of `Outbox`, awaitable."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<AsyncOutbox on {type(self._connection).__name__}>"

    async def put(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Write a message into the outbox, in the transaction that is open (or will be)."""
        await run_awaitable(self._connection, _put(topic, [payload], [key], [headers]))

    async def put_many(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Write messages into the outbox, in their order."""
        await run_awaitable(self._connection, _put(topic, payloads, keys, headers))

    async def create(self) -> None:
        """Make the tables, where they are missing; outside a transaction of your own."""
        await run_awaitable(self._connection, _create(self._connection))


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


def _create(connection: Connection) -> Work[None]:
    if connection.in_transaction:
        raise DatabaseRefused(
            "the connection has a transaction open, and the tables of the outbox are not made "
            "inside it: commit it or roll it back first"
        )
    yield from make_tables(connection.kind)


def _put(
    topic: str,
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> Work[None]:
    fault = name_fault(topic)
    if fault is None and is_system(topic):
        fault = f"{topic!r}: topics with a leading '_' are the system's"
    if fault:
        raise InvalidRequest(fault, code="name_invalid")
    none = [None] * len(payloads)
    rows = [
        {
            "topic": topic,
            "payload": payload_of(payload),
            "key": None if key is None else payload_of(key),
            "headers": _packed(packed),
        }
        for payload, key, packed in zip(payloads, keys or none, headers or none, strict=True)
    ]
    if not rows:
        return
    try:
        yield TellMany(_INSERT, rows) if len(rows) > 1 else Tell(_INSERT, rows[0])
    except Exception as error:
        if "oncemq_outbox" in str(error) and ("no such" in str(error) or "exist" in str(error)):
            raise DatabaseRefused(NO_OUTBOX) from error
        raise


def _packed(headers: Headers | None) -> str | None:
    if not headers:
        return None
    try:
        return msgspec.json.encode(msgspec.convert(headers, Headers)).decode()
    except msgspec.ValidationError as error:
        raise TypeError(f"headers are names and values of text: {error}") from None
