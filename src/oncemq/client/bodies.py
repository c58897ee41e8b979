"""From what users give to the columns of a batch."""

from collections.abc import Sequence

from oncemq.client.values import Headers
from oncemq.wire import batch


def encode_many(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> tuple[int, bytes]:
    """The columns and the body of a batch as users give it."""
    if keys is None and headers is None:
        return 0, batch.encode_payloads(payloads)
    return batch.encode(items_of(payloads, keys, headers))


def items_of(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> list[batch.Item]:
    """The messages as users give them, one by one."""
    none = [None] * len(payloads)
    return [
        batch.Item(batch.payload_of(payload), key, header)
        for payload, key, header in zip(payloads, keys or none, headers or none, strict=True)
    ]
