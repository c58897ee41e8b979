"""Zeros that are written behind a small group, so that the sync of those after it is quick.

The first write to a block of room that was only taken changes the file's tables, and its sync
waits for the file system's journal: with small groups, one in twenty took 60 µs more.

Law: what is written is what is there, zeros, and only where room is taken already.
"""

from oncemq.storage.log.writer import GroupPart

AHEAD_BYTES = 64 << 10
BLOCK_BYTES = 4096
SMALL_BYTES = AHEAD_BYTES // 4  # a group up to here is small

_ZEROS = memoryview(bytes(AHEAD_BYTES + BLOCK_BYTES))


def write_ahead(part: GroupPart) -> None:
    """Let them be written with the last part of a small group."""
    segment = part.segment
    ahead = min((part.end + AHEAD_BYTES) & -BLOCK_BYTES, segment.size)
    if ahead > part.end:
        part.buffers.append(_ZEROS[: ahead - part.end])
        segment.ahead = segment.claimed = ahead
