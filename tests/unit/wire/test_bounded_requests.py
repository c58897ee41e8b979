"""No request has a text or a list without an end: each is bounded as it is decoded."""

import struct
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from oncemq.protocol.requests import REQUESTS, Request, ShowTopic, WatchEnds
from oncemq.protocol.structs import ENTRIES_MAX, TEXT_MAX
from oncemq.wire import codec


def texts(kind: inspect.Type, place: str) -> Iterator[tuple[str, int | None]]:
    """Each text in a type, and the longest it may be."""
    match kind:
        case inspect.StrType() | inspect.BytesType():
            yield place, kind.max_length
        case inspect.StructType():
            for field in kind.fields:
                yield from texts(field.type, f"{place}.{field.name}")
        case inspect.VarTupleType():
            assert kind.max_length == ENTRIES_MAX, place
            yield from texts(kind.item_type, place)
        case inspect.TupleType():
            for each in kind.item_types:
                yield from texts(each, place)
        case _:
            assert isinstance(kind, inspect.IntType | inspect.BoolType), kind


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=lambda kind: kind.__name__)
def test_every_text_and_list_of_a_request_has_an_end(kind: type[Request]) -> None:
    found = dict(texts(inspect.type_info(kind), kind.__name__))
    assert {place: most for place, most in found.items() if most != TEXT_MAX} == {}


def test_a_text_that_is_too_long_is_refused_without_repeating_it() -> None:
    for length in (TEXT_MAX, TEXT_MAX + 1):
        (head,) = codec.encode_request(7, ShowTopic("\0" * length))
        if length == TEXT_MAX:
            assert codec.decode_request([head])[1] == ShowTopic("\0" * length)
            continue
        with pytest.raises(codec.Malformed, match="length <= 1000") as refused:
            codec.decode_request([head])
        assert refused.value.token == 7
        assert len(msgspec.msgpack.encode(refused.value.refusal)) < 200


def test_a_list_that_is_too_long_is_refused_before_its_entries_are_looked_at() -> None:
    head = codec.encode_request(7, WatchEnds(()))[0]
    assert bytes(head[12:]) == b"\x93\x90\x00\x00"
    for count, words in (
        (ENTRIES_MAX, "truncated"),
        (ENTRIES_MAX + 1, "length <= 50000"),
        (2**32 - 1, "length <= 50000"),
    ):
        with pytest.raises(codec.Malformed, match=words):
            codec.decode_request([bytes(head[:12]) + b"\x93\xdd" + struct.pack(">I", count)])


def test_a_head_that_is_too_long_is_refused_unread() -> None:
    (head,) = codec.encode_request(7, ShowTopic("orders"))
    more = bytes(codec.HEAD_BYTES_MAX - len(head))
    with pytest.raises(codec.Malformed, match="over the limit of 33554432") as refused:
        codec.decode_request([bytes(head) + more + b"\0"])
    assert (refused.value.token, refused.value.refusal.code) == (7, "too_large")
