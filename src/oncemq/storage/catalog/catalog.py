"""All segments of a log, and which of them hold what of each topic. Owned by the loop thread.

Law: segments stand in the order of their serials, and a topic's offsets grow with serials,
so each topic's segments are in offset order too, without overlap; compaction replaces
neighbours only, which keeps it so. Where a topic has a part of a commit, reading follows it to
the stage, which lies before the commit.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from oncemq.errors import Corrupt
from oncemq.protocol.records import MessagesStored, PartKept, Run
from oncemq.storage.catalog.batch_places import (
    HEAD_BYTES,
    LARGE_BYTES,
    BatchPlace,
    damaged,
    place_of,
    read_frame,
    read_head,
    read_parts,
    stored_in,
)
from oncemq.storage.catalog.commit_parts import DecodedCommits, StoredBatch, published
from oncemq.storage.disk import Disk, File
from oncemq.storage.segments.entries import Extent
from oncemq.storage.segments.framing import Frame, parse
from oncemq.storage.segments.index import DamagedIndex, FileIndex, Index, entries_from
from oncemq.storage.segments.segment import COLD, Segment, index_path
from oncemq.storage.segments.segment_files import make_index

HANDLES_MAX = 128


class Slice(NamedTuple):
    """Messages `start` to `stop` of a stage, all in the batch at `place`: some of a part."""

    part: PartKept
    place: BatchPlace
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.place.size


class _Holders:
    """The segments that hold one topic, with the first offset each has of it."""

    __slots__ = ("firsts", "segments")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.segments: list[Segment] = []


class Catalog:
    """Finds and reads batches."""

    def __init__(self, disk: Disk, key: int) -> None:
        self.segments: list[Segment] = []
        self.replacements = 0  # of segments, by compaction
        self._disk = disk
        self._key = key
        self._holders: dict[int, _Holders] = {}
        self._handles: OrderedDict[str, File] = OrderedDict()
        self._commits = DecodedCommits()

    # what is there

    def add(self, segment: Segment) -> None:
        """Take in a segment that comes after all others."""
        self.segments.append(segment)
        self._hold(segment)

    def _hold(self, segment: Segment) -> None:
        for topic_id in segment.index.topics():
            extent = segment.index.extent(topic_id)
            assert extent is not None
            self.hold(topic_id, extent.first_offset, segment)

    def hold(self, topic_id: int, first_offset: int, segment: Segment) -> None:
        """A topic's first batch in this segment, which is the last one that has the topic."""
        holders = self._holders.get(topic_id)
        if holders is None:
            holders = self._holders[topic_id] = _Holders()
        holders.firsts.append(first_offset)
        holders.segments.append(segment)

    def replace(self, sources: Sequence[Segment], result: Segment | None) -> None:
        """Put `result` where its sources (neighbours) stood; without one, just drop them."""
        self.replacements += 1
        gone = set(map(id, sources))
        at = next(i for i, segment in enumerate(self.segments) if id(segment) in gone)
        self.segments = [segment for segment in self.segments if id(segment) not in gone]
        if result is not None:
            self.segments.insert(at, result)
        topics = {topic_id for segment in sources for topic_id in segment.index.topics()}
        for topic_id in topics:
            self._replace_holders(topic_id, gone, result)
        for segment in sources:
            self.forget_handle(segment.path)

    def _replace_holders(self, topic_id: int, gone: set[int], result: Segment | None) -> None:
        extent = result.index.extent(topic_id) if result is not None else None
        before = self._holders.pop(topic_id)
        for first_offset, segment in zip(before.firsts, before.segments, strict=True):
            if id(segment) not in gone:
                self.hold(topic_id, first_offset, segment)
            elif result is not None and extent is not None:
                self.hold(topic_id, extent.first_offset, result)
                extent = None  # it stands where the first of its sources stood

    def forget_handle(self, path: str) -> None:
        handle = self._handles.pop(path, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Close every file."""
        for path in list(self._handles):
            self.forget_handle(path)
        for segment in self.segments:
            if segment.file is not None:
                segment.file.close()
                segment.file = None

    # finding

    def extents(self, topic_id: int) -> list[Extent]:
        """What each segment holds of the topic, oldest first."""
        holders = self._holders.get(topic_id)
        if holders is None:
            return []
        found = (segment.index.extent(topic_id) for segment in holders.segments)
        return [extent for extent in found if extent is not None]

    def extent_at(self, topic_id: int, offset: int) -> Extent | None:
        """What the segment that may hold this offset of a topic holds of it."""
        holders = self._holders.get(topic_id)
        at = bisect_right(holders.firsts, offset) - 1 if holders else -1
        return holders.segments[at].index.extent(topic_id) if holders and at >= 0 else None

    def places(self, topic_id: int, offset: int) -> Iterator[BatchPlace]:
        """Batches in order, from the one holding `offset` (or the first after it) on."""
        holders = self._holders.get(topic_id)
        if holders is None:
            return
        start = max(0, bisect_right(holders.firsts, offset) - 1)
        for segment in holders.segments[start:]:
            again = partial(self._reindex, segment)
            for entry in entries_from(segment.index, topic_id, offset, again):
                yield place_of(segment, entry)
                offset = entry.first_offset + entry.count

    def offset_at(self, topic_id: int, timestamp: int) -> int | None:
        """The first offset with a timestamp at or after this one; None when all are older."""
        holders = self._holders.get(topic_id)
        for segment in holders.segments if holders else ():
            extent = segment.index.extent(topic_id)
            if extent is None or extent.last_timestamp < timestamp:
                continue
            try:
                entry = next(segment.index.entries_since(topic_id, timestamp))
            except DamagedIndex:
                entry = next(self._reindex(segment).entries_since(topic_id, timestamp))
            if segment.header.form != COLD or entry.is_part:
                return entry.first_offset  # a batch as it was put has one timestamp
            return _offset_in(self.read(place_of(segment, entry)).record, timestamp)
        return None

    def _reindex(self, segment: Segment) -> Index:
        """Make a damaged index again from the segment; its file is left to the next opening.

        A segment that is damaged itself is read through once, and refused from then on.
        """
        if segment.damage:
            raise Corrupt(segment.damage)
        try:
            index = make_index(self.file_of(segment), segment.header, segment.path).index
        except Corrupt as damage:
            segment.damage = damage.detail
            raise
        segment.index = index
        with suppress(FileNotFoundError):
            self._disk.remove(index_path(segment.path))
        return index

    # reading

    def read(self, place: BatchPlace, *, verify: bool = False) -> StoredBatch:
        """The batch at a place; with `verify`, its body is checked against its checksum."""
        return read_frame(self.file_of(place.segment), place, self._key, verify=verify)[1]

    def runs(self, place: BatchPlace) -> tuple[Run, ...]:
        """Whose messages the batch at a place has, and since when; its body is not read."""
        record = read_head(self.file_of(place.segment), place, self._key, HEAD_BYTES).record()
        return record.runs if isinstance(record, MessagesStored) else ()

    def read_many(
        self, topic_id: int, offset: int, *, count_max: int, bytes_max: int
    ) -> list[StoredBatch]:
        """Consecutive finished batches from the one holding `offset` on; at least one, if any."""
        found: list[StoredBatch] = []
        run: list[BatchPlace] = []
        end_offset = offset + count_max
        total = 0
        for one in self._readable(topic_id, offset, end_offset):
            total += one.size
            if total > bytes_max and total > one.size:
                break
            if isinstance(one, Slice):
                found.extend(self._read_run(run))
                run = []
                staged = self.read(one.place, verify=True)
                found.append(published(one.part, staged, start=one.start, stop=one.stop))
                continue
            if run and not _adjacent(run[-1], one):
                found.extend(self._read_run(run))
                run = []
            run.append(one)
        found.extend(self._read_run(run))
        return found

    def _readable(self, topic_id: int, offset: int, end: int) -> Iterator[BatchPlace | Slice]:
        """Finished batches in order, up to `end`, those of commits where they lie."""
        for place in self.places(topic_id, offset):
            if place.position >= place.segment.visible or place.first_offset >= end:
                return
            if place.is_part:
                yield from self._slices(self.read_part(topic_id, place), offset, end)
            else:
                yield place

    def _slices(self, part: PartKept, offset: int, end_offset: int) -> Iterator[Slice]:
        at = part.stage_offset + max(0, offset - part.first_offset)
        end = part.stage_offset + min(part.count, end_offset - part.first_offset)
        for place in self.places(part.stage_id, at):
            if place.first_offset > at or at >= end:
                break
            stop = min(end, place.first_offset + place.count)
            yield Slice(part, place, at, stop)
            at = stop
        if at < end:
            raise Corrupt(
                f"message {at} of stage {part.stage_id} is not in the log, though offset "
                f"{part.first_offset + at - part.stage_offset} of topic {part.topic_id} is kept"
            )

    def staged_from(self, topic_id: int, offset: int) -> dict[int, int]:
        """Where in each stage the first of a topic's messages from `offset` on lies."""
        found: dict[int, int] = {}
        for place in self.places(topic_id, offset):
            if place.is_part:
                part = self.read_part(topic_id, place)
                first = part.stage_offset + max(0, offset - part.first_offset)
                found.setdefault(part.stage_id, first)
        return found

    def read_part(self, topic_id: int, place: BatchPlace) -> PartKept:
        """What the commit at a place says about a topic."""
        path = place.segment.path
        parts = self._commits.get(path, place.position)
        if parts is None:
            _, parts = read_parts(self.file_of(place.segment), place, self._key)
            self._commits.keep(path, place.position, parts)
        part = parts.get((topic_id, place.first_offset))
        if part is None:
            raise damaged(place)
        return part

    def _read_run(self, run: list[BatchPlace]) -> Iterator[StoredBatch]:
        """Batches that lie side by side, with one read (large ones one by one, uncopied)."""
        if len(run) < 2 or run[0].size > LARGE_BYTES:
            for place in run:
                yield self.read(place)
            return
        start = run[0].position
        data = self.file_of(run[0].segment).read(start, run[-1].position + run[-1].size - start)
        view = memoryview(data)
        for place in run:
            frame = parse(view, place.position - start, start, self._key)
            if not isinstance(frame, Frame) or frame.body is None:
                raise damaged(place)
            yield stored_in(frame, place, bytes(frame.body), verify=False)

    def file_of(self, segment: Segment) -> File:
        """The file of a segment, open for as long as others are not needed more."""
        if segment.file is not None:
            return segment.file
        handle = self._handles.get(segment.path)
        if handle is None:
            handle = self._handles[segment.path] = self._disk.open(segment.path)
            if len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)[1].close()
        else:
            self._handles.move_to_end(segment.path)
        return handle

    @property
    def disk_bytes(self) -> int:
        return sum(segment.disk_bytes for segment in self.segments)

    def seal(self, segment: Segment, index: FileIndex | None) -> None:
        """A segment the writer sealed: its file is reopened when read, its index is on disk."""
        segment.size = segment.end
        if index is not None:
            segment.index = index
        if segment.file is not None:
            segment.file.close()
            segment.file = None


def _adjacent(before: BatchPlace, after: BatchPlace) -> bool:
    return (
        before.segment is after.segment
        and before.position + before.size == after.position
        and before.size <= LARGE_BYTES
        and after.size <= LARGE_BYTES
    )


def _offset_in(record: MessagesStored, timestamp: int) -> int:
    offset = record.first_offset
    for run in record.runs:
        if run.timestamp >= timestamp:
            break
        offset += run.count
    return offset
