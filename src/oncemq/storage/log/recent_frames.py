"""The newest frames of a log, in memory: what a leader sends before its own disk has it.

A follower that keeps up is only ever given these, so no file is read for it. The buffers are those
that the writer gets: a large body is kept as it came, and copied once, into what is sent.

Laws: the frames that are kept follow each other up to the newest record. A frame that is not
finished is never let go of, as no file has it yet; finished ones go, oldest first, once all
together take more than is given to them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from oncemq.storage.disk import Buffer
from oncemq.storage.log.frame_runs import RUN_FRAMES_MAX, ChainLink, FrameRun

FRAME_BYTES = 100  # that a frame takes here beside its own bytes, about


class RecentFrames:
    """Frames by their serials. Owned by the loop thread."""

    def __init__(self, before: ChainLink, bytes_max: int) -> None:
        self._before = before  # the record before the first that is kept
        self._bytes_max = bytes_max
        self._begin = 0  # where the first frame begins, in bytes counted from the very first on
        self._buffers: list[Buffer] = []
        self._let_go_buffers = 0
        # of each frame
        self._ends = array("Q")
        self._buffer_ends = array("Q")  # how many buffers there are up to its end, from the first
        self._chains = array("I")
        self._epochs = array("I")
        self._newest_run: FrameRun | None = None  # who follows gets the same as the one before

    @property
    def kept_from(self) -> int:
        """The serial of the first frame."""
        return self._before.serial + 1

    def add(
        self, leader_epoch: int, chain: int, size: int, gathered: Sequence[Buffer], is_two: bool
    ) -> None:
        """The next frame, of so many bytes: the last buffer that was gathered, or the last two."""
        ends = self._ends
        if is_two:
            self._buffers.append(gathered[-2])
        self._buffers.append(gathered[-1])
        self._buffer_ends.append(self._let_go_buffers + len(self._buffers))
        self._chains.append(chain)
        self._epochs.append(leader_epoch)
        ends.append((ends[-1] if ends else self._begin) + size)

    def place_of(self, serial: int) -> ChainLink:
        """The link of a record: the one before the first frame, or any one here."""
        at = serial - self.kept_from
        if at < 0:
            assert serial == self._before.serial, "it was let go of"
            return self._before
        return ChainLink(serial, self._epochs[at], self._chains[at])

    def after(self, serial: int, bytes_max: int) -> FrameRun:
        """The frames behind a record, one at least: there is one."""
        start = serial + 1 - self.kept_from
        ends = self._ends
        begin = ends[start - 1] if start else self._begin
        some = min(len(ends), start + RUN_FRAMES_MAX)
        stop = max(start + 1, bisect_right(ends, begin + bytes_max, start, some))
        last = serial + stop - start
        run = self._newest_run
        if run is None or (run.previous.serial, run.last.serial) != (serial, last):
            first = self._buffer_ends[start - 1] - self._let_go_buffers if start else 0
            pieces = self._buffers[first : self._buffer_ends[stop - 1] - self._let_go_buffers]
            run = FrameRun(self.place_of(serial), b"".join(pieces), self.place_of(last))
            self._newest_run = run
        return run

    def size_after(self, serial: int) -> int:
        """How many bytes of frames follow a record; it is here, or before the first."""
        start, ends = serial + 1 - self.kept_from, self._ends
        return (ends[-1] if ends else self._begin) - (ends[start - 1] if start else self._begin)

    def let_go(self, finished: int) -> None:
        """Let the oldest go, as far as they are finished, if all together take too much.

        More than needed, by an eighth: what stays is moved each time.
        """
        ends = self._ends
        if not ends or self._weight(0) <= self._bytes_max:
            return
        kept_max = self._bytes_max - self._bytes_max // 8
        low, high = 0, max(0, finished - self._before.serial)
        while low < high:  # how many have to go, at most all that are finished
            middle = (low + high) // 2
            if self._weight(middle) > kept_max:
                low = middle + 1
            else:
                high = middle
        if not low:
            return
        self._before = self.place_of(self._before.serial + low)
        self._begin = ends[low - 1]
        let_go = self._buffer_ends[low - 1] - self._let_go_buffers
        self._let_go_buffers += let_go
        self._newest_run = None
        del self._buffers[:let_go]
        for each in (self._ends, self._buffer_ends, self._chains, self._epochs):
            del each[:low]

    def _weight(self, start: int) -> int:
        """What the frames from this one on take."""
        ends = self._ends
        if start >= len(ends):
            return 0
        begin = ends[start - 1] if start else self._begin
        return ends[-1] - begin + (len(ends) - start) * FRAME_BYTES
