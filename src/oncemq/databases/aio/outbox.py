"""The outbox in a user's own database, on connections that are awaited."""

from collections.abc import Sequence

from oncemq.databases.aio.work import run
from oncemq.databases.connections import Connection
from oncemq.databases.outbox_rows import create_tables, put_rows
from oncemq.wire.batch import Headers


class AsyncOutbox:
    """The outbox of the database that a connection is to; see `oncemq.outbox`."""

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
        await run(self._connection, put_rows(topic, [payload], [key], [headers]))

    async def put_many(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Write messages into the outbox, in their order."""
        await run(self._connection, put_rows(topic, payloads, keys, headers))

    async def create(self) -> None:
        """Make the tables, where they are missing; outside a transaction of your own."""
        await run(self._connection, create_tables(self._connection))
