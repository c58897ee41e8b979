"""From what users give to the columns of a batch."""

from collections.abc import Sequence

from oncemq.client.checks import check_payloads, item_of, size_of
from oncemq.client.values import Headers
from oncemq.wire import batch


def encode_many(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> tuple[int, bytes]:
    """The columns and the body of a batch as users give it."""
    check_payloads(payloads)
    if keys is None and headers is None:
        return 0, batch.encode_payloads(payloads)
    return batch.encode(items_of(payloads, keys, headers))


def largest(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
    *,
    over: int,
    body: bytes,
) -> int:
    """The size of the largest message, looked for only where it could be over a limit."""
    if len(body) <= over:
        return 0
    if keys is None and headers is None:
        return max(map(len, payloads))
    return max(map(size_of, items_of(payloads, keys, headers)))


def items_of(
    payloads: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> list[batch.Item]:
    """The messages as users give them, one by one."""
    check_payloads(payloads)
    none = [None] * len(payloads)
    return [
        item_of(payload, key, header)
        for payload, key, header in zip(payloads, keys or none, headers or none, strict=True)
    ]
