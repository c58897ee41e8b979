# Generated from databases/aio/outbox.py by tools/unasync.py; do not edit.
"""The outbox in a user's own database, on connections that block."""

from collections.abc import Sequence

from oncemq.databases.blocking.work import run
from oncemq.databases.connections import Connection
from oncemq.databases.outbox_rows import create_tables, put_rows
from oncemq.wire.batch import Headers


class Outbox:
    """The outbox of the database that a connection is to; see `oncemq.outbox`."""

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
        run(self._connection, put_rows(topic, [payload], [key], [headers]))

    def put_many(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Write messages into the outbox, in their order."""
        run(self._connection, put_rows(topic, payloads, keys, headers))

    def create(self) -> None:
        """Make the tables, where they are missing; outside a transaction of your own."""
        run(self._connection, create_tables(self._connection))
