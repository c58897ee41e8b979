"""A replica that is filled with files of its leader, from the closing of its old log on.

How it works. The files come one after the other, each from its beginning: parts are asked for ahead
(`WINDOW_BYTES`), and only the next bytes are taken, so nothing is kept in memory. What does not
come is asked for again. A file that is whole is compared with its checksum and synced; after the
last one the directory is a log of the shard, whose next opening verifies every frame.

Laws: the directory has another incarnation from the first request on, and says so in each one: what
the old log acknowledged counts for nothing by then. Whatever ends the filling early leaves a
directory that says that it is half filled; nothing is tried twice here, the leader offers anew.
"""

import zlib
from typing import NamedTuple

from oncemq.cluster.replica_directory import Home
from oncemq.errors import StorageRefused
from oncemq.protocol.names import Micros
from oncemq.protocol.replicas.messages import (
    REFILL_PART_BYTES,
    AnswerNumber,
    LeaderMessage,
    Life,
    RefillBegin,
    RefillPart,
    RefillWanted,
)
from oncemq.protocol.step import Body
from oncemq.server.served import Outgoing
from oncemq.storage.log.refill import Refill, files_to_fill
from oncemq.storage.segments.layout import INCARNATION_BYTES, Format
from oncemq.storage.shortage import DISK_FULL
from oncemq.wire.replica_codec import encode_replica

SECOND = 1_000_000
WINDOW_BYTES = 16 * REFILL_PART_BYTES  # asked for and not written
ASK_AGAIN = Micros(SECOND)
SILENCE = Micros(10 * SECOND)  # of the leader, before the filling is given up


class _Cursor(NamedTuple):
    """A place in the files, as they follow each other."""

    file: int = 0
    position: int = 0
    total: int = 0  # bytes before it, of all files


class Filling:
    """From the moment that the old log is closed until the new one may be opened."""

    def __init__(
        self, begin: RefillBegin, route: bytes, home: Home, form: Format, now: Micros
    ) -> None:
        self.outgoing: list[Outgoing] = []
        self.is_over = False
        self.trouble = ""  # why it came to nothing
        self._begin, self._route, self._form = begin, route, form
        self._incarnation = home.random_bytes(INCARNATION_BYTES)
        self._number = 0
        self._written = self._asked = _Cursor()
        self._checksum = 0  # of what is written of the file in turn
        self._came_at = self._asked_at = now
        self._refill: Refill | None = None
        try:
            self._refill = Refill(home.disk, home.directory, files_to_fill(begin.files))
            self._ask()
        except (StorageRefused, OSError) as trouble:
            self._fail(trouble)

    @property
    def filled_bytes(self) -> int:
        """How much is there."""
        return self._written.total

    @property
    def bytes_in_all(self) -> int:
        """How much there is to be."""
        return sum(each.size for each in self._begin.files)

    def receive(self, route: bytes, message: LeaderMessage, body: Body, now: Micros) -> None:
        """The leader sends bytes, or says that it has them no more."""
        mine = self._begin.leader_epoch
        if self.is_over or message.leader_epoch < mine:
            return
        if message.leader_epoch > mine:
            self._end(f"epoch {message.leader_epoch} began, and the files were of epoch {mine}")
            return
        self._route = route
        if not isinstance(message, RefillPart):
            return
        try:
            if self._take(message, body):
                self._came_at = self._asked_at = now
                self._ask()
        except (StorageRefused, OSError) as trouble:
            self._fail(trouble)

    def tick(self, now: Micros) -> None:
        """Time passed."""
        if self.is_over:
            return
        if now - self._came_at >= SILENCE:
            seconds = (now - self._came_at) // SECOND
            self._end(f"nothing came from the leader for {seconds} s")
        elif now - self._asked_at >= ASK_AGAIN:
            self._asked_at, self._asked = now, self._written
            self._ask()

    def close(self) -> None:
        """The server ends; what is half filled may be filled again."""
        if self._refill is not None and not self.is_over:
            self._refill.give_up()

    # ------------------------------------------------------------------ the bytes

    def _take(self, part: RefillPart, body: Body) -> bool:
        """Write what follows on what there is; False: it is something else."""
        refill, (number, position, total) = self._refill, self._written
        assert refill is not None
        file = self._begin.files[number]
        if part.name != file.name:
            return False
        if not body:
            raise StorageRefused(f"the leader has {file.name} no more", code="frames_refused")
        if not part.position <= position < part.position + len(body):
            return False
        data = memoryview(body)[position - part.position :]
        end = position + len(data)
        if end > file.size:
            raise StorageRefused(
                f"{file.name} was sent up to byte {end}, and has {file.size}", code="frames_refused"
            )
        refill.write(file.name, position, bytes(data))
        self._checksum = zlib.crc32(data, self._checksum)
        self._written = _Cursor(number, end, total + len(data))
        if end == file.size:
            if self._checksum != file.checksum:
                raise StorageRefused(
                    f"{file.name} has the checksum {self._checksum:08x} here and "
                    f"{file.checksum:08x} at the leader",
                    code="frames_refused",
                )
            refill.seal(file.name)
            self._checksum = 0
            self._written = _Cursor(number + 1, 0, self._written.total)
            self._look_whether_whole(refill)
        if self._asked.total < self._written.total:
            self._asked = self._written
        return True

    def _look_whether_whole(self, refill: Refill) -> None:
        if self._written.file == len(self._begin.files):
            refill.finish(self._form, lambda _: self._incarnation)
            self.is_over = True

    def _ask(self) -> None:
        """For what follows on what was asked for, as much as may be under way."""
        files = self._begin.files
        while not self.is_over and self._asked.total - self._written.total < WINDOW_BYTES:
            number, position, total = self._asked
            if number == len(files):
                return
            self._number += 1
            answered = AnswerNumber(Life(self._incarnation, 0), self._number)
            wanted = RefillWanted(
                self._begin.shard, self._begin.leader_epoch, files[number].name, position, answered
            )
            self.outgoing.append((self._route, encode_replica(wanted)))
            size = min(REFILL_PART_BYTES, files[number].size - position)
            is_last = position + size == files[number].size
            after = (number + 1, 0) if is_last else (number, position + size)
            self._asked = _Cursor(*after, total + size)

    # ------------------------------------------------------------------ the end

    def _fail(self, trouble: StorageRefused | OSError) -> None:
        """No room, or something that is no file of a log. A disk that fails ends the server."""
        if isinstance(trouble, StorageRefused):
            self._end(trouble.detail)
            return
        if trouble.errno not in DISK_FULL:
            self.close()
            raise trouble
        lacking = self.bytes_in_all - self.filled_bytes
        self._end(f"the disk is full, and {lacking} bytes are to come: make room on it")

    def _end(self, why: str) -> None:
        self.close()
        self.trouble, self.is_over = why, True
