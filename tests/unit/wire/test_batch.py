"""The batch body, byte by byte: the same columns from the publisher to the log to the reader."""

import struct

import msgspec
import pytest

from oncemq.wire import batch
from oncemq.wire.batch import HEADERS, KEYS, Item

MIXED = [
    Item(b"plain"),
    Item(b"", b""),
    Item(b"keyed", b"key"),
    Item(b"headed", None, {"trace": "1", "ü": ""}),
    Item(b"both", b"k2", {"a": "b"}),
]


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def fault(body: bytes, count: int, columns: int = 0, message_bytes_max: int = 100) -> str | None:
    return batch.fault(body, count, columns, message_bytes_max=message_bytes_max)


# ------------------------------------------------------------------ the bytes


def test_a_plain_body_is_the_offsets_then_the_payloads() -> None:
    assert batch.encode_payloads([b"ab", b"", b"c"]) == numbers(16, 18, 18, 19) + b"abc"


def test_a_body_with_keys_and_headers_has_a_table_for_each_and_a_byte_for_has_a_key() -> None:
    columns, body = batch.encode([Item(b"p", b"k"), Item(b"qq", None, {"a": "b"})])
    packed = b"\x81\xa1a\xa1b"
    tables = numbers(0, 1, 3) + numbers(0, 1, 1) + b"\x01\x00" + numbers(0, 0, len(packed))
    assert (columns, body) == (KEYS | HEADERS, tables + b"pqq" + b"k" + packed)
    assert batch.table_bytes(2, columns) == len(tables)


def test_columns_that_no_message_uses_are_left_out() -> None:
    assert batch.encode([Item(b"a"), Item(b"b", None, {})]) == (
        0,
        batch.encode_payloads([b"a", b"b"]),
    )
    assert batch.encode([Item(b"a", b"")])[0] == KEYS
    assert batch.encode([Item(b"a", None, {"a": ""})])[0] == HEADERS


def test_an_empty_key_is_a_key_and_no_key_is_none() -> None:
    columns, body = batch.encode(MIXED)
    assert batch.decode(body, len(MIXED), columns) == MIXED
    assert batch.sides(body, len(MIXED), columns)[0] == [None, b"", b"key", None, b"k2"]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_a_body_may_be_any_kind_of_bytes(wrap) -> None:
    columns, body = batch.encode(MIXED)
    assert batch.decode(wrap(body), len(MIXED), columns) == MIXED
    assert batch.payloads_of(wrap(batch.encode_payloads([b"a", b"b"])), 2, 0) == [b"a", b"b"]
    assert fault(wrap(body), len(MIXED), columns) is None


def test_payloads_are_sliced_out_a_few_at_a_time() -> None:
    reader = batch.PayloadReader(batch.encode_payloads([b"a", b"bb", b"", b"c"]), 4, 0)
    reader.skip(1)
    assert list(reader.take(2)) == [b"bb", b""]
    assert list(reader.take(1)) == [b"c"]
    assert list(reader.take(0)) == []


def test_payloads_of_one_length_are_sliced_out_too() -> None:
    columns, body = batch.encode([Item(b"ab", b"key"), Item(b"cd"), Item(b"ef"), Item(b"gh")])
    reader = batch.PayloadReader(body, 4, columns)
    reader.skip(1)
    assert list(reader.take(2)) == [b"cd", b"ef"]
    assert list(reader.take(1)) == [b"gh"]


def test_a_body_that_is_shorter_than_its_tables_has_no_payloads() -> None:
    with pytest.raises(ValueError, match="4 messages"):
        batch.payloads_of(b"", 4, 0)


# ------------------------------------------------------------------ cut, fit, join


def test_a_cut_takes_its_own_messages_with_their_keys_and_headers() -> None:
    columns, body = batch.encode(MIXED)
    cut = batch.cut(body, 5, columns, start=1, stop=4)
    assert batch.decode(cut, 3, columns) == MIXED[1:4]
    assert fault(cut, 3, columns) is None


@pytest.mark.parametrize(
    ("start", "bytes_max", "stop"),
    [(0, 9, 3), (0, 10, 4), (0, 3, 1), (0, 2, 0), (0, 0, 0), (1, 3, 3), (1, 2, 1), (3, -5, 3)],
)
def test_as_many_fit_as_their_payloads_are_long(start, bytes_max, stop) -> None:
    body = batch.encode_payloads([b"aaa", b"bbb", b"", b"cccc"])
    assert batch.fit(body, 4, 0, start=start, stop=4, bytes_max=bytes_max) == stop


def test_a_fit_goes_no_further_than_asked() -> None:
    body = batch.encode_payloads([b"a", b"b", b"c"])
    assert batch.fit(body, 3, 0, start=0, stop=2, bytes_max=10**6) == 2
    assert batch.fit(body, 3, 0, start=0, stop=2, bytes_max=3) == 2


def test_joined_batches_hold_everything_in_order_whatever_columns_each_had() -> None:
    parts = [[Item(b"a")], MIXED, [Item(b"z", b"k")], [Item(b"h", None, {"x": "y"})]]
    bodies = []
    for part in parts:
        columns, body = batch.encode(part)
        bodies.append((body, len(part), columns))
    items = [item for part in parts for item in part]
    columns, body = batch.join(bodies)
    assert batch.decode(body, len(items), columns) == items


def test_joining_plain_batches_gives_a_plain_batch() -> None:
    one, two = batch.encode_payloads([b"a"]), batch.encode_payloads([b"b", b"c"])
    assert batch.join([(one, 1, 0), (two, 2, 0)]) == (0, batch.encode_payloads([b"a", b"b", b"c"]))


def test_headers_that_no_reader_understands_are_joined_as_they_are() -> None:
    """Compaction joins what publishers sent: a bad header must not stop a server for good."""
    odd = numbers(0, 1) + numbers(0, 1) + b"p" + b"\xc1"  # a byte msgpack never uses
    plain = batch.encode_payloads([b"q"])
    columns, body = batch.join([(odd, 1, HEADERS), (plain, 1, 0)])
    assert (columns, batch.payloads_of(body, 2, columns)) == (HEADERS, [b"p", b"q"])
    assert body.endswith(b"\xc1")


# ------------------------------------------------------------------ faults


def test_what_was_encoded_has_no_fault() -> None:
    columns, body = batch.encode(MIXED)
    assert fault(body, len(MIXED), columns) is None


GOOD = batch.encode_payloads([b"ab", b"c"])

FAULTS = [
    (b"", 0, 0, "a batch holds at least one message"),
    (b"", -1, 0, "a batch holds at least one message"),
    (GOOD, 2, 4, "columns 0x4 are not known here; this server knows 0x3"),
    (GOOD, 2, -1, "columns -0x1 are not known here; this server knows 0x3"),
    (b"", 1, 0, "the batch says 1 messages but has only 0 bytes"),
    (GOOD, 2**62, 0, f"the batch says {2**62} messages but has only 15 bytes"),
    (numbers(5, 3) + b"", 1, 0, "the offsets of the batch go backwards"),
    (numbers(0, 4, 3) + b"abc", 2, 0, "the offsets of the batch go backwards"),
    (GOOD[:-1], 2, 0, "the columns of the batch end at byte 15 but it has 14"),
    (GOOD + b"x", 2, 0, "the columns of the batch end at byte 15 but it has 16"),
    (GOOD, 1, 0, "the columns of the batch end at byte 10 but it has 15"),
    (batch.encode_payloads([b"x" * 101]), 1, 0, "a message of 101 bytes is over the limit of 100"),
]


@pytest.mark.parametrize(("body", "count", "columns", "said"), FAULTS)
def test_a_body_that_is_no_batch_is_told_why(body, count, columns, said) -> None:
    assert fault(body, count, columns) == said


NO_HEADERS = [
    b"\xc1",  # a byte that msgpack never uses
    b"\x93\x01\x02\x03",
    b"\x81\xa1a\x01",  # {"a": 1}
    b"\x81\x01\xa1a",
    b"\x81\xa1a\xc0",
    b"\x81\xa1\xff\xa1a",  # not UTF-8
    b"\x81\xa1a",
    b"\x81\xa1a\xa1b\x00",
    b"\x81" * 5_000,
]


@pytest.mark.parametrize("packed", NO_HEADERS)
def test_headers_that_are_none_are_told_with_their_place(packed) -> None:
    fine = msgspec.msgpack.encode({"a": "b"})
    tables = numbers(0, 1, 2) + numbers(0, len(fine), len(fine) + len(packed))
    body = tables + b"pq" + fine + packed
    said = fault(body, 2, HEADERS, 10**6) or ""
    assert said.startswith("the headers of message 1 of the batch are not a map of texts: ")
    assert batch.sides(body, 2, HEADERS)[1] == [{"a": "b"}, packed]


def test_the_limit_is_for_a_message_not_for_a_batch() -> None:
    assert fault(batch.encode_payloads([b"x" * 100] * 3), 3) is None


@pytest.mark.parametrize("column", [KEYS, HEADERS])
def test_the_offsets_of_every_column_are_checked(column) -> None:
    columns, body = batch.encode([Item(b"p", b"kk", {"a": "b"}), Item(b"q", b"k", {"c": "d"})])
    at = 12 if column == KEYS else 26
    broken = body[:at] + numbers(9, 3, 9) + body[at + 12 :]
    assert fault(broken, 2, columns) == "the offsets of the batch go backwards"


# ------------------------------------------------------------------ checksums


def test_a_checksum_says_whose_batch_it_is_and_which_numbers_it_has() -> None:
    seeds = {
        batch.seed(*what)
        for what in [
            ("orders", b"p" * 16, 1, 2),
            ("order", b"p" * 16, 1, 2),
            ("orders", b"q" * 16, 1, 2),
            ("orders", b"p" * 16, 2, 2),
            ("orders", b"p" * 16, 1, 3),
            ("orders", b"p" * 16, 11, 2),
            ("orders", b"p" * 16, 1, 12),
        ]
    }
    assert len(seeds) == 7
    assert batch.checksum(b"body", min(seeds)) != batch.checksum(b"body", max(seeds))
