"""What messages are, as one number that does not depend on their order, nor on how they were cut.

The sum over a hash of each message (payload, key, headers), so that tasks add up what they have,
and two runs of one Spark batch are compared however its rows were spread over tasks. A checksum
will not do in place of the hash: CRCs are linear, and the sum over the CRCs of 1,024 numbered
rows is the same for very many other 1,024 numbered rows.

Law: the same messages have the same sum; others have another one, but for one case in 2^64.
"""

import sys
from array import array
from collections.abc import Iterable
from hashlib import blake2b

from oncemq.wire import batch

MODULUS = 1 << 64
HASH_BYTES = 8
SIDES = b"sides"  # a message with a key or headers is never taken for one that is payload only


def contents_of(body: batch.Bytes, count: int, columns: int) -> int:
    """The sum over the messages of one batch."""
    payloads = batch.payloads_of(body, count, columns)
    if not columns:
        hashes = [blake2b(payload, digest_size=HASH_BYTES).digest() for payload in payloads]
    else:
        rows = zip(payloads, *batch.packed_sides(body, count, columns), strict=True)
        hashes = [_hash(*row) for row in rows]
    numbers = array("Q", b"".join(hashes))
    if sys.byteorder == "big":
        numbers.byteswap()
    return sum(numbers) % MODULUS


def _hash(payload: bytes, key: bytes | None, headers: bytes) -> bytes:
    if key is None and not headers:
        return blake2b(payload, digest_size=HASH_BYTES).digest()
    lengths = b"%d %d " % (-1 if key is None else len(key), len(headers))
    message = b"".join((lengths, key or b"", headers, payload))
    return blake2b(message, digest_size=HASH_BYTES, person=SIDES).digest()


def contents_of_topics(sums: Iterable[tuple[str, int]]) -> int:
    """One number for what several topics get, of sums that belong to topics; never 0."""
    by_topic: dict[str, int] = {}
    for topic, each in sums:
        by_topic[topic] = (by_topic.get(topic, 0) + each) % MODULUS
    total = 0
    for topic, each in by_topic.items():
        named = each.to_bytes(HASH_BYTES, "little") + topic.encode()
        total += int.from_bytes(blake2b(named, digest_size=HASH_BYTES).digest(), "little")
    return total % MODULUS or 1
