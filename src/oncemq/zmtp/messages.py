"""Messages as bytes to send: frames with their heads, small ones joined, large ones as they are."""

import struct
from collections.abc import Sequence

from oncemq.zmtp import commands

Frame = bytes | bytearray | memoryview

JOINED_BYTES_MAX = 4_096  # to copy so much costs less than one more buffer for the system to send
MESSAGES_JOINED_MAX = 64 << 10

_LONG = struct.Struct(">BQ")
_MORE = 1
_MORE_HEADS = [bytes((1, size)) for size in range(256)]
_LAST_HEADS = [bytes((0, size)) for size in range(256)]


def encode(frames: Sequence[Frame]) -> list[Frame]:
    """The buffers to send for a message, in order; no large frame is copied."""
    if len(frames) == 1 and len(frames[0]) < 256:  # most replies
        return [_LAST_HEADS[len(frames[0])] + frames[0]]
    buffers: list[Frame] = []
    small: list[Frame] = []
    last = len(frames) - 1
    for place, frame in enumerate(frames):
        size = len(frame)
        if size < 256:
            small.append((_LAST_HEADS if place == last else _MORE_HEADS)[size])
            small.append(frame)
            continue
        small.append(_LONG.pack(2 | (_MORE if place < last else 0), size))
        if size <= JOINED_BYTES_MAX:
            small.append(frame)
        else:
            buffers.append(b"".join(small))
            buffers.append(frame)
            small.clear()
    if small:
        buffers.append(b"".join(small))
    return buffers


def joined(buffers: Sequence[Frame]) -> Sequence[Frame]:
    """The buffers of several messages; as one, where they are small: it is sent sooner."""
    if len(buffers) > 1 and sum(map(len, buffers)) <= MESSAGES_JOINED_MAX:
        return [b"".join(buffers)]
    return buffers


def rest_of(buffers: Sequence[Frame], sent: int) -> Sequence[Frame]:
    """What is left of them once so many bytes are gone."""
    for place, buffer in enumerate(buffers):
        if sent < len(buffer):
            rest = memoryview(buffer)[sent:] if sent else buffer
            return [rest, *buffers[place + 1 :]]
        sent -= len(buffer)
    return ()


def subscription(subject: bytes, *, joined: bool, minor: int) -> bytes:
    """That a subject is wanted, or no longer, as the version of the peer has it."""
    if minor >= 1:
        return commands.command(commands.SUBSCRIBE if joined else commands.CANCEL, subject)
    return b"".join(bytes(each) for each in encode([bytes((joined,)) + subject]))
