"""The rows of an outbox as work on the user's connection: what is put, and the tables for it."""

from collections.abc import Sequence

import msgspec

from oncemq.databases.connections import Connection
from oncemq.databases.outbox_schema import NO_OUTBOX, make_tables
from oncemq.databases.statements import Tell, TellMany, Work
from oncemq.errors import DatabaseRefused, InvalidRequest
from oncemq.protocol.names import is_system, name_fault
from oncemq.wire.batch import Headers, payload_of

_INSERT = (
    "INSERT INTO oncemq_outbox (topic, payload, key, headers) "
    "VALUES (:topic, :payload, :key, :headers)"
)


def create_tables(connection: Connection) -> Work[None]:
    """Make the tables, where they are missing."""
    if connection.in_transaction:
        raise DatabaseRefused(
            "the connection has a transaction open, and the tables of the outbox are not made "
            "inside it: commit it or roll it back first"
        )
    yield from make_tables(connection.kind)


def put_rows(
    topic: str,
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> Work[None]:
    """Write messages, each a row, in their order."""
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
