"""Requests and replies as frames.

    frame 0   "OQ" · version u8 · opcode u8 · token u64 (big-endian), then the fields in msgpack
    frame 1…  bodies: one for a put (also into a stage), one a batch for messages, none otherwise

A message of the live feed has one frame more before these: the topic's id, 8 bytes (`subject`).

Laws: `decode(encode(x)) == x`; whatever bytes come, decoding gives a value or a `Malformed`
that says what is wrong with them, and nothing else.
"""

import struct
from collections.abc import Sequence

import msgspec

from oncemq.protocol.names import TopicId
from oncemq.protocol.replies import REPLIES, Messages, Pushed, RefusedReply, Reply
from oncemq.protocol.requests import REQUESTS, Put, Request, StagePut
from oncemq.protocol.step import Body

VERSION = 1
MAGIC = b"OQ"
FRAMES_MAX = 1 + 1024  # a head and the bodies of one reply
HEAD_BYTES_MAX = 32 << 20  # of a request: its longest lists with the longest names take less

_OPENING = MAGIC + bytes((VERSION,))
HEAD = struct.Struct(">3sBQ")
OPCODE_AT = 3
_pack_head = HEAD.pack
_unpack_head = HEAD.unpack_from
_SUBJECT = struct.Struct(">Q")
_WITH_A_BODY = (Put, StagePut)
_pack = msgspec.msgpack.Encoder().encode
# RecursionError: arrays in arrays in arrays, where a field that is not known is passed over.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError)
_REQUESTS = {code: msgspec.msgpack.Decoder(kind).decode for code, kind in REQUESTS.items()}
_REPLIES = {code: msgspec.msgpack.Decoder(kind).decode for code, kind in REPLIES.items()}


class Malformed(Exception):
    """Bytes that are no message of this protocol; `refusal` is what to answer to `token`."""

    def __init__(self, code: str, detail: str, token: int = 0) -> None:
        super().__init__(detail)
        self.token = token
        self.refusal = RefusedReply(code, detail)


def encode_request(token: int, request: Request, body: Body | None = None) -> list[Body]:
    """A request as frames."""
    head = _pack_head(_OPENING, request.opcode, token) + _pack(request)
    return [head] if body is None else [head, body]


def opcode_of(frames: Sequence[Body]) -> int:
    """What kind of message this is, before it is decoded; 0: none."""
    return frames[0][OPCODE_AT] if frames and len(frames[0]) >= HEAD.size else 0


def decode_request(frames: Sequence[Body]) -> tuple[int, Request, Body | None]:
    """The token, the request and its body."""
    if not frames or len(frames[0]) < HEAD.size:
        raise _headless(frames)
    opening, opcode, token = _unpack_head(frames[0])
    if opening != _OPENING:
        raise _foreign(opening, token)
    size = len(frames[0])
    if size > HEAD_BYTES_MAX:  # what is passed over in it would take its time, too
        detail = f"a request's head has {size} bytes, over the limit of {HEAD_BYTES_MAX}"
        raise Malformed("too_large", f"{detail}; ask in parts", token)
    decoder = _REQUESTS.get(opcode)
    if decoder is None:
        known = ", ".join(map(str, sorted(_REQUESTS)))
        raise Malformed("opcode", f"no request has the opcode {opcode}; known: {known}", token)
    try:
        request = decoder(memoryview(frames[0])[HEAD.size :])
    except UNDECODABLE as error:
        name = REQUESTS[opcode].__name__
        raise Malformed("malformed", f"the fields of {name} do not fit: {error}", token) from None
    bodies = 1 if isinstance(request, _WITH_A_BODY) else 0
    if len(frames) != 1 + bodies:
        detail = f"{type(request).__name__} has {1 + bodies} frames, got {len(frames)}"
        raise Malformed("malformed", detail, token)
    return token, request, frames[1] if bodies else None


def encode_reply(token: int, reply: Reply, bodies: Sequence[Body] = ()) -> list[Body]:
    """A reply as frames."""
    return [_pack_head(_OPENING, reply.opcode, token) + _pack(reply), *bodies]


def decode_reply(frames: Sequence[Body]) -> tuple[int, Reply, Sequence[Body]]:
    """The token, the reply and the bodies beside it."""
    if not frames or len(frames[0]) < HEAD.size:
        raise _headless(frames)
    opening, opcode, token = _unpack_head(frames[0])
    if opening != _OPENING:
        raise _foreign(opening, token)
    decoder = _REPLIES.get(opcode)
    if decoder is None:
        raise Malformed("opcode", f"no reply has the opcode {opcode}", token)
    try:
        reply = decoder(memoryview(frames[0])[HEAD.size :])
    except UNDECODABLE as error:
        raise Malformed(
            "malformed", f"the fields of the reply do not fit: {error}", token
        ) from None
    bodies = len(reply.batches) if isinstance(reply, Messages | Pushed) else 0
    if len(frames) != 1 + bodies:
        raise Malformed("malformed", f"expected {bodies} bodies, got {len(frames) - 1}", token)
    return token, reply, frames[1:]


def subject(topic_id: TopicId) -> bytes:
    """What the feed's messages about a topic begin with, and what its subscribers ask for.

    Of one length, so that no topic's is the beginning of another's.
    """
    return _SUBJECT.pack(topic_id)


def topic_of(subject: Body) -> TopicId | None:
    """The topic a subject stands for; None when it is no subject of ours."""
    if len(subject) != _SUBJECT.size:
        return None
    return TopicId(_SUBJECT.unpack(subject)[0])


def encode_push(pushed: Pushed, bodies: Sequence[Body] = ()) -> list[Body]:
    """A message of the live feed: its subject, then a reply that nobody asked for."""
    return [subject(pushed.topic_id), *encode_reply(0, pushed, bodies)]


def decode_push(frames: Sequence[Body]) -> tuple[Pushed, Sequence[Body]]:
    """What the feed says, and the bodies beside it."""
    _, reply, bodies = decode_reply(frames[1:])
    if not isinstance(reply, Pushed) or topic_of(frames[0]) != reply.topic_id:
        raise Malformed("malformed", "this is not a message of the live feed")
    return reply, bodies


def _headless(frames: Sequence[Body]) -> Malformed:
    if not frames:
        return Malformed("malformed", "a message has at least one frame")
    detail = f"a head has {HEAD.size} bytes or more, got {len(frames[0])}"
    return Malformed("malformed", detail)


def _foreign(opening: bytes, token: int) -> Malformed:
    """Of another protocol, or of another version of ours."""
    if not opening.startswith(MAGIC):
        return Malformed("malformed", "this is not OnceMQ's protocol")
    detail = (
        f"protocol version {opening[-1]} is not spoken here, only {VERSION}; use a client of it"
    )
    return Malformed("version", detail, token)
