"""Frames on their way between replicas: read out of one log as they are, checked by another.

A replica that is a little behind gets frames, from the record that it lacks on. One that is further
behind than the log segments reach, or than format 2 reaches, gets files (`pinned_files`).

Laws: what is sent is what was written, byte for byte; only what a frame says about its own
replica's syncs (`framing`) is replaced where it arrives. A frame is taken in only where it follows:
its checksums hold, its chain value and serial go on from the newest record, its epoch does not go
back, and a higher epoch begins with the record that says so. Of frames that came together, all are
taken in or none.
"""

from collections.abc import Iterator
from typing import NamedTuple

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.records import EpochBegan, Record
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.segments.framing import Frame, parse, scan
from oncemq.storage.segments.segment import LOG, Segment


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
    """A frame that follows, and its record."""

    frame: Frame
    record: Record


def checked(raw: bytes, key: int, newest: ChainLink) -> list[CheckedFrame]:
    """The frames of another replica, all of which follow; FramesRefused when one does not."""
    view, at = memoryview(raw), 0
    found: list[CheckedFrame] = []
    while at < len(raw):
        frame = parse(view, at, 0, key)
        if not isinstance(frame, Frame) or frame.body is None or frame.is_old:
            raise FramesRefused(f"byte {at} of what was sent begins no whole frame of format 2")
        found.append(CheckedFrame(frame, _followed(frame, newest)))
        newest = _link(frame)
        at = frame.end
    return found


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
    """Reads frames out of the segments of an open log. Owned by the loop thread."""

    def __init__(self, catalog: Catalog, key: int) -> None:
        self._catalog = catalog
        self._key = key

    def read(self, serial: int, bytes_max: int) -> FrameRun | None:
        """Finished frames of one segment from `serial` on; one at least, where there is any.

        None: only files can bring them. Without frames, `previous` is the newest finished record.
        The segment is walked through from the nearest place that is known: one of 64 MiB with very
        many small records may take a second, once.
        """
        segment = self._segment_of(serial)
        if segment is None:
            return None
        start, previous = self._walk(segment, serial)
        end, last = start, previous
        for frame in self._frames(segment, start):
            if frame.is_old:
                return None
            if end > start and frame.end - start > bytes_max:
                break
            end, last = frame.end, _link(frame)
        return FrameRun(previous, self._catalog.file_of(segment).read(start, end - start), last)

    def _segment_of(self, serial: int) -> Segment | None:
        """The log segment that holds a record, or that will hold the next one."""
        for segment in reversed(self._catalog.segments):
            if segment.header.form == LOG and segment.first_serial <= serial:
                return segment
        return None

    def _walk(self, segment: Segment, serial: int) -> tuple[int, ChainLink]:
        """Where a record's frame begins, or would, and the record before it."""
        header = segment.header
        previous = ChainLink(header.first_serial - 1, header.leader_epoch, header.chain)
        position = segment.places.before(serial, segment.visible) or header.size
        for frame in self._frames(segment, position):
            if frame.serial >= serial:
                break
            segment.places.note(frame.serial, frame.position)
            position, previous = frame.end, _link(frame)
        return position, previous

    def _frames(self, segment: Segment, position: int) -> Iterator[Frame]:
        """The finished frames from a position on; their bodies are not looked at."""
        file = self._catalog.file_of(segment)
        for frame in scan(file, position, segment.visible, self._key, bodies=False):
            if not isinstance(frame, Frame):
                raise Corrupt(
                    f"{segment.path} is damaged at byte {frame.position}: {frame.why}; stop the "
                    "server and run `once repair`"
                )
            yield frame


def _link(frame: Frame) -> ChainLink:
    return ChainLink(frame.serial, frame.leader_epoch, frame.chain)
