"""Commands: a name and data. READY's data are properties: names and values."""

import struct
from collections.abc import Mapping

from oncemq.zmtp.limits import WireError

READY = b"READY"
ERROR = b"ERROR"
PING = b"PING"
PONG = b"PONG"
SUBSCRIBE = b"SUBSCRIBE"
CANCEL = b"CANCEL"

PING_TTL_BYTES = 2
PING_CONTEXT_BYTES_MAX = 16

_SIZE = struct.Struct(">I")


def command(name: bytes, data: bytes = b"") -> bytes:
    """A command's frame, its head included."""
    body = bytes((len(name),)) + name + data
    if len(body) < 256:
        return bytes((4, len(body))) + body
    return b"\x06" + len(body).to_bytes(8, "big") + body


def split(body: bytes) -> tuple[bytes, bytes]:
    """The name and the data of a command."""
    if not body or len(body) < 1 + body[0] or not body[0]:
        raise WireError("a command has no name")
    end = 1 + body[0]
    return body[1:end], body[end:]


def properties(values: Mapping[bytes, bytes]) -> bytes:
    """The data of a READY."""
    return b"".join(
        bytes((len(name),)) + name + _SIZE.pack(len(value)) + value
        for name, value in values.items()
    )


def read_properties(data: bytes) -> dict[bytes, bytes]:
    """What a READY says; names in lower case, since they have no case."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        value_at = name_end + _SIZE.size
        if not data[at]:
            raise WireError("a property of READY has no name")
        if value_at > len(data):
            raise WireError("a property of READY is cut short")
        value_end = value_at + _SIZE.unpack_from(data, name_end)[0]
        if value_end > len(data):
            raise WireError("a property of READY is cut short")
        found[data[at + 1 : name_end].lower()] = data[value_at:value_end]
        at = value_end
    return found


def error_reason(data: bytes) -> str:
    """What an ERROR says, for a log line."""
    return data[1 : 1 + data[0]].decode("ascii", "replace") if data else ""


def error(reason: str) -> bytes:
    """An ERROR, which ends a handshake."""
    said = reason.encode("ascii", "replace")[:255]
    return command(ERROR, bytes((len(said),)) + said)


def answer_to_ping(data: bytes) -> bytes:
    """The PONG with the ping's context."""
    context = data[PING_TTL_BYTES:]
    if len(data) < PING_TTL_BYTES or len(context) > PING_CONTEXT_BYTES_MAX:
        raise WireError(f"a PING of {len(data)} bytes")
    return command(PONG, context)
