"""The batch body: columns of many messages that no one takes apart on the way.

The same bytes go from the publisher's frame to the log to the subscriber's frame:

    payload offsets   (count + 1) × u32 little-endian
    key offsets       (count + 1) × u32, then count × u8 "has a key"      if KEYS
    header offsets    (count + 1) × u32                                   if HEADERS
    payload bytes · key bytes · header bytes

Offsets need not start at 0: what counts is the distance from the first, so a slice of a
batch is three slices of bytes, whatever the number of messages in it.

Law: `decode(encode(x)) == x`; `decode(cut(body, i, j)) == decode(body)[i:j]`.
"""

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import SEEK_CUR, BytesIO
from itertools import repeat

import msgspec

from oncemq.wire.offsets import WIDTH, Bytes, goes_backwards, lengths_in, numbers, table_of

KEYS = 1
HEADERS = 2
KNOWN_COLUMNS = KEYS | HEADERS

Headers = dict[str, str]
_ONE_OFFSETS = struct.Struct("<II")  # of a batch of one message
_pack_headers = msgspec.msgpack.Encoder().encode
_unpack_headers = msgspec.msgpack.Decoder(Headers).decode


# What is raised for bytes that are no headers: msgspec's own errors do not cover text that is
# not UTF-8, nor maps in maps without end.
NO_HEADERS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Item(msgspec.Struct, frozen=True):
    """One message as a publisher gives it."""

    payload: bytes
    key: bytes | None = None
    headers: Headers | None = None


class Columns(msgspec.Struct, frozen=True):
    """Where each column of a body begins, and how far its bytes reach."""

    count: int
    columns: int
    payloads: Sequence[int]
    keys: Sequence[int]
    headers: Sequence[int]
    presence: int  # position of the "has a key" bytes
    start: int  # position of the first payload byte

    @property
    def payload_bytes(self) -> int:
        return self.payloads[-1] - self.payloads[0]

    @property
    def key_bytes(self) -> int:
        return self.keys[-1] - self.keys[0] if self.keys else 0

    @property
    def header_bytes(self) -> int:
        return self.headers[-1] - self.headers[0] if self.headers else 0


def payload_of(payload: Bytes) -> bytes:
    """The payload as bytes; nothing is encoded behind the user's back."""
    if isinstance(payload, bytes):
        return payload
    try:
        return memoryview(payload).tobytes()
    except TypeError:
        kind = type(payload).__name__
        raise TypeError(f"a payload is bytes, not {kind}; encode it first") from None


def encode_payloads(payloads: Sequence[bytes]) -> bytes:
    """The body of plain messages: no keys, no headers. The fast path of bulk puts.

    The offsets start at the first payload's place in the body.
    """
    count = len(payloads)
    if count == 1:  # most puts: no lists for those
        (payload,) = payloads
        first = _ONE_OFFSETS.size
        return b"".join((_ONE_OFFSETS.pack(first, first + len(payload)), payload))
    return join_payloads(list(map(len, payloads)), payloads)


def join_payloads(lengths: Sequence[int], parts: Sequence[bytes]) -> bytes:
    """The same of payloads that are joined in part already, and their lengths."""
    return b"".join((table_of(lengths, WIDTH * (len(lengths) + 1)), *parts))


def _table(column: Sequence[bytes], first: int) -> bytes:
    return table_of(list(map(len, column)), first)


def encode(items: Sequence[Item]) -> tuple[int, bytes]:
    """The columns present and the body of these messages."""
    return _build(
        [item.payload for item in items],
        [item.key for item in items],
        [_pack_headers(item.headers) if item.headers else b"" for item in items],
    )


def _build(
    payloads: list[bytes], keys: list[bytes | None], headers: list[bytes]
) -> tuple[int, bytes]:
    """A body of columns; the headers are packed, none are empty bytes."""
    columns = 0
    tables: list[bytes] = []
    data: list[bytes] = []
    if any(key is not None for key in keys):
        columns |= KEYS
        present = [key or b"" for key in keys]
        tables.append(_table(present, 0))
        tables.append(bytes(key is not None for key in keys))
        data.extend(present)
    if any(headers):
        columns |= HEADERS
        tables.append(_table(headers, 0))
        data.extend(headers)
    if not columns:
        return 0, encode_payloads(payloads)
    offsets = _table(payloads, 0)
    return columns, b"".join((offsets, *tables, *payloads, *data))


def table_bytes(count: int, columns: int) -> int:
    """How many bytes stand before the first payload."""
    width = WIDTH * (count + 1)
    return width + (width + count if columns & KEYS else 0) + (width if columns & HEADERS else 0)


def _tables(count: int, columns: int) -> list[int]:
    """The positions of the offsets of each column that is there: payloads, keys, headers."""
    width = WIDTH * (count + 1)
    behind_keys = width + (width + count if columns & KEYS else 0)
    return [0, *([width] if columns & KEYS else ()), *([behind_keys] if columns & HEADERS else ())]


def parse(body: Bytes, count: int, columns: int) -> Columns:
    """The columns of a body that `fault` found nothing wrong with."""
    view, width = memoryview(body), WIDTH * (count + 1)
    found = [numbers(view[start : start + width]) for start in _tables(count, columns)]
    return Columns(
        count,
        columns,
        payloads=found[0],
        keys=found[1] if columns & KEYS else (),
        headers=found[-1] if columns & HEADERS else (),
        presence=2 * width if columns & KEYS else 0,
        start=table_bytes(count, columns),
    )


def fault(body: Bytes, count: int, columns: int, *, message_bytes_max: int) -> str | None:
    """Why these bytes are not a batch of `count` messages, or None."""
    if count < 1:
        return "a batch holds at least one message"
    if columns & ~KNOWN_COLUMNS:
        return f"columns {columns:#x} are not known here; this server knows {KNOWN_COLUMNS:#x}"
    size = len(body)
    if count == 1 and not columns and size >= _ONE_OFFSETS.size:  # most puts: no lists for those
        first, last = _ONE_OFFSETS.unpack_from(body)
        if first <= last and _ONE_OFFSETS.size + last - first == size <= message_bytes_max:
            return None
    tables = table_bytes(count, columns)
    if tables > size:
        return f"the batch says {count} messages but has only {size} bytes"
    view, width = memoryview(body), WIDTH * (count + 1)
    if any(goes_backwards(view[start : start + width]) for start in _tables(count, columns)):
        return "the offsets of the batch go backwards"
    parsed = parse(body, count, columns)
    end = tables + parsed.payload_bytes + parsed.key_bytes + parsed.header_bytes
    if end != size:
        return f"the columns of the batch end at byte {end} but it has {size}"
    if size > message_bytes_max:
        largest = max(b - a for a, b in zip(parsed.payloads, parsed.payloads[1:], strict=False))
        if largest > message_bytes_max:
            return f"a message of {largest} bytes is over the limit of {message_bytes_max}"
    return _headers_fault(body, parsed) if parsed.headers else None


def _headers_fault(body: Bytes, parsed: Columns) -> str | None:
    """Why the headers of a message are none, or None: whoever reads them relies on it."""
    base = parsed.start + parsed.payload_bytes + parsed.key_bytes - parsed.headers[0]
    view = memoryview(body)
    place = 0
    try:
        for place, (a, b) in enumerate(zip(parsed.headers, parsed.headers[1:], strict=False)):  # noqa: B007
            if a < b:
                _unpack_headers(view[base + a : base + b])
    except NO_HEADERS as error:
        return f"the headers of message {place} of the batch are not a map of texts: {error}"
    return None


class PayloadReader:
    """The payloads of a body, sliced out as they are taken, from the first to the last."""

    __slots__ = ("_file", "_lengths", "_place")

    def __init__(self, body: Bytes, count: int, columns: int) -> None:
        tables = table_bytes(count, columns)
        if tables > len(body):
            raise ValueError(f"the batch says {count} messages but has only {len(body)} bytes")
        lengths = lengths_in(memoryview(body)[: WIDTH * (count + 1)])
        first = lengths[:WIDTH]
        # Of one length, as messages of machines often are: then there is nothing to look up.
        same = lengths == first * count
        self._lengths = int.from_bytes(first, "little") if same else numbers(lengths)
        self._place = 0
        # `read` of a file in memory is the quickest slice of bytes that there is.
        self._file = BytesIO(body)
        self._file.seek(tables)

    def skip(self, count: int) -> None:
        """Pass over some."""
        self._file.seek(sum(self._next(count)), SEEK_CUR)

    def take(self, count: int) -> Iterator[bytes]:
        """The next ones; all of them are to be taken."""
        return map(self._file.read, self._next(count))

    def _next(self, count: int) -> Iterable[int]:
        """The lengths of the next ones."""
        start, self._place = self._place, self._place + count
        if isinstance(self._lengths, int):
            return repeat(self._lengths, count)
        return self._lengths[start : start + count]


def payloads_of(body: Bytes, count: int, columns: int) -> list[bytes]:
    """Every payload, sliced out."""
    return list(PayloadReader(body, count, columns).take(count))


def decode(body: Bytes, count: int, columns: int) -> list[Item]:
    """Every message with its key and headers."""
    payloads = payloads_of(body, count, columns)
    if not columns:
        return [Item(payload) for payload in payloads]
    keys, packed = packed_sides(body, count, columns)
    headers = [_unpack_headers(each) if each else None for each in packed]
    return [Item(*parts) for parts in zip(payloads, keys, headers, strict=True)]


def sides(
    body: Bytes, count: int, columns: int
) -> tuple[list[bytes | None], list[Headers | bytes | None]]:
    """The keys and the headers beside the payloads; headers that are none as the bytes they are."""
    keys, headers = packed_sides(body, count, columns)
    return keys, [_headers(packed) if packed else None for packed in headers]


def _headers(packed: bytes) -> Headers | bytes:
    try:
        return _unpack_headers(packed)
    except NO_HEADERS:
        return packed


def packed_sides(body: Bytes, count: int, columns: int) -> tuple[list[bytes | None], list[bytes]]:
    """The keys, and the headers as they are packed."""
    parsed = parse(body, count, columns)
    view = memoryview(body)
    keys: list[bytes | None] = [None] * count
    headers = [b""] * count
    position = parsed.start + parsed.payload_bytes
    if parsed.keys:
        present = view[parsed.presence : parsed.presence + count]
        base = position - parsed.keys[0]
        keys = [
            bytes(view[base + a : base + b]) if has else None
            for a, b, has in zip(parsed.keys, parsed.keys[1:], present, strict=False)
        ]
        position += parsed.key_bytes
    if parsed.headers:
        base = position - parsed.headers[0]
        headers = [
            bytes(view[base + a : base + b])
            for a, b in zip(parsed.headers, parsed.headers[1:], strict=False)
        ]
    return keys, headers


def cut(body: Bytes, count: int, columns: int, *, start: int, stop: int) -> bytes:
    """The body of messages `start` to `stop` alone: slices of bytes, nothing rebuilt."""
    parsed = parse(body, count, columns)
    view = memoryview(body)
    pieces: list[memoryview] = []
    for table in _tables(count, columns):
        pieces.append(view[table + WIDTH * start : table + WIDTH * (stop + 1)])
        if columns & KEYS and len(pieces) == 2:  # behind the offsets of the keys
            pieces.append(view[parsed.presence + start : parsed.presence + stop])
    base = parsed.start
    for column in (parsed.payloads, parsed.keys, parsed.headers):
        if column:
            first = column[0]
            pieces.append(view[base + column[start] - first : base + column[stop] - first])
            base += column[-1] - first
    return b"".join(pieces)


def fit(body: Bytes, count: int, columns: int, *, start: int, stop: int, bytes_max: int) -> int:
    """The last `stop` so that the payloads from `start` to it are at most `bytes_max`."""
    if len(body) <= bytes_max:
        return stop
    offsets = numbers(memoryview(body)[: WIDTH * (count + 1)])
    return max(start, min(stop, bisect_right(offsets, offsets[start] + bytes_max) - 1))


def join(bodies: Sequence[tuple[Bytes, int, int]]) -> tuple[int, bytes]:
    """One body of several (body, count, columns), in order; for compaction.

    Headers are moved as they are: a publisher's odd ones must not stop the server.
    """
    payloads: list[bytes] = []
    keys: list[bytes | None] = []
    headers: list[bytes] = []
    if not any(columns for _, _, columns in bodies):
        for body, count, _ in bodies:
            payloads += payloads_of(body, count, 0)
        return 0, encode_payloads(payloads)
    for body, count, columns in bodies:
        payloads += payloads_of(body, count, columns)
        own_keys, own_headers = packed_sides(body, count, columns)
        keys += own_keys
        headers += own_headers
    return _build(payloads, keys, headers)


def seed(topic: str, producer: bytes, first_sequence: int, count: int) -> int:
    """What the body's checksum starts from, so that a batch cannot pass for another's."""
    return zlib.crc32(topic.encode() + b"\0" + producer + b"%d,%d" % (first_sequence, count))


# The checksum of a body, from its `seed`.
checksum: Callable[[Bytes, int], int] = zlib.crc32
