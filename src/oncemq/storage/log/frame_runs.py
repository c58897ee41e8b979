"""Frames on their way between replicas: read out of one log as they are, checked by another.

A replica that is a little behind gets frames, from the record that it lacks on. One that is further
behind than the log segments reach, or than format 2 reaches, gets files (`pinned_files`).

Laws: what is sent is what was written, byte for byte; only what a frame says about its own
replica's syncs (`framing`) is replaced where it arrives. A frame is taken in only where it follows:
its checksums hold, its chain value and serial go on from the newest record, its epoch does not go
back, and a higher epoch begins with the record that says so. Of frames that came together, all are
taken in or none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.names import Serial
from oncemq.protocol.records import EpochBegan, Record
from oncemq.protocol.replicas.leader_epochs import EpochStart
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.disk import Buffer
from oncemq.storage.segments.framing import Bad, Frame, parse, scan
from oncemq.storage.segments.segment import LOG, Segment

RUN_FRAMES_MAX = 4_000  # about 20 ms for who checks them
WALKED_FRAMES = 10_000  # about 15 ms
WALKED_BYTES = 128 << 10  # read at once on the way: the places that are known are 64 KB apart


class ChainLink(NamedTuple):
    """A record's place in the history of a shard: equal on two replicas, all before it is equal."""

    serial: int
    leader_epoch: int
    chain: int


class FrameRun(NamedTuple):
    """Frames in order, as bytes; `previous` and `last` are the records before and at their end."""

    previous: ChainLink
    frames: bytes
    last: ChainLink


class FramesRefused(StorageRefused):
    """Frames of another replica that do not follow what this one has; nothing was taken in."""

    code = "frames_refused"


class CheckedFrame(NamedTuple):
    """A frame whose checksums hold and that follows the one before it, and its record."""

    frame: Frame
    record: Record


class ReceivedFrames(NamedTuple):
    """Frames of another replica that follow each other, and the record before them."""

    raw: Buffer  # that they lie in
    frames: list[CheckedFrame]
    previous: ChainLink
    last: ChainLink
    starts: tuple[EpochStart, ...]  # the epochs that begin in them

    def before(self, skip: int) -> ChainLink:
        """The record that all but the first so many follow."""
        return _link(self.frames[skip - 1].frame) if skip else self.previous


def check(raw: Buffer, key: int, previous: ChainLink) -> ReceivedFrames:
    """The frames of another replica, if all follow; FramesRefused when one does not."""
    view, at, end = memoryview(raw), 0, len(raw)
    found: list[CheckedFrame] = []
    starts: list[EpochStart] = []
    last = previous
    while at < end:
        frame = parse(view, at, 0, key)
        if not isinstance(frame, Frame) or frame.body is None or frame.is_old:
            raise FramesRefused(f"byte {at} of what was sent begins no whole frame of format 2")
        record = _followed(frame, last)
        found.append(CheckedFrame(frame, record))
        if isinstance(record, EpochBegan):
            starts.append(EpochStart(record.leader_epoch, Serial(frame.serial)))
        last = ChainLink(frame.serial, frame.leader_epoch, frame.chain)
        at = frame.position + frame.size
    return ReceivedFrames(raw, found, previous, last, tuple(starts))


def _followed(frame: Frame, newest: ChainLink) -> Record:
    """The record of a frame that follows the newest one."""
    what = f"serial {frame.serial} was sent"
    if frame.serial != newest.serial + 1:
        raise FramesRefused(f"{what}; the next one here is {newest.serial + 1}")
    if frame.previous != newest.chain:
        raise FramesRefused(f"{what}, and follows another history than serial {newest.serial} here")
    if frame.leader_epoch < newest.leader_epoch:
        raise FramesRefused(
            f"{what} in epoch {frame.leader_epoch}; epoch {newest.leader_epoch} has begun here"
        )
    if not frame.body_holds() and frame.body_bytes:
        raise FramesRefused(f"{what}, and its body does not match its checksum")
    record = frame.record()  # of a kind that nobody knows here: refused as a newer version's
    begins = record.leader_epoch if isinstance(record, EpochBegan) else newest.leader_epoch
    if frame.leader_epoch != begins or (
        isinstance(record, EpochBegan) and begins == newest.leader_epoch
    ):
        raise FramesRefused(
            f"{what} in epoch {frame.leader_epoch}, which no record before it began"
        )
    return record


class FrameSource:
    """Reads frames out of the segments of an open log. Owned by the loop thread.

    A record is looked for from the nearest place that is known, and never through more than
    `WALKED_FRAMES` at once: the loop has others to serve. What was walked through is known then, so
    whoever asks again gets there.
    """

    def __init__(self, catalog: Catalog, key: int) -> None:
        self._catalog = catalog
        self._key = key
        self._kept_from = (-1, 0)  # after so many replacements of segments by compaction

    def read(self, serial: int, bytes_max: int) -> FrameRun | None:
        """Finished frames of one segment from `serial` on; one at least, where there is any.

        None: only files can bring them. Without frames, `previous` is the newest finished record,
        or one on the way to where the frames are: ask again.
        """
        segment = self._segment_of(serial)
        if segment is None:
            return None
        start, previous = self._walk(segment, serial)
        if previous.serial + 1 != serial or start == segment.visible:
            return FrameRun(previous, b"", previous)
        raw = self._whole_frame(segment, start, bytes_max)
        at, last = 0, previous
        for _ in range(RUN_FRAMES_MAX):
            frame = self._frame_in(segment, raw, start, at) if at < len(raw) else 0
            if isinstance(frame, int):
                break
            if frame.is_old:
                return None
            at, last = at + frame.size, _link(frame)
        return FrameRun(previous, raw if at == len(raw) else raw[:at], last)

    def _whole_frame(self, segment: Segment, start: int, bytes_max: int) -> bytes:
        """So many bytes of a segment, and one whole frame at least: read once, mostly."""
        file, room, size = self._catalog.file_of(segment), segment.visible - start, bytes_max
        while True:
            raw = file.read(start, min(size, room))
            found = self._frame_in(segment, raw, start, 0)
            if not isinstance(found, int):
                return raw
            if found > room or len(raw) < min(size, room):
                raise _damaged(segment, start, "a frame goes beyond the end")
            size = found

    def _frame_in(self, segment: Segment, raw: bytes, start: int, at: int) -> Frame | int:
        """The frame there; or how many bytes are needed, when it is not whole in these."""
        found = parse(memoryview(raw), at, start, self._key)
        if found is None or isinstance(found, Bad):
            why = "no frame begins there" if found is None else found.why
            raise _damaged(segment, start + at, why)
        return found.size if isinstance(found, Frame) and found.body is None else found

    def place_of(self, serial: int) -> ChainLink | None:
        """A finished record's link. None: it was compacted away, or is far from what is known."""
        after = self._segment_of(serial + 1)
        if after is not None and after.first_serial == serial + 1:
            return _before(after)  # its header has it
        segment = after or self._segment_of(serial)
        found = None if segment is None else self._walk(segment, serial + 1)[1]
        return found if found is not None and found.serial == serial else None

    @property
    def kept_from(self) -> int:
        """From which serial on all frames can be read."""
        if self._kept_from[0] != self._catalog.replacements:
            self._kept_from = self._catalog.replacements, self._find_kept()
        return self._kept_from[1]

    def _find_kept(self) -> int:
        segments = self._catalog.segments
        first = len(segments) - 1  # the one in use
        while first and _follows(segments[first - 1], segments[first]):
            first -= 1
        kept = segments[first:]
        old = bisect_left(kept, True, key=lambda segment: not self._begins_old(segment))
        if not old:
            return kept[0].first_serial
        mixed = kept[old - 1]  # in use while its directory was migrated, or the last of format 1
        for frame in self._frames(mixed, mixed.header.size):
            if not frame.is_old:
                return frame.serial
        return mixed.last_serial + 1

    def _begins_old(self, segment: Segment) -> bool:
        first = next(self._frames(segment, segment.header.size), None)
        return first is not None and first.is_old

    def _segment_of(self, serial: int) -> Segment | None:
        """The log segment that holds a record, or that will hold the next one."""
        segments = self._catalog.segments
        at = bisect_right(segments, serial, key=lambda segment: segment.first_serial) - 1
        found = segments[at] if at >= 0 else None
        if found is None or found.header.form != LOG:
            return None
        return found if found is segments[-1] or serial <= found.last_serial else None

    def _walk(self, segment: Segment, serial: int) -> tuple[int, ChainLink]:
        """Where a record's frame begins, or would, and the record before it; or on the way there.

        What is noted is known for good; where a walk ended early, the next one goes on.
        """
        places, previous = segment.places, _before(segment)
        position = places.before(serial, segment.visible) or segment.header.size
        due = places.due
        for walked, frame in enumerate(self._frames(segment, position)):
            if frame.serial >= serial or (walked >= WALKED_FRAMES and places.due > due):
                break
            places.note(frame.serial, frame.position)
            position, previous = frame.end, _link(frame)
        return position, previous

    def _frames(self, segment: Segment, position: int) -> Iterator[Frame]:
        """The finished frames from a position on; their bodies are not looked at."""
        file = self._catalog.file_of(segment)
        end = segment.visible
        for frame in scan(file, position, end, self._key, bodies=False, step=WALKED_BYTES):
            if not isinstance(frame, Frame):
                raise _damaged(segment, frame.position, frame.why)
            yield frame


def _damaged(segment: Segment, position: int, why: str) -> Corrupt:
    where = f"{segment.path} is damaged at byte {position}"
    return Corrupt(f"{where}: {why}; stop the server and run `once repair`")


def _follows(before: Segment, segment: Segment) -> bool:
    """Whether all records up to this segment's first one are frames of the one before it."""
    return before.header.form == LOG and before.last_serial + 1 == segment.first_serial


def _before(segment: Segment) -> ChainLink:
    """The record before a log segment."""
    header = segment.header
    return ChainLink(header.first_serial - 1, header.leader_epoch, header.chain)


def _link(frame: Frame) -> ChainLink:
    return ChainLink(frame.serial, frame.leader_epoch, frame.chain)
