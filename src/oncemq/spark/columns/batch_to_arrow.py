# pyright: basic
# pyarrow carries no types.
"""From the log's columns to Arrow's: buffers laid over the bytes that came, nothing per message.

Laws: a row is a message, in order; a record batch has 1 to `ROWS_MAX` rows; only the columns
asked for are made. Headers alone are decoded, and each distinct set of them once.
"""

from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from oncemq.client.verbs.columns import ColumnBatch
from oncemq.spark.columns.compute import call
from oncemq.wire import batch

ROWS_MAX = 65_536  # of one record batch
GATHER_ROWS = 16_384  # batches with fewer are joined, which copies them, until they have this many
GATHER_BYTES = 16 << 20  # or up to this many bytes
SMALL = 32  # messages in a batch below which joining bodies is cheaper than joining arrays

Maker = Callable[[Sequence[ColumnBatch], pa.DataType], pa.Array]
Values = Callable[[Sequence[ColumnBatch]], dict[str, pa.Array]]

ODD_HEADERS = "oncemq-odd-headers"
_unpack_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


def record_batches(
    batches: Iterable[ColumnBatch], schema: pa.Schema, values: Values | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of `schema`, whose names are those of a message's parts.

    `values` makes the columns `value` and `_corrupt` where a value is more than its bytes.
    """
    for gathered in _gathered(batches):
        pieces = _joined(gathered)
        made = values(pieces) if values is not None else {}
        columns = [
            made[field.name] if field.name in made else _MAKERS[field.name](pieces, field.type)
            for field in schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start in range(0, rows.num_rows, ROWS_MAX):
            yield rows.slice(start, ROWS_MAX)


def payloads(pieces: Sequence[ColumnBatch]) -> pa.Array:
    """The payloads, as binary."""
    return _concat([_binary(piece, 0, piece.count, _payload_place(piece)) for piece in pieces])


def _offsets(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    """Dense within a batch, and from batch to batch."""
    first, count = pieces[0].first_offset, sum(piece.count for piece in pieces)
    return call("add", [_counting(count), pa.scalar(first, kind)])


# Each column from the pieces that a record batch is made of.


def _keys(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    return _concat([_keys_of(piece, kind) for piece in pieces])


def _keys_of(piece: ColumnBatch, kind: pa.DataType) -> pa.Array:
    if not piece.columns & batch.KEYS:
        return pa.nulls(piece.count, kind)
    width = 4 * (piece.count + 1)
    present = pa.py_buffer(memoryview(piece.body)[2 * width : 2 * width + piece.count])
    flags = pa.Array.from_buffers(pa.uint8(), piece.count, [None, present]).cast(pa.bool_())
    place = _payload_place(piece) + _span(piece, 0)
    return _binary(piece, width, piece.count, place, validity=flags.buffers()[1])


def _headers(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    return _concat([_headers_of(piece, kind) for piece in pieces])


def _headers_of(piece: ColumnBatch, kind: pa.DataType) -> pa.Array:
    if not piece.columns & batch.HEADERS:
        return pa.nulls(piece.count, kind)
    width = 4 * (piece.count + 1)
    table, place = width, _payload_place(piece) + _span(piece, 0)
    if piece.columns & batch.KEYS:
        place += _span(piece, width)
        table += width + piece.count
    packed = _binary(piece, table, piece.count, place).dictionary_encode()
    distinct = [_pairs(each) if each else None for each in packed.dictionary.to_pylist()]
    if not pt.is_map(kind):
        distinct = [each and [_as_kafkas(*pair) for pair in each] for each in distinct]
    return pa.array(distinct, kind).take(packed.indices)


def _pairs(packed: bytes) -> list[tuple[str, str]]:
    """Names and texts; what is none, which no server takes any more, under a name of its own."""
    try:
        return sorted(_unpack_headers(packed).items())
    except batch.NO_HEADERS:
        return [(ODD_HEADERS, b64encode(packed).decode())]


def _as_kafkas(name: str, text: str) -> dict[str, str | bytes]:
    return {"key": name, "value": text.encode()}


def _topics(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(pieces[0].topic, kind), sum(piece.count for piece in pieces))


def _timestamps(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    return _spread(pieces, [run.timestamp for piece in pieces for run in piece.runs], kind)


def _producers(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    return _spread(pieces, [run.producer.hex() for piece in pieces for run in piece.runs], kind)


def _sequences(pieces: Sequence[ColumnBatch], kind: pa.DataType) -> pa.Array:
    """A run's numbers count up with the rows: its first one, less the row it begins at."""
    begins: list[int] = []
    row = 0
    for piece in pieces:
        for run in piece.runs:
            begins.append(run.first_sequence - row)
            row += run.count
    return call("add", [_spread(pieces, begins, kind), _counting(row)])


_MAKERS: dict[str, Maker] = {
    "key": _keys,
    "value": lambda pieces, _: payloads(pieces),
    "topic": _topics,
    "offset": _offsets,
    "timestamp": _timestamps,
    "headers": _headers,
    "producer": _producers,
    "sequence": _sequences,
}


# Arrow's buffers over the body's bytes.


def _binary(
    piece: ColumnBatch, table: int, count: int, place: int, validity: pa.Buffer | None = None
) -> pa.Array:
    """The column whose offsets stand at `table` and whose bytes begin at `place`."""
    body = pa.py_buffer(piece.body)
    stops = body.slice(table, 4 * (count + 1))
    if stops.address % 4:  # after an odd number of "has a key" bytes
        stops = pa.py_buffer(stops.to_pybytes())
    first = _number(piece, table)
    if first > place:  # a slice of a batch whose offsets count from the batch's beginning
        numbers = pa.Array.from_buffers(pa.int32(), count + 1, [None, stops])
        stops = call("subtract", [numbers, pa.scalar(first, pa.int32())]).buffers()[1]
        first = 0
    data = body.slice(place - first)  # offsets need not begin at 0, in Arrow neither
    made = pa.Array.from_buffers(pa.binary(), count, [validity, stops, data])
    made.validate(full=True)
    return made


def _payload_place(piece: ColumnBatch) -> int:
    return batch.table_bytes(piece.count, piece.columns)


def _span(piece: ColumnBatch, table: int) -> int:
    """How many bytes the column has whose offsets stand at `table`."""
    return _number(piece, table + 4 * piece.count) - _number(piece, table)


def _number(piece: ColumnBatch, place: int) -> int:
    return int.from_bytes(memoryview(piece.body)[place : place + 4], "little")


def _spread(pieces: Sequence[ColumnBatch], values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """One value for each run, over all the run's rows."""
    ends: list[int] = []
    row = 0
    for piece in pieces:
        for run in piece.runs:
            row += run.count
            ends.append(row)
    if len(ends) == 1:
        return pa.repeat(pa.scalar(values[0], kind), row)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values, kind))
    return call("run_end_decode", [runs])


def _counting(count: int) -> pa.Array:
    """0, 1, 2 … `count` - 1."""
    return _numbers(max(ROWS_MAX, 1 << (count - 1).bit_length())).slice(0, count)


@cache
def _numbers(count: int) -> pa.Array:
    numbers = pa.py_buffer(array("q", range(count)))
    return pa.Array.from_buffers(pa.int64(), count, [None, numbers])


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


# Small batches together, so that Spark gets few large ones; large ones go as they came, not copied.


def _gathered(batches: Iterable[ColumnBatch]) -> Iterator[list[ColumnBatch]]:
    gathered: list[ColumnBatch] = []
    rows = size = 0
    for each in batches:
        enough = max(rows, each.count) >= GATHER_ROWS
        if gathered and (enough or size + len(each.body) > GATHER_BYTES):
            yield gathered
            gathered, rows, size = [], 0, 0
        gathered.append(each)
        rows += each.count
        size += len(each.body)
    if gathered:
        yield gathered


def _joined(gathered: list[ColumnBatch]) -> list[ColumnBatch]:
    """Neighbours that are small become one batch; large ones stay as they are."""
    pieces: list[ColumnBatch] = []
    small: list[ColumnBatch] = []
    for each in gathered:
        if each.count < SMALL:
            small.append(each)
            continue
        pieces += [*_join(small), each]
        small = []
    return [*pieces, *_join(small)]


def _join(small: list[ColumnBatch]) -> list[ColumnBatch]:
    if len(small) < 2:
        return small
    columns, body = batch.join([(each.body, each.count, each.columns) for each in small])
    first = small[0]
    runs = tuple(run for each in small for run in each.runs)
    count = sum(each.count for each in small)
    return [
        ColumnBatch(first.topic, first.topic_id, first.first_offset, count, columns, runs, body)
    ]
