# pyright: basic
# pyarrow carries no types.
"""JSON objects of a given Arrow type: how one is decoded, and how many become columns.

Fields that the type does not name are passed over; fields that are missing are null. Numbers
are not rounded and texts are not read as numbers: what does not fit is an error.
"""

import datetime
from collections.abc import Callable
from decimal import Decimal
from itertools import accumulate
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from oncemq.errors import ConfigError

_LEAVES: list[tuple[Callable[[Any], bool], Any]] = [
    (pt.is_string, str),
    (pt.is_boolean, bool),
    (pt.is_floating, float),
    (pt.is_decimal, Decimal),
    (pt.is_timestamp, datetime.datetime),
    (pt.is_date, datetime.date),
    (pt.is_binary, bytes),  # base64, as msgspec and Spark have it
]


def decoder_of(kind: pa.StructType) -> Callable[[bytes], Any]:
    """From the bytes of one object to its fields."""
    return msgspec.json.Decoder(_python_type(kind, "value")).decode


def columns_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """What the decoder gave, column by column."""
    if pt.is_struct(kind):
        return _structs(values, kind)
    if pt.is_map(kind):
        flat = [item for each in values if each is not None for item in each.items()]
        keys = pa.array([key for key, _ in flat], kind.key_type)
        items = columns_of([item for _, item in flat], kind.item_type)
        return pa.MapArray.from_arrays(_stops(values), keys, items, type=kind)
    if pt.is_list(kind):
        flat = [item for each in values if each is not None for item in each]
        return pa.ListArray.from_arrays(
            _stops(values), columns_of(flat, kind.value_type), type=kind
        )
    return pa.array(values, kind)


def _structs(values: list[Any], kind: pa.StructType) -> pa.Array:
    absent = [each is None for each in values]
    columns = [
        columns_of(
            [None if each is None else getattr(each, f"f{place}") for each in values],
            kind.field(place).type,
        )
        for place in range(kind.num_fields)
    ]
    mask = pa.array(absent) if any(absent) else None
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _stops(values: list[Any]) -> pa.Array:
    """Where each list ends; a null in Arrow's way: no offset where it begins."""
    stops = list(accumulate((len(each) if each else 0 for each in values), initial=0))
    begins = [None if each is None else stop for each, stop in zip(values, stops, strict=False)]
    return pa.array([*begins, stops[-1]], pa.int32())


def _python_type(kind: pa.DataType, where: str) -> Any:
    """What msgspec decodes it to; `where` names it in the error."""
    if pt.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        names = {f"f{place}": field.name for place, field in enumerate(fields)}
        types = [_python_type(field.type, f"{where}.{field.name}") | None for field in fields]
        defaults = [(name, each, None) for name, each in zip(names, types, strict=True)]
        return msgspec.defstruct("Value", defaults, rename=names, gc=False, frozen=True)
    if pt.is_map(kind) and pt.is_string(kind.key_type):
        return dict[str, _python_type(kind.item_type, f"{where} values") | None]
    if pt.is_list(kind):
        return list[_python_type(kind.value_type, f"{where} items") | None]
    if pt.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    for fits, python_type in _LEAVES:
        if fits(kind):
            return python_type
    raise ConfigError(
        f"{where} cannot be read from JSON as {kind}; use text, numbers, booleans, dates, "
        "timestamps, binary, arrays, structs, and maps with text as key"
    )
