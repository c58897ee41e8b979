"""The files of one moment on their way from a leader to one member.

How it works. The files are read once for their checksums, a stretch at a time, and offered; from
then on the member asks for parts. What it asks for is read in order on a thread and waits here, a
few parts at most, until the loop sends it.

Law: the files are held until the transfer is closed and no read is under way.
"""

import zlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from oncemq.errors import Corrupt
from oncemq.protocol.names import Micros, ServerId
from oncemq.protocol.replicas.messages import REFILL_PART_BYTES, Place, RefillFile
from oncemq.server.worker import Task
from oncemq.storage.log.pinned_files import PinnedFile, PinnedFiles

Give = Callable[[Task, Task], None]  # to a thread, and what the loop does once it is done

STRETCH_BYTES = 4 << 20  # of a file, between two looks at what else there is to read
PARTS_MAX = 32  # asked for and not sent; what is asked for beyond that is asked for again


class FilePart(NamedTuple):
    """Some bytes of a file, for the member that asked for them."""

    name: str
    position: int
    data: bytes


class SentFiles:
    """From the moment that the files are pinned until they are released. Used by the loop."""

    def __init__(
        self,
        member: ServerId,
        tail: Place,
        end: Place,
        pinned: PinnedFiles,
        give: Give,
        *,
        doubts: bool,
        checksums: dict[tuple[str, int], int],
    ) -> None:
        self.member, self.tail, self.end = member, tail, end
        self.incarnation: bytes | None = None  # of the directory that is filled, once it asks
        self.heard_at: Micros | None = None  # when it was offered, or asked for something
        self.said_at = Micros(0)  # when it was offered last
        self.ready: deque[FilePart] = deque()
        self.damage = ""  # that was met while the files were read
        self.is_closed = False
        self._pinned, self._give, self._doubts = pinned, give, doubts
        self._checksums = checksums  # by name and size, of this leader: what has a name stays
        self._unread = deque(each for each in pinned.files if self._has_to_be_read(each))
        self._unsent = {each.name for each in pinned.files if each.size}
        self._reads = 0  # on the thread
        self._is_summing = False
        self._summed = 0, 0  # of the first file that has no checksum: so many bytes, and theirs
        self._go_on()

    @property
    def files(self) -> tuple[RefillFile, ...] | None:
        """What is offered; None while it is being read for its checksums."""
        if self._unread:
            return None
        return tuple(
            RefillFile(each.name, each.size, self._checksums[each.name, each.size])
            for each in self._pinned.files
        )

    @property
    def size(self) -> int:
        """Of all files."""
        return self._pinned.size

    @property
    def was_sent_whole(self) -> bool:
        """Whether the last part of every file has left."""
        return not self._unsent

    def has(self, name: str, position: int) -> bool:
        """Whether there is anything of this file there."""
        pinned = self._pinned.find(name)
        return pinned is not None and 0 <= position < pinned.size

    def want(self, name: str, position: int) -> None:
        """The member asks for a part; passed over, if too much waits already."""
        if self._reads + len(self.ready) >= PARTS_MAX:
            return
        found: list[FilePart] = []

        def read() -> None:
            data = self._pinned.read(name, position, REFILL_PART_BYTES)
            if not data:
                raise Corrupt(f"{name} ends before byte {position}")
            found.append(FilePart(name, position, data))

        self._on_thread(read, lambda: self.ready.extend(found))

    def sent(self, part: FilePart) -> None:
        """This one left."""
        pinned = self._pinned.find(part.name)
        if pinned is not None and part.position + len(part.data) == pinned.size:
            self._unsent.discard(part.name)

    def close(self) -> None:
        """It is over, in whatever way."""
        self.is_closed = True
        self.ready.clear()
        self._release()

    # ------------------------------------------------------------------ checksums

    def _has_to_be_read(self, pinned: PinnedFile) -> bool:
        return self._doubts or (pinned.name, pinned.size) not in self._checksums

    def _go_on(self) -> None:
        """Read on in the first file that has no checksum: one stretch at a time is under way."""
        while self._unread and not self._is_summing and not self.damage and not self.is_closed:
            self._is_summing = True
            self._sum(self._unread[0])

    def _sum(self, pinned: PinnedFile) -> None:
        name, start = pinned.name, self._summed[0]
        end = min(pinned.size, start + STRETCH_BYTES)

        def read() -> None:
            data = self._pinned.read(name, start, end - start)
            if len(data) < end - start:
                raise Corrupt(f"{name} ends before byte {end}")
            self._summed = end, zlib.crc32(data, self._summed[1])
            if end == pinned.size and self._doubts:
                self._pinned.check(name)

        def then() -> None:
            self._is_summing = False
            if end == pinned.size:
                self._checksums[name, end] = self._summed[1]
                self._summed = 0, 0
                self._unread.popleft()
            self._go_on()

        self._on_thread(read, then)

    def _on_thread(self, read: Task, then: Task) -> None:
        """Read; what the disk does not give is damage, and ends the transfer."""

        def guarded() -> None:
            try:
                read()
            except (Corrupt, OSError) as trouble:
                self.damage = str(trouble)

        def done() -> None:
            self._reads -= 1
            if self.is_closed:
                self._release()
            elif not self.damage:
                then()

        self._reads += 1
        self._give(guarded, done)

    def _release(self) -> None:
        if not self._reads:
            self._pinned.release()
