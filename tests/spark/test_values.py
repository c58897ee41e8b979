"""Values as text and as JSON: what does not fit is refused by name, or kept as it came."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from oncemq.client.verbs.columns import ColumnBatch
from oncemq.errors import ConfigError, InvalidRequest
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import Run
from oncemq.spark.columns import values
from oncemq.spark.columns.json_types import decoder_of
from oncemq.wire import batch

TIME = pa.timestamp("us", "UTC")
POINT = pa.struct([("x", pa.int32())])


def batches(*payloads: bytes) -> list[ColumnBatch]:
    """Two batches, the first message alone."""
    run = Run(1, ProducerId(b"p" * 16), Epoch(1), Sequence(1), Micros(0))
    pieces: list[ColumnBatch] = []
    for first, part in ((40, payloads[:1]), (41, payloads[1:])):
        if part:
            body = batch.encode_payloads(part)
            pieces.append(
                ColumnBatch("orders", TopicId(1), Offset(first), len(part), 0, (run,), body)
            )
    return pieces


def decoded(kind: pa.DataType, json: bytes):
    """What becomes of {"a": json} and of a message without `a`; None: it does not fit."""
    made = values.json(pa.struct([("a", kind)]), keep=True)(batches(b'{"a":%s}' % json, b"{}"))
    made["value"].validate(full=True)
    value, empty = made["value"].to_pylist()
    assert empty == {"a": None}
    assert (made["_corrupt"].to_pylist()[0] is None) == (value is not None)
    return None if value is None else (value["a"],)


@pytest.mark.parametrize(
    ("kind", "json", "value"),
    [
        (pa.int64(), b"7", 7),
        (pa.int8(), b"-128", -128),
        (pa.float64(), b"7", 7.0),
        (pa.float32(), b"null", None),
        (pa.string(), '"ä"'.encode(), "ä"),
        (pa.bool_(), b"true", True),
        (pa.binary(), b'"AAEC"', b"\0\1\2"),
        (pa.decimal128(10, 2), b"1.25", Decimal("1.25")),
        (pa.decimal128(10, 2), b'"1.25"', Decimal("1.25")),
        (TIME, b'"2024-01-01T02:00:00+02:00"', datetime(2024, 1, 1, tzinfo=UTC)),
        (TIME, b'"2024-01-01T00:00:00"', datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.date32(), b'"2024-01-01"', date(2024, 1, 1)),
        (POINT, b'{"x":1,"y":2}', {"x": 1}),
        (POINT, b"null", None),
        (pa.list_(pa.int32()), b"[1,null]", [1, None]),
        (pa.list_(POINT), b'[{"x":1},null]', [{"x": 1}, None]),
        (pa.map_(pa.string(), POINT), b'{"p":{"x":1}}', [("p", {"x": 1})]),
    ],
)
def test_json_that_fits(kind: pa.DataType, json: bytes, value) -> None:
    assert decoded(kind, json) == (value,)


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (pa.int64(), b"1.5"),
        (pa.int64(), b'"1"'),
        (pa.int8(), b"300"),
        (pa.float64(), b"1e400"),
        (pa.string(), b"5"),
        (pa.string(), b'"\xff"'),
        (pa.decimal128(4, 2), b"1.255"),
        (pa.decimal128(4, 2), b"12345"),
        (TIME, b'"noon"'),
        (pa.list_(pa.int32()), b"{}"),
        (pa.int64(), b"1}{"),
    ],
)
def test_json_that_does_not_fit_is_kept_as_it_came(kind: pa.DataType, json: bytes) -> None:
    assert decoded(kind, json) is None


@pytest.mark.parametrize("payload", [b"", b"null", b"[1]", b'{"a":1', b'{"a":1} x', b"{}{}", b"\0"])
def test_what_is_no_object_is_kept_as_it_came(payload: bytes) -> None:
    made = values.json(pa.struct([("a", pa.int64())]), keep=True)(batches(b'{"a":1}', payload))
    assert made["value"].to_pylist() == [{"a": 1}, None]
    assert made["_corrupt"].to_pylist() == [None, payload]


def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_message() -> None:
    json, text = values.json(pa.struct([("a", pa.int64())]), keep=False), values.text(keep=False)
    with pytest.raises(InvalidRequest, match="orders@42 does not fit"):
        json(batches(b"{}", b'{"a":1}', b"oops"))
    with pytest.raises(InvalidRequest, match="orders@41 does not fit"):
        text(batches(b"fine", b"\xff"))
    with pytest.raises(InvalidRequest, match="orders@40 does not fit"):
        text(batches(b"\xff"))


def test_text() -> None:
    assert values.text(keep=False)(batches(b"one", b"", "zwei ä".encode()))[
        "value"
    ].to_pylist() == [
        "one",
        "",
        "zwei ä",
    ]
    made = values.text(keep=True)(batches(b"one", b"\xff\0"))
    assert made["value"].to_pylist() == ["one", None]
    assert made["_corrupt"].to_pylist() == [None, b"\xff\0"]


def test_names_of_fields_may_be_anything() -> None:
    kind = pa.struct([("order id", pa.int64()), ("f1", pa.string()), ("def", pa.int64())])
    made = values.json(kind, keep=False)(batches(b'{"order id":1,"f1":"x","def":2}'))
    assert made["value"].to_pylist() == [{"order id": 1, "f1": "x", "def": 2}]


def test_a_type_that_json_has_not_is_refused_by_its_place() -> None:
    kind = pa.struct([("when", pa.struct([("long", pa.duration("us"))]))])
    with pytest.raises(ConfigError, match=r"value\.when\.long cannot be read from JSON"):
        decoder_of(kind)
