"""The seal of a message between replicas: only who knows the cluster's secret can make it.

It stands in the head where a request has its token: 8 bytes, keyed blake2b of the rest of the head.
The frames beside it have checksums of their own.

Why. A replica believes a leader: it promises epochs for good, cuts its log and fills it anew. One
message of a stranger, or of another cluster whose server had this address before, would be enough.

A cluster that was founded before there were seals has no secret, and seals nothing: its servers of
both kinds understand each other.

Not covered: whoever reads what servers say to each other may say it again, or beside other bytes.
That ends with encryption; until then servers are reached by nobody else.
"""

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest

from oncemq.protocol.step import Body
from oncemq.wire.codec import HEAD

_SEAL_BYTES = 8
_AT = HEAD.size - _SEAL_BYTES
_UNSEALED = bytes(_SEAL_BYTES)


def sealed(frames: Sequence[Body], secret: bytes | None) -> list[Body]:
    """The same message, with the seal in its head."""
    if not secret:
        return list(frames)
    head = bytes(frames[0])
    return [head[:_AT] + _seal(head, secret) + head[HEAD.size :], *frames[1:]]


def is_sealed(frames: Sequence[Body], secret: bytes | None) -> bool:
    """Whether somebody who knows the secret made it; `frames` has a head. None: nobody does."""
    head = bytes(frames[0])
    if not secret:
        return secret is not None and head[_AT : HEAD.size] == _UNSEALED
    return compare_digest(head[_AT : HEAD.size], _seal(head, secret))


def _seal(head: bytes, secret: bytes) -> bytes:
    covered = head[:_AT] + head[HEAD.size :]
    return blake2b(covered, digest_size=_SEAL_BYTES, key=secret).digest()
