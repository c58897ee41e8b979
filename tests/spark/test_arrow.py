"""Columns from the log become Arrow's: the same rows, whatever the batches are."""

import datetime
from base64 import b64decode
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.client.verbs.columns import ColumnBatch
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import Run
from oncemq.server.reader import cut_runs
from oncemq.spark.columns import batch_to_arrow
from oncemq.wire import batch

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
    ]
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

BYTES = st.binary(max_size=6)
ITEMS = st.builds(
    batch.Item,
    BYTES,
    st.none() | BYTES,
    st.none() | st.dictionaries(st.text("ab", max_size=2), st.text("xä", max_size=2), max_size=2),
)
PUTS = st.tuples(
    st.lists(ITEMS, min_size=1, max_size=70), st.booleans(), st.binary(min_size=16, max_size=16)
)


def stored(first: int, items: list[batch.Item], producer: bytes = b"p" * 16) -> ColumnBatch:
    """A batch as `read_columns` gives it."""
    columns, body = batch.encode(items)
    run = Run(len(items), ProducerId(producer), Epoch(1), Sequence(first + 7), Micros(first * 1000))
    return ColumnBatch("orders", TopicId(1), Offset(first), len(items), columns, (run,), body)


def cut(whole: ColumnBatch, start: int, stop: int) -> ColumnBatch:
    """A slice of a batch, as the server makes it."""
    body = batch.cut(whole.body, whole.count, whole.columns, start=start, stop=stop)
    runs = cut_runs(whole.runs, start=start, stop=stop)
    first = Offset(whole.first_offset + start)
    return ColumnBatch("orders", TopicId(1), first, stop - start, whole.columns, runs, body)


def expected(batches: list[ColumnBatch]) -> list[tuple]:
    """The slow and plain way."""
    rows: list[tuple] = []
    for each in batches:
        (run,) = each.runs
        for place, item in enumerate(batch.decode(each.body, each.count, each.columns)):
            when = EPOCH + datetime.timedelta(microseconds=run.timestamp)
            headers = sorted(item.headers.items()) if item.headers else None
            offset, sequence = each.first_offset + place, run.first_sequence + place
            rows.append(
                (
                    item.key,
                    item.payload,
                    "orders",
                    offset,
                    when,
                    headers,
                    run.producer.hex(),
                    sequence,
                )
            )
    return rows


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple]:
    rows: list[tuple] = []
    for each in batches:
        each.validate(full=True)
        assert 0 < each.num_rows <= batch_to_arrow.ROWS_MAX
        rows += zip(*(column.to_pylist() for column in each.columns), strict=True)
    return rows


@given(st.lists(PUTS, min_size=1, max_size=5), st.data())
def test_a_row_is_a_message_whatever_it_came_in(puts, data: st.DataObject) -> None:
    batches: list[ColumnBatch] = []
    first = 0
    for items, plain, producer in puts:
        items = [batch.Item(item.payload) for item in items] if plain else items
        whole = stored(first, items, producer)
        first += len(items)
        batches.append(whole)
    # The server cuts the first and the last batch of a range.
    start = data.draw(st.integers(0, batches[0].count - 1))
    batches[0] = cut(batches[0], start, batches[0].count)
    stop = data.draw(st.integers(1, batches[-1].count))
    batches[-1] = cut(batches[-1], 0, stop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_to_arrow, "GATHER_ROWS", data.draw(st.integers(1, 200)))
        assert rows_of(batch_to_arrow.record_batches(batches, SCHEMA)) == expected(batches)


def test_small_batches_are_gathered_into_few_record_batches() -> None:
    batches = [stored(n, [batch.Item(b"%d" % n)]) for n in range(1000)]
    (rows,) = batch_to_arrow.record_batches(batches, SCHEMA)
    assert rows.column("value").to_pylist() == [b"%d" % n for n in range(1000)]
    assert rows.column("sequence").to_pylist() == list(range(7, 1007))


def test_batches_that_are_large_enough_are_not_joined() -> None:
    batches = [stored(n * 10_000, [batch.Item(b"x")] * 10_000) for n in range(3)]
    batches.append(stored(30_000, [batch.Item(b"x")] * batch_to_arrow.GATHER_ROWS))
    sizes = [rows.num_rows for rows in batch_to_arrow.record_batches(batches, SCHEMA)]
    assert sizes == [20_000, 10_000, batch_to_arrow.GATHER_ROWS]


def test_a_large_batch_is_cut_into_record_batches() -> None:
    count = batch_to_arrow.ROWS_MAX + 10
    batches = [stored(0, [batch.Item(b"x")] * count)]
    sizes = [rows.num_rows for rows in batch_to_arrow.record_batches(batches, SCHEMA)]
    assert sizes == [batch_to_arrow.ROWS_MAX, 10]


def test_gathering_stops_at_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_to_arrow, "GATHER_BYTES", 1000)
    batches = [stored(n, [batch.Item(b"x" * 400)]) for n in range(5)]
    assert [rows.num_rows for rows in batch_to_arrow.record_batches(batches, SCHEMA)] == [2, 2, 1]


def test_only_the_columns_asked_for_are_made_in_their_order() -> None:
    schema = pa.schema([("offset", pa.int64()), ("key", pa.binary())])
    (rows,) = batch_to_arrow.record_batches([stored(5, [batch.Item(b"x", b"k")])], schema)
    assert rows.schema == schema
    assert rows.to_pylist() == [{"offset": 5, "key": b"k"}]


def test_a_plain_batch_is_not_copied() -> None:
    whole = stored(0, [batch.Item(b"x" * 50)] * 100)
    (rows,) = batch_to_arrow.record_batches([whole], pa.schema([("value", pa.binary())]))
    data = rows.column("value").buffers()[2]
    assert data is not None
    begin = pa.py_buffer(whole.body).address
    assert begin <= data.address < begin + len(whole.body)


KAFKA_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_headers_as_kafka_has_them() -> None:
    schema = pa.schema([("headers", KAFKA_HEADERS)])
    items = [batch.Item(b"x", None, {"b": "ö", "a": ""}), batch.Item(b"y")]
    (rows,) = batch_to_arrow.record_batches([stored(0, items)], schema)
    pairs = [{"key": "a", "value": b""}, {"key": "b", "value": "ö".encode()}]
    assert rows.column("headers").to_pylist() == [pairs, None]


@pytest.mark.parametrize("odd", [b"\xc1\xa1a\xa1b", b"\x81\xa1a\xa1\xff", b"\x81\xa1a\x07\x07"])
def test_headers_that_are_none_are_given_under_a_name_of_their_own(odd: bytes) -> None:
    """A server of version 0.1.0 took them: one message must not end every query."""
    columns, body = batch.encode([batch.Item(b"x", None, {"a": "b"})])
    bad = body.replace(b"\x81\xa1a\xa1b", odd)
    assert bad != body
    run = Run(1, ProducerId(b"p" * 16), Epoch(1), Sequence(1), Micros(0))
    piece = ColumnBatch("orders", TopicId(1), Offset(3), 1, columns, (run,), bad)
    (rows,) = batch_to_arrow.record_batches([piece], SCHEMA)
    ((name, text),) = rows.column("headers").to_pylist()[0]
    assert (name, b64decode(text)) == ("oncemq-odd-headers", odd)
    (rows,) = batch_to_arrow.record_batches([piece], pa.schema([("headers", KAFKA_HEADERS)]))
    assert rows.column("headers").to_pylist() == [[{"key": name, "value": text.encode()}]]
