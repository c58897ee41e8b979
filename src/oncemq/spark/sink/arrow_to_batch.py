# pyright: basic
# pyarrow carries no types.
"""From Arrow's columns to the log's: the body of a batch made of buffers, nothing per message.

Headers alone are packed one by one. Law: rows keep their order; a value that is null is refused,
because a message has a payload.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from oncemq.errors import InvalidRequest
from oncemq.spark.columns.compute import call
from oncemq.wire import batch

BODY_BYTES_MAX = 16 << 20  # rows are cut in halves until a batch is no larger

Made = tuple[int, int, bytes]  # how many messages, which columns, the body

_pack = msgspec.msgpack.Encoder().encode


def by_topic(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order: of the one given, else of the column `topic`."""
    if topic:
        yield topic, rows
        return
    names = rows.column("topic")
    if names.null_count:
        raise InvalidRequest(
            f"the topic of {names.null_count} rows is null: say where they go, or leave them out"
        )
    distinct = call("unique", [names]).to_pylist()
    for name in distinct:
        alone = len(distinct) == 1
        yield (
            name,
            rows if alone else rows.filter(call("equal", [names, pa.scalar(name)])),
        )


def bodies(rows: pa.RecordBatch) -> Iterator[Made]:
    """The batches of these rows: one, unless it would be too large."""
    if not rows.num_rows:
        return
    made = _body(rows)
    if len(made[2]) <= BODY_BYTES_MAX or rows.num_rows == 1:
        yield made
        return
    half = rows.num_rows // 2
    yield from bodies(rows.slice(0, half))
    yield from bodies(rows.slice(half))


def _body(rows: pa.RecordBatch) -> Made:
    count = rows.num_rows
    values = rows.column("value")
    if values.null_count:
        raise InvalidRequest(
            f"the value of {values.null_count} rows is null: a message has a payload; leave such "
            "rows out, or give them one"
        )
    keys = rows.column("key") if "key" in rows.schema.names else None
    columns, tables, data = 0, [], []
    if keys is not None and keys.null_count < count:
        columns |= batch.KEYS
        present = call("is_valid", [keys]).cast(pa.uint8())
        offsets, joined = _column(_binary(keys).fill_null(b""), 0)
        tables += [offsets, present.buffers()[1].slice(present.offset, count).to_pybytes()]
        data.append(joined)
    packed = _headers(rows.column("headers")) if "headers" in rows.schema.names else []
    if any(packed):
        columns |= batch.HEADERS
        stops = pa.array(accumulate(map(len, packed), initial=0), pa.int32())
        tables.append(stops.buffers()[1].slice(0, 4 * (count + 1)).to_pybytes())
        data += packed
    # Plain payloads are numbered from their place in the body, so that readers need not copy.
    first = 0 if columns else batch.table_bytes(count, 0)
    offsets, payloads = _column(_binary(values), first)
    return count, columns, b"".join((offsets, *tables, payloads, *data))


def _binary(column: pa.Array) -> pa.Array:
    return column if pt.is_binary(column.type) else column.cast(pa.binary())


def _column(column: pa.Array, first: int) -> tuple[bytes, pa.Buffer]:
    """A column's offsets, counted from `first`, and its bytes."""
    count = len(column)
    _, stops, data = column.buffers()
    numbers = pa.Array.from_buffers(pa.int32(), column.offset + count + 1, [None, stops])
    numbers = numbers.slice(column.offset)
    start, stop = numbers[0].as_py(), numbers[count].as_py()
    moved = call("add", [numbers, pa.scalar(first - start, pa.int32())])
    offsets = moved.buffers()[1].slice(0, 4 * (count + 1)).to_pybytes()
    return offsets, data.slice(start, stop - start) if data is not None else pa.py_buffer(b"")


def _headers(column: pa.Array) -> list[bytes]:
    return [_packed(each) if each else b"" for each in column.to_pylist()]


def _packed(headers: list[Any]) -> bytes:
    """One message's headers, from a map, or from an array of structs as Kafka has it."""
    pairs = [(each["key"], each["value"]) if isinstance(each, dict) else each for each in headers]
    found: dict[str, str] = {}
    for name, text in pairs:
        if name in found:
            raise InvalidRequest(f"a message has the header {name!r} once, not twice")
        found[name] = _text(name, text)
    return _pack(found)


def _text(name: str | None, text: str | bytes | None) -> str:
    """A header's text; what is none is refused, not made into one."""
    if name is None or text is None:
        raise InvalidRequest(
            f"the header {name!r} of a row is null, and a header is a text: leave it out with "
            "map_filter(headers, (k, v) -> v IS NOT NULL) (of an array: filter), or give it one",
            code="malformed_headers",
        )
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the header {name!r} of a row is not UTF-8 ({error.reason} at byte {error.start}), "
            "and a header is a text: write its bytes as base64(…) or hex(…)",
            code="malformed_headers",
        ) from None
