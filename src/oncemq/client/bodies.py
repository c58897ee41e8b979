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
    none = [None] * len(payloads)
    return batch.encode(
        [
            batch.Item(payload, key, header)
            for payload, key, header in zip(payloads, keys or none, headers or none, strict=True)
        ]
    )
