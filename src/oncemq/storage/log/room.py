"""Room on the disk, taken before it is needed. Owned by the loop thread.

The segment in use is longer than what is in it: its unused end is the room that is taken. Puts
leave a reserve of it to small facts (a cursor, a start of a client, the end of a subscription),
without which nobody could catch up and nothing would ever be freed. The reserve is in the file,
not in a number: it outlives the process, and nobody else on the disk can have it.

Laws: what `has_room` promised fits without asking the disk again. Room is taken in large steps,
and in steps as small as what is needed when there is no more. A put never takes the last of the
disk: the next checkpoint and index get room, too; if others took that, `lend` gives them some of
ours.
"""

from collections.abc import Callable

from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.disk import Disk
from oncemq.storage.log.checkpoint import KEPT
from oncemq.storage.log.options import LogOptions
from oncemq.storage.segments.segment import HEADER_BYTES, Segment
from oncemq.storage.shortage import DISK_FULL, NO_DESCRIPTORS

ALLOWANCE_BYTES = 1024  # header and meta of a frame, for those who only know their body
RETRY_MS = 1000
NEVER_MS = -(1 << 60)


class Room:
    """The room that a log has, and how it gets more."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        catalog: Catalog,
        *,
        roll: Callable[[int], None],  # to a new segment of so many bytes
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        self._catalog = catalog
        self.checkpoints_are([], unsaved_bytes=0)
        self._roll = roll
        self._refused_ms = NEVER_MS
        self._lent = False

    @property
    def bytes_used(self) -> int:
        """Bytes on disk, reserved room included."""
        return self._catalog.disk_bytes + self._checkpoint_bytes

    def checkpoints_are(self, sizes: list[int], *, unsaved_bytes: int) -> None:
        """The sizes of those kept, oldest first; by how much the next one may be larger.

        Nothing is freed before there are two of them: until then room is kept for both.
        """
        self._checkpoint_bytes = sum(sizes)
        self.unsaved_bytes = unsaved_bytes
        self._to_come = max(1, KEPT - len(sizes)) if self._options.checkpoints else 0
        newest = sizes[-1] if sizes else 0
        self._kept_bytes = self._options.reserve_bytes + self._to_come * newest

    @property
    def reserve(self) -> int:
        """What puts leave: for small facts, and for checkpoints if they find no other room."""
        return self._kept_bytes + self._to_come * self.unsaved_bytes

    def has_room(self, size: int, *, now_ms: int, fact: bool = False) -> bool:
        """Whether a record with `size` bytes of body can be taken; takes the room for it.

        Facts may use the reserve. After a failure the disk is asked again once a second.
        Ask before each append: the answer holds for one.
        """
        size += ALLOWANCE_BYTES
        kept = 0 if fact else self._kept_bytes + self._to_come * self.unsaved_bytes  # `reserve`
        current = self._catalog.segments[-1]
        end = current.end + size
        fits = end + kept <= current.size
        options = self._options
        if fits and end <= options.segment_bytes and current.stages <= options.segment_stages:
            return True
        if not self._lent and now_ms - self._refused_ms >= RETRY_MS:
            if self._take(size):
                return True
            self._refused_ms = now_ms
        if fits:  # beyond the segment's usual end, where the reserve lies
            return True
        return fact and not self._lent and self._take(size, last=True)

    def secure(self) -> None:
        """Take the reserve before anything is written, as far as there is room for it.

        A log that was just made, or cut by a repair, has none in its file.
        """
        current = self._catalog.segments[-1]
        wanted = current.end + self.reserve
        if wanted - current.size <= self._disk.free_bytes(self._directory):
            self._allocate(max(wanted, current.size), rolls=False)

    def was_refused(self, now_ms: int) -> bool:
        """Whether something was refused for want of room a moment ago."""
        return 0 <= now_ms - self._refused_ms < 5 * RETRY_MS

    def lend(self) -> bool:
        """Give the disk back what is beyond half of the reserve, for a job that found no room.

        False: that was done before, and did not help. Nothing is taken until `ask_again`.
        """
        if self._lent:
            self._lent = False
            return False
        current = self._catalog.segments[-1]
        self._cut(current, min(current.size, current.end + self._options.reserve_bytes // 2))
        self._lent = True
        return True

    def ask_again(self) -> None:
        """Room may be there again: ask the disk at once."""
        self._refused_ms = NEVER_MS
        self._lent = False

    def _take(self, size: int, *, last: bool = False) -> bool:
        """Take room for `size` and the reserve, in a new segment if this one is full.

        `last`: the last of the disk, without a reserve if need be, and without a new segment.
        """
        options, current = self._options, self._catalog.segments[-1]
        empty = current.last_serial < current.first_serial
        rolls = not (last or empty) and self._is_full(current, size)
        start, have = (HEADER_BYTES, 0) if rolls else (current.end, current.size)
        # By sealing the old one.
        given_back = current.size - max(current.end, current.claimed) if rolls else 0
        needed = start + size + (0 if last else self.reserve)
        full = options.segment_bytes + self.reserve
        wanted = max(start + size + self.reserve, min(have + options.allocate_bytes, full))
        free = self._disk.free_bytes(self._directory)
        most = have + given_back + free - (0 if last else self.reserve)
        if options.disk_bytes_max is not None:
            limit = options.disk_bytes_max + (options.reserve_bytes if last else 0)
            most = min(most, limit - self.bytes_used + have + given_back)
        wanted = min(wanted, most)
        if wanted < needed:
            return False
        if rolls and wanted > free:
            self._cut(current, current.end)
        if self._allocate(wanted, rolls=rolls):
            return True
        return needed < wanted and self._allocate(needed, rolls=rolls)

    def _is_full(self, segment: Segment, more: int) -> bool:
        """Whether a segment has no place for so many bytes, or for another stage."""
        options = self._options
        return segment.end + more > options.segment_bytes or segment.stages > options.segment_stages

    def _allocate(self, size: int, *, rolls: bool) -> bool:
        try:
            if rolls:
                self._roll(size)
            else:
                current = self._catalog.segments[-1]
                assert current.file is not None
                current.file.allocate(size)
                current.size = max(current.size, size)
        except OSError as error:
            if error.errno in (*DISK_FULL, *NO_DESCRIPTORS):
                return False
            raise
        return True

    @staticmethod
    def _cut(segment: Segment, size: int) -> None:
        """Give back what lies beyond; the writer may write before it meanwhile."""
        size = max(size, segment.claimed)
        if size < segment.size:
            assert segment.file is not None
            segment.file.truncate(size)
            segment.size = size
            segment.ahead = min(segment.ahead, size)
