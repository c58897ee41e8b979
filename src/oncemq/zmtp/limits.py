"""What one connection may take of us, and the error for what is over it or is not ZMTP."""

import msgspec


class WireError(Exception):
    """The peer does not speak ZMTP as we do, or is over a limit: the connection is of no use."""


class WireLimits(msgspec.Struct, frozen=True):
    """The limits of one connection."""

    frame_bytes_max: int = 128 << 20
    message_bytes_max: int = 136 << 20  # of all frames of a message
    message_frames_max: int = 1_026
    handshake_bytes_max: int = 4_096  # of one command before the connection is open
    command_bytes_max: int = 2_048  # of one command after it: a subject, a ping's context
