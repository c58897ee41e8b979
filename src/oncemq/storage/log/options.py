"""Sizes and limits of a log."""

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Sizes and limits of a log."""

    segment_bytes: int = 64 * MEBIBYTE
    segment_share: int = 0  # at most this part (8: an eighth) of the room there is at the opening
    allocate_bytes: int = 16 * MEBIBYTE
    reserve_bytes: int = 1 * MEBIBYTE  # kept for small facts when the disk is full
    disk_bytes_max: int | None = None
    sync_ms: int = 0  # 0: a group is finished when it is synced; else when written
    checkpoints: bool = True  # False: none is ever taken, and no room is kept for one
    checkpoint_bytes: int = 32 * MEBIBYTE
    checkpoint_records: int = 50_000
    checkpoint_idle_ms: int = 10_000  # how long settled segments may wait for a checkpoint
    segment_stages: int = 10_000  # of one segment; planning looks at all of them in one go
    stages_kept: int = 1_000  # closed ones of one segment; with more, it is rewritten without them
