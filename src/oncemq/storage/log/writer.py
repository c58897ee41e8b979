"""Writes groups of records to the disk, and syncs them.

Everything in `GroupWriter` is owned by the writer thread, but for `synced`, which the loop reads
(one int, whole under the GIL).

Laws: a segment is synced before the first byte of the next; the next one's header and name
are durable before its first frame. An OSError is final: pages a failed sync left behind may
count as clean, so no later sync can be believed, and every further write is refused.
"""

import msgspec

from oncemq.errors import StorageRefused
from oncemq.storage.disk import Buffer, Disk, File
from oncemq.storage.segments.end import EndNote
from oncemq.storage.segments.index import BlockCache, FileIndex
from oncemq.storage.segments.segment import Segment, save_index

AHEAD_BYTES = 64 << 10  # of zeros behind a small group, for those after it
BLOCK_BYTES = 4096

_ZEROS = memoryview(bytes(AHEAD_BYTES + BLOCK_BYTES))


class GroupPart(msgspec.Struct):
    """The share of a group that goes to one segment, in one piece."""

    segment: Segment
    position: int
    end: int  # of the frames: zeros may follow in `buffers`
    buffers: list[Buffer] = []

    def write_ahead(self) -> None:
        """Let the zeros that follow a small group be written with it, as far as room is taken.

        The first write to a block of room that was only taken changes the file's tables, and its
        sync waits for the file system's journal: with small groups, one in twenty took 60 µs more.
        What is written is what is there: zeros.
        """
        segment = self.segment
        ahead = min((self.end + AHEAD_BYTES) & -BLOCK_BYTES, segment.size)
        if ahead > self.end:
            self.buffers.append(_ZEROS[: ahead - self.end])
            segment.ahead = segment.claimed = ahead


class Group(msgspec.Struct):
    """Records gathered to be written and synced together."""

    parts: list[GroupPart]
    size: int  # bytes to write
    last_serial: int
    sync: bool = False  # with sync_ms: this one is synced, and all written before it
    sealed: list[tuple[Segment, FileIndex | None]] = []


class GroupWriter:
    """Writes one group after the other."""

    def __init__(
        self, disk: Disk, directory: str, segment: Segment, cache: BlockCache, *, sync_ms: int
    ) -> None:
        self.synced = segment.last_serial
        self._disk = disk
        self._folder = f"{directory}/log"
        self._note = EndNote(disk, directory)
        self._cache = cache
        self._sync_ms = sync_ms
        self._segment = segment
        self._written = segment.last_serial
        self._failed = False

    def write(self, group: Group) -> None:
        """Write every part, rolling from segment to segment; then sync (sync_ms: when asked)."""
        if self._failed:
            raise StorageRefused("an earlier write to the log failed; restart to recover")
        self._failed = True  # until this is through: an OSError leaves it so
        for part in group.parts:
            if part.segment is not self._segment:
                group.sealed.append((self._segment, self._seal(self._segment)))
                self._begin(part.segment)
            file = part.segment.file
            assert file is not None
            file.write(part.buffers, part.position)
            part.buffers = []
        self._written = group.last_serial
        if self._sync_ms == 0 or group.sync:
            self._sync()
        self._failed = False

    def close(self) -> None:
        """Sync what sync_ms left waiting."""
        if self._failed:
            return
        if self._written > self.synced:
            self._failed = True
            self._sync()
            self._failed = False
        self._note.write(self._segment.first_serial, self.synced)

    def _sync(self) -> None:
        file = self._segment.file
        assert file is not None
        file.sync()
        self.synced = self._written

    def _begin(self, segment: Segment) -> None:
        """The header of a new segment, durable together with its name."""
        file = _open_file(segment)
        file.write([segment.header.encode()], 0)
        file.sync()
        self._disk.sync_directory(self._folder)
        self._note.write(segment.first_serial, self.synced)
        self._segment = segment

    def _seal(self, segment: Segment) -> FileIndex | None:
        """Make a full segment durable, give back its unused room, write its index."""
        file = _open_file(segment)
        file.sync()
        self._written = self.synced = segment.last_serial
        file.truncate(segment.end)
        file.sync()
        return save_index(self._disk, segment, self._cache)


def _open_file(segment: Segment) -> File:
    assert segment.file is not None
    return segment.file
