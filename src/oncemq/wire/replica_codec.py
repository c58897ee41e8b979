"""What the replicas of a shard say to each other, as frames.

    frame 0   as of a request (`codec`), with opcodes of their own; the token is 0
    frame 1   beside an Append: the log's frames; beside a RefillPart: bytes of a file; else none

Laws: as in `codec`: whatever bytes come, decoding gives a message or a `Malformed`. A field that is
not known is passed over, so that a newer version may add one at the end.
"""

from collections.abc import Sequence

import msgspec

from oncemq.protocol.replicas.messages import (
    REPLICA_MESSAGES,
    Append,
    LeaderMessage,
    MemberMessage,
    RefillPart,
)
from oncemq.protocol.step import Body
from oncemq.wire.codec import HEAD, MAGIC, UNDECODABLE, VERSION, Malformed, opcode_of

ReplicaSays = LeaderMessage | MemberMessage

_OPENING = MAGIC + bytes((VERSION,))
_FIRST_OPCODE = min(REPLICA_MESSAGES)
_WITH_A_BODY = (Append, RefillPart)
_pack = msgspec.msgpack.Encoder().encode
_DECODERS = {code: msgspec.msgpack.Decoder(kind).decode for code, kind in REPLICA_MESSAGES.items()}


def is_of_replicas(frames: Sequence[Body]) -> bool:
    """Whether another replica says this, and no client."""
    return opcode_of(frames) >= _FIRST_OPCODE


def encode_replica(message: ReplicaSays, body: Body = b"") -> list[Body]:
    """A message as frames."""
    head = HEAD.pack(_OPENING, message.opcode, 0) + _pack(message)
    return [head, body] if isinstance(message, _WITH_A_BODY) else [head]


def decode_replica(frames: Sequence[Body]) -> tuple[ReplicaSays, Body]:
    """A message, and the bytes beside it."""
    if not frames or len(frames[0]) < HEAD.size:
        raise Malformed("malformed", "a message between replicas has a head")
    opening, opcode, _ = HEAD.unpack_from(frames[0])
    decoder = _DECODERS.get(opcode)
    if opening != _OPENING or decoder is None:
        detail = f"replicas of version {VERSION} do not say {opcode} after {opening!r}"
        raise Malformed("version", f"{detail}: run the same version on all servers")
    try:
        message: ReplicaSays = decoder(memoryview(frames[0])[HEAD.size :])
    except UNDECODABLE as error:
        name = REPLICA_MESSAGES[opcode].__name__
        raise Malformed("malformed", f"the fields of {name} do not fit: {error}") from None
    bodies = 1 if isinstance(message, _WITH_A_BODY) else 0
    if len(frames) != 1 + bodies:
        name = type(message).__name__
        raise Malformed("malformed", f"{name} has {1 + bodies} frames, got {len(frames)}")
    return message, frames[1] if bodies else b""
