"""Laws of the codec: there and back is the same, and no bytes whatever make it stumble."""

import struct

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from oncemq.protocol.records import Run
from oncemq.protocol.replies import REPLIES, BatchHead, Messages
from oncemq.protocol.requests import REQUESTS, Get, Put, Settled, Start, Subscribe
from oncemq.wire import codec

NUMBERS = st.integers(-(2**63), 2**64 - 1)
TEXT = st.text("aä\N{SNOWMAN}\0", max_size=9)
BYTES = st.binary(max_size=20)
TOKENS = st.integers(0, 2**64 - 1)

SETTLED = st.lists(st.builds(Settled, TEXT, NUMBERS, NUMBERS), max_size=3).map(tuple)
PUTS = st.builds(
    Put, TEXT, NUMBERS, TEXT, NUMBERS, BYTES, st.booleans(), NUMBERS, NUMBERS, NUMBERS, NUMBERS
)
OTHERS = st.one_of(
    st.builds(Get, TEXT, NUMBERS, TEXT, SETTLED, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Subscribe, TEXT, NUMBERS, TEXT, st.builds(Start, TEXT, NUMBERS)),
)
RUNS = st.lists(st.builds(Run, NUMBERS, BYTES, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple)
HEADS = st.builds(BatchHead, TEXT, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, RUNS)

PLAIN = st.none() | st.booleans() | NUMBERS | st.floats() | TEXT | BYTES
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=3)
)
FIELDS = VALUES.map(msgspec.msgpack.encode) | st.binary(max_size=40)
CODES = st.sampled_from(sorted({*REQUESTS, *REPLIES})) | st.integers(0, 255)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A head that gets past the door, with anything behind it."""
    return struct.pack(">2sBBQ", b"OQ", 1, draw(CODES), draw(TOKENS)) + draw(FIELDS)


FRAMES = st.lists(st.binary(max_size=60), max_size=3) | st.tuples(
    heads(), st.lists(BYTES, max_size=2)
).map(lambda parts: [parts[0], *parts[1]])


@given(TOKENS, PUTS, BYTES)
def test_a_put_is_what_it_was_after_the_way(token: int, put: Put, body: bytes) -> None:
    assert codec.decode_request(codec.encode_request(token, put, body)) == (token, put, body)


@given(TOKENS, OTHERS)
def test_a_request_is_what_it_was_after_the_way(token: int, request) -> None:
    assert codec.decode_request(codec.encode_request(token, request)) == (token, request, None)


@given(TOKENS, st.lists(st.tuples(HEADS, BYTES), max_size=3), st.booleans())
def test_messages_are_what_they_were_after_the_way(token: int, batches, more: bool) -> None:
    reply = Messages(tuple(head for head, _ in batches), more)
    bodies = [body for _, body in batches]
    assert codec.decode_reply(codec.encode_reply(token, reply, bodies)) == (token, reply, bodies)


@given(FRAMES)
def test_whatever_comes_is_a_value_or_malformed_and_nothing_else(frames: list[bytes]) -> None:
    for decode in (codec.decode_request, codec.decode_reply):
        try:
            token, value, _ = decode(frames)
        except codec.Malformed:
            continue
        assert token == struct.unpack_from(">Q", frames[0], 4)[0]
        assert type(value) in {*REQUESTS.values(), *REPLIES.values()}


@given(FRAMES, st.binary(max_size=9))
def test_whatever_comes_on_the_feed_is_a_push_or_malformed(frames: list[bytes], subject) -> None:
    try:
        pushed, bodies = codec.decode_push([subject, *frames])
    except codec.Malformed:
        return
    assert codec.subject(pushed.topic_id) == subject
    assert len(bodies) == len(pushed.batches)


@given(TOKENS, PUTS, BYTES, st.data())
def test_a_request_cut_short_is_never_another_request(token, put, body, data) -> None:
    head, _ = codec.encode_request(token, put, body)
    end = data.draw(st.integers(0, len(head) - 1))
    try:
        codec.decode_request([head[:end], body])
    except codec.Malformed:
        return
    raise AssertionError("a head cut short was taken for a whole one")
