"""From what users give to the columns of a batch."""

import contextlib
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


def payload_of(payload: bytes | bytearray | memoryview) -> bytes:
    """The payload as bytes; nothing is encoded behind the user's back."""
    if isinstance(payload, bytes):
        return payload
    with contextlib.suppress(TypeError):
        return memoryview(payload).tobytes()
    raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
