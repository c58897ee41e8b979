"""Arrow's columns become the log's: the same messages, whatever the rows are."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import InvalidRequest
from oncemq.spark.sink import arrow_to_batch as module
from oncemq.spark.sink.arrow_to_batch import bodies, by_topic
from oncemq.wire import batch

HEADERS = pa.map_(pa.string(), pa.string())
KAFKA_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BYTES = st.binary(max_size=6)
TEXTS = st.text("aä", max_size=2)
ROWS = st.lists(
    st.tuples(BYTES, st.none() | BYTES, st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2)),
    min_size=1,
    max_size=40,
)


def table(rows: list[tuple], headers: pa.DataType = HEADERS) -> pa.RecordBatch:
    values, keys, given = zip(*rows, strict=True)
    pairs = [None if each is None else list(each.items()) for each in given]
    if headers is KAFKA_HEADERS:
        pairs = [
            each and [{"key": name, "value": text.encode()} for name, text in each]
            for each in pairs
        ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, pa.binary()),
            pa.array(keys, pa.binary()),
            pa.array(pairs, headers),
        ],
        names=["value", "key", "headers"],
    )


def messages(rows: pa.RecordBatch) -> list[batch.Item]:
    """What a reader would decode; each body passes the server's check."""
    found: list[batch.Item] = []
    for count, columns, body in bodies(rows):
        assert batch.fault(body, count, columns, message_bytes_max=1 << 20) is None
        found += batch.decode(body, count, columns)
    return found


@given(ROWS, st.integers(0, 5), st.integers(0, 5), st.sampled_from([HEADERS, KAFKA_HEADERS]))
def test_a_message_is_a_row(rows: list[tuple], before: int, after: int, headers) -> None:
    whole = table(rows, headers)
    start, stop = min(before, len(rows)), max(0, len(rows) - after)
    part = whole.slice(start, max(0, stop - start))
    wanted = [batch.Item(value, key, given or None) for value, key, given in rows[start:stop]]
    assert messages(part) == wanted


def test_text_is_its_bytes() -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["ä", ""], "key": ["k", None]})
    assert messages(rows) == [batch.Item("ä".encode(), b"k"), batch.Item(b"")]


def test_plain_rows_are_the_body_that_a_client_makes() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})
    assert list(bodies(rows)) == [(2, 0, batch.encode_payloads([b"one", b"two"]))]


def test_rows_with_keys_and_headers_are_the_body_that_a_client_makes() -> None:
    rows = [(b"one", None, {"a": "b"}), (b"two", b"key", None), (b"", b"", {"c": ""})]
    items = [batch.Item(*row) for row in rows]
    for part in (slice(0, 3), slice(1, 3), slice(1, 2), slice(0, 1)):
        cut = table(rows)[part.start : part.stop]
        columns, body = batch.encode(items[part])
        assert list(bodies(cut)) == [(len(items[part]), columns, bytes(body))]


def test_rows_that_are_large_together_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 1000)
    rows = pa.RecordBatch.from_pydict({"value": [b"%d" % n * 150 for n in range(10)]})
    made = list(bodies(rows))
    assert [count for count, _, _ in made] == [5, 5]
    assert messages(rows) == [batch.Item(b"%d" % n * 150) for n in range(10)]


def test_a_null_value_or_topic_is_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"a", None], "topic": ["x", None]})
    with pytest.raises(InvalidRequest, match="the value of 1 rows is null"):
        list(bodies(rows))
    with pytest.raises(InvalidRequest, match="the topic of 1 rows is null"):
        list(by_topic(rows, ""))


def test_a_header_that_is_there_twice_is_refused() -> None:
    twice = [[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]]
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"x"]), pa.array(twice, KAFKA_HEADERS)], names=["value", "headers"]
    )
    with pytest.raises(InvalidRequest, match="header 'a' once"):
        list(bodies(rows))


@pytest.mark.parametrize(
    ("headers", "kind", "said"),
    [
        ([("a", None)], HEADERS, "the header 'a' of a row is null"),
        ([{"key": "a", "value": None}], KAFKA_HEADERS, "the header 'a' of a row is null"),
        ([{"key": None, "value": b"1"}], KAFKA_HEADERS, "the header None of a row is null"),
        ([{"key": "a", "value": b"\xff"}], KAFKA_HEADERS, "the header 'a' of a row is not UTF-8"),
    ],
)
def test_a_header_that_is_no_text_is_refused_in_words(headers, kind, said: str) -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"x"]), pa.array([headers], kind)], names=["value", "headers"]
    )
    with pytest.raises(InvalidRequest, match=said):
        list(bodies(rows))


def test_rows_go_to_their_topics_in_order() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"1", b"2", b"3", b"4"], "topic": ["a", "b", "a", "b"]}
    )
    split = {name: [item.payload for item in messages(part)] for name, part in by_topic(rows, "")}
    assert split == {"a": [b"1", b"3"], "b": [b"2", b"4"]}
    assert [name for name, _ in by_topic(rows, "c")] == ["c"]
