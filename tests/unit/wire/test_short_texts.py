"""No request has a text without an end: a refusal, a line of the log and a record may repeat it."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from oncemq.protocol.requests import REQUESTS, Request, ShowTopic
from oncemq.protocol.structs import TEXT_MAX
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
            yield from texts(kind.item_type, place)
        case inspect.TupleType():
            for each in kind.item_types:
                yield from texts(each, place)
        case _:
            assert isinstance(kind, inspect.IntType | inspect.BoolType), kind


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=lambda kind: kind.__name__)
def test_every_text_of_a_request_has_an_end(kind: type[Request]) -> None:
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
