"""What peers may take of a server, alone and together: each limit with its name and its reason.

A limit is met before the memory is taken, or at the next look, every half second. Who is over one
is passed over, paused or dropped: what happens is said at each.
"""

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True):
    """The limits of all connections of one server."""

    # Newcomers beyond it are closed at once, so that they try another address now and not later.
    connections_max: int = 1 << 30
    # The longest of these makes room for a newcomer: who is honest is through in a millisecond.
    handshakes_max: int = 4_096
    handshake_ms: int = 2_000
    # Of messages that did not come whole, of all peers. Over it the oldest of them is dropped.
    unfinished_bytes_max: int = 512 << 20
    # After so long a message has to have come at so many bytes a second on average, or is dropped.
    unfinished_ms: int = 30_000
    progress_bytes_min: int = 1_024
    # Who owes us the reading of so much is not heard until it has read half of it.
    owed_pause_bytes: int = 4 << 20
    # A reply that was decided on is owed once; who is owed more than this is dropped.
    owed_bytes_max: int = 256 << 20
    # Of all peers. Over it the one that was owed something for the longest is dropped.
    owed_total_max: int = 1 << 30
    # Who takes nothing of what it is owed for so long is dropped.
    owed_ms: int = 30_000
    # Kept for a listener of the feed; of what is more it misses whole messages, and pulls them.
    feed_owed_max: int = 4 << 20
    # Subjects of one listener, of all, and their length. What is more is passed over: it is pulled.
    subjects_max: int = 16_384
    subjects_total_max: int = 500_000
    subject_bytes_max: int = 255
