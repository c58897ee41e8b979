# pyright: basic
# pyarrow carries no types.
"""The value column where it is more than bytes: text, or JSON with a schema.

Law: a value that does not fit is refused by the name of its message, or kept as it came in
`_corrupt`, as the option `malformed` says; never dropped, never guessed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from oncemq.client.verbs.columns import ColumnBatch
from oncemq.errors import InvalidRequest
from oncemq.spark.columns.batch_to_arrow import Values, payloads
from oncemq.spark.columns.json_types import columns_of, decoder_of

Decode = Callable[[bytes], Any]
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowTypeError)


def text(*, keep: bool) -> Values:
    """Values as UTF-8 text."""
    return partial(_text, keep=keep)


def json(kind: pa.StructType, *, keep: bool) -> Values:
    """Values as JSON objects of this type."""
    return partial(_json, kind, decoder_of(kind), keep=keep)


def _text(pieces: Sequence[ColumnBatch], *, keep: bool) -> dict[str, pa.Array]:
    raw = payloads(pieces)
    try:
        return _whole(raw.cast(pa.string()))
    except pa.ArrowInvalid:
        return _sorted_out(pieces, raw, bytes.decode, partial(pa.array, type=pa.string()), keep)


def _json(
    kind: pa.StructType, decode: Decode, pieces: Sequence[ColumnBatch], *, keep: bool
) -> dict[str, pa.Array]:
    raw = payloads(pieces)
    build = partial(columns_of, kind=kind)
    try:
        return _whole(build(list(map(decode, raw.to_pylist()))))
    except _FAULTS:
        return _sorted_out(pieces, raw, decode, build, keep)


def _whole(values: pa.Array) -> dict[str, pa.Array]:
    return {"value": values, "_corrupt": pa.nulls(len(values), pa.binary())}


def _sorted_out(
    pieces: Sequence[ColumnBatch],
    raw: pa.Array,
    decode: Decode,
    build: Callable[[list[Any]], pa.Array],
    keep: bool,
) -> dict[str, pa.Array]:
    """One by one, because some do not fit."""
    values: list[Any] = []
    corrupt: list[bytes | None] = []
    for place, payload in enumerate(raw.to_pylist()):
        try:
            value = decode(payload)
            build([value])
        except _FAULTS as error:
            if not keep:
                name = f"{pieces[0].topic}@{pieces[0].first_offset + place}"
                raise InvalidRequest(
                    f"the value of {name} does not fit: {error}. Set the option malformed to "
                    "'keep' to get such values in the column _corrupt, or valueFormat to 'binary'",
                    code="malformed_value",
                ) from None
            value = None
        values.append(value)
        corrupt.append(payload if value is None else None)
    return {"value": build(values), "_corrupt": pa.array(corrupt, pa.binary())}
