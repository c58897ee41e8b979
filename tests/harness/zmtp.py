"""Ends of ZMTP connections, and peers written by hand: bytes in, events out, no socket."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from oncemq.zmtp import commands
from oncemq.zmtp.connection import Event, Opened, ZmtpConnection
from oncemq.zmtp.limits import WireError, WireLimits

SMALL = WireLimits(
    frame_bytes_max=300_000,
    message_bytes_max=400_000,
    message_frames_max=5,
    handshake_bytes_max=600,
    command_bytes_max=300,
)


def hello(major: int = 3, minor: int = 1, mechanism: bytes = b"NULL", as_server: int = 0) -> bytes:
    """The 64 bytes of a greeting, written out."""
    named = mechanism.ljust(20, b"\0")
    return (
        b"\xff"
        + bytes(8)
        + b"\x7f"
        + bytes((major, minor))
        + named
        + bytes((as_server,) + 31 * (0,))
    )


def ready(socket_type: bytes, properties: Mapping[bytes, bytes] | None = None) -> bytes:
    """The READY of a peer."""
    said = {b"Socket-Type": socket_type, **(properties or {})}
    return commands.command(b"READY", commands.properties(said))


def frame(body: bytes, *, more: bool = False) -> bytes:
    """A frame of a message."""
    if len(body) < 256:
        return bytes((more, len(body))) + body
    return long_head(len(body), more=more) + body


def long_head(size: int, *, more: bool = False, command: bool = False) -> bytes:
    """The head of a frame with its size in eight bytes."""
    return struct.pack(">BQ", 2 | more | 4 * command, size)


def ping(context: bytes = b"", ttl: int = 0) -> bytes:
    """A heartbeat."""
    return commands.command(b"PING", struct.pack(">H", ttl) + context)


def give(connection: ZmtpConnection, data: bytes) -> Iterator[Event]:
    """What it makes of the bytes, received as a socket's owner does; frames as plain bytes."""
    yield from heard(connection)
    while data:
        view = connection.landing()
        if view is None:
            connection.receive(data)
            data = b""
        else:
            count = min(len(view), len(data))
            view[:count] = data[:count]
            view.release()
            connection.landed(count)
            data = data[count:]
        yield from heard(connection)


def heard(connection: ZmtpConnection) -> Iterator[Event]:
    """Its events until more has to be received."""
    while (event := connection.next_event()) is not None:
        yield [bytes(each) for each in event] if isinstance(event, list) else event


def told(connection: ZmtpConnection, pieces: Iterable[bytes]) -> tuple[list[Event], str]:
    """Its events, and why it ended, if it did."""
    found: list[Event] = []
    try:
        for piece in pieces:
            found.extend(give(connection, piece))
    except WireError as fault:
        return found, str(fault)
    return found, ""


def owed(connection: ZmtpConnection) -> bytes:
    """What it has to say by itself."""
    return b"".join(connection.take_output())


def opened(
    socket_type: bytes = b"ROUTER",
    peer: bytes = b"DEALER",
    *,
    minor: int = 1,
    limits: WireLimits = SMALL,
) -> ZmtpConnection:
    """An end that is past its handshake, with nothing owed."""
    connection = ZmtpConnection(socket_type, limits)
    (event,) = give(connection, hello(minor=minor) + ready(peer))
    assert isinstance(event, Opened)
    owed(connection)
    return connection


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The bytes in pieces, cut at these places."""
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]
