"""Where the batches of each topic lie in a segment: offset → position.

The segment in use has its entries in memory (`MemoryIndex`). A sealed segment has them in an
index file beside it (`FileIndex`): in memory only one row per topic stays, entries are read
in checksummed blocks when asked for, and a few decoded blocks are remembered, so memory is
flat however long the log.

    header   magic u32 · checksum u32 · version u32 · topics u32 · identity 16s · fingerprint u32
             chain u32 · first serial u64 · last serial u64 · segment bytes u64 · directory crc u32
    rows     one per topic, by topic id: topic · first offset · end offset · first timestamp ·
             last timestamp · bytes · message bytes · position of its blocks · entries (u64 each)
    blocks   up to 1,024 entries: offsets · positions · last timestamps · shapes (columns of
             u64), then crc u32

A topic's messages lie in a batch of its own, or in a stage: then the entry points at the commit
that says where (a part), and `bytes` (of this segment) and `message bytes` differ.

Law: an index is only a cache. It proves which segment it belongs to (fingerprint = the
checksum of the segment's header); one that does not fit is made again from the segment.
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from oncemq.errors import Corrupt
from oncemq.protocol.commit_records import Committed, Part, PartKept
from oncemq.protocol.records import MessagesStored
from oncemq.protocol.replies import NO_OFFSET
from oncemq.storage.disk import Disk, File
from oncemq.storage.segments.entries import PART, SIZE_BITS, Entries, Entry, Extent

BLOCK_ENTRIES = 1024
CACHED_BLOCKS = 64

_MAGIC = 0x58514D4F
_VERSION = 2
_HEADER = struct.Struct("<IIII16sIIQQQI")
_ROW = struct.Struct("<9Q")
_CRC = struct.Struct("<I")
_PART_BYTES = 128  # what a part of a commit takes once it stands alone, about

Indexed = MessagesStored | Committed | PartKept


class DamagedIndex(Corrupt):
    """An index block does not hold; the segment itself may well do."""


class Index(Protocol):
    """What a segment's batches are, by topic."""

    def rows(self) -> int: ...
    def topics(self) -> Iterator[int]: ...
    def extent(self, topic_id: int) -> Extent | None: ...
    def entries_from(self, topic_id: int, offset: int) -> Iterator[Entry]: ...
    def entries_since(self, topic_id: int, timestamp: int) -> Iterator[Entry]: ...


class MemoryIndex:
    """The index of the segment in use. Owned by the loop thread; frozen when sealed."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[int, Entries] = {}

    def rows(self) -> int:
        """How many topics there are."""
        return len(self.by_topic)

    def add(self, record: MessagesStored, position: int, size: int) -> bool:
        """Remember where a batch lies; True when it is the first of its topic here."""
        runs = record.runs
        entries = self.by_topic.get(record.topic_id)
        first = entries is None
        if entries is None:
            entries = self.by_topic[record.topic_id] = Entries(runs[0].timestamp)
        entries.offsets.append(record.first_offset)
        entries.positions.append(position)
        entries.timestamps.append(runs[-1].timestamp)
        entries.shapes.append(record.count << SIZE_BITS | size)
        entries.bytes += size
        entries.message_bytes += size
        return first

    def add_parts(self, record: Committed | PartKept, position: int, size: int) -> list[Part]:
        """Remember where a commit (or one of its parts) lies; the first parts of their topics."""
        if isinstance(record, PartKept):
            self._add_part(record, record.run.timestamp, position, size, size)
            return []
        first: list[Part] = []
        for part in record.parts:
            if part.first_offset != NO_OFFSET:
                if part.topic_id not in self.by_topic:
                    first.append(part)
                own = min(size, _PART_BYTES)
                self._add_part(part, record.timestamp, position, size, own)
        return first

    def _add_part(
        self, part: Part | PartKept, timestamp: int, position: int, size: int, own: int
    ) -> None:
        entries = self.by_topic.get(part.topic_id)
        if entries is None:
            entries = self.by_topic[part.topic_id] = Entries(timestamp)
        entries.offsets.append(part.first_offset)
        entries.positions.append(position)
        entries.timestamps.append(timestamp)
        entries.shapes.append((PART | part.count) << SIZE_BITS | size)
        entries.bytes += own
        entries.message_bytes += part.message_bytes

    def note(self, record: Indexed, position: int, size: int) -> None:
        """Remember where any record with messages lies."""
        if isinstance(record, MessagesStored):
            self.add(record, position, size)
        else:
            self.add_parts(record, position, size)

    def topics(self) -> Iterator[int]:
        return iter(self.by_topic)

    def extent(self, topic_id: int) -> Extent | None:
        entries = self.by_topic.get(topic_id)
        return entries.extent if entries else None

    def entries_from(self, topic_id: int, offset: int) -> Iterator[Entry]:
        """Entries in order, from the one holding `offset` (or the first after it) on."""
        entries = self.by_topic.get(topic_id)
        if entries:
            for at in range(entries.at_offset(offset), len(entries)):
                yield entries.entry(at)

    def entries_since(self, topic_id: int, timestamp: int) -> Iterator[Entry]:
        """Entries in order, from the first with a message at or after `timestamp` on."""
        entries = self.by_topic.get(topic_id)
        if entries:
            for at in range(bisect_left(entries.timestamps, timestamp), len(entries)):
                yield entries.entry(at)


class BlockCache:
    """The last decoded blocks of all index files. Owned by the loop thread."""

    def __init__(self, blocks_max: int = CACHED_BLOCKS) -> None:
        self._blocks: OrderedDict[tuple[str, int], Entries] = OrderedDict()
        self._blocks_max = blocks_max

    def get(self, path: str, position: int) -> Entries | None:
        block = self._blocks.get((path, position))
        if block is not None:
            self._blocks.move_to_end((path, position))
        return block

    def put(self, path: str, position: int, block: Entries) -> None:
        self._blocks[path, position] = block
        if len(self._blocks) > self._blocks_max:
            self._blocks.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Covered:
    """Which segment an index file stands for, and where that segment ends."""

    identity: bytes
    fingerprint: int
    first_serial: int
    last_serial: int
    chain: int
    end: int


class FileIndex:
    """The index of a sealed segment: rows in memory, blocks on demand."""

    def __init__(self, disk: Disk, path: str, cache: BlockCache, rows: bytes, size: int) -> None:
        self._disk = disk
        self._path = path
        self._cache = cache
        self._rows = rows
        self._topics = array("Q", (row[0] for row in _ROW.iter_unpack(rows)))
        self.size = size  # bytes of the index file

    def rows(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def with_cache(self, cache: BlockCache) -> "FileIndex":
        """The same index for another thread, which must not share the loop's cache."""
        return FileIndex(self._disk, self._path, cache, self._rows, self.size)

    def topics(self) -> Iterator[int]:
        return iter(self._topics)

    def _row(self, topic_id: int) -> tuple[int, ...] | None:
        at = bisect_left(self._topics, topic_id)
        if at == len(self._topics) or self._topics[at] != topic_id:
            return None
        return _ROW.unpack_from(self._rows, at * _ROW.size)

    def extent(self, topic_id: int) -> Extent | None:
        row = self._row(topic_id)
        return Extent(*row[1:7]) if row else None

    def entries_from(self, topic_id: int, offset: int) -> Iterator[Entry]:
        yield from self._entries(topic_id, offset, by_time=False)

    def entries_since(self, topic_id: int, timestamp: int) -> Iterator[Entry]:
        yield from self._entries(topic_id, timestamp, by_time=True)

    def _entries(self, topic_id: int, wanted: int, *, by_time: bool) -> Iterator[Entry]:
        row = self._row(topic_id)
        if row is None:
            return
        start, count = row[7], row[8]
        blocks = (count + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES
        low, high = 0, blocks - 1
        while low < high:  # the first block whose last entry reaches what is wanted
            middle = (low + high) // 2
            block = self._block(start, count, middle)
            last = block.entry(len(block) - 1)
            reach = block.timestamps[-1] if by_time else last.first_offset + last.count - 1
            low, high = (low, middle) if reach >= wanted else (middle + 1, high)
        for number in range(low, blocks):
            block = self._block(start, count, number)
            at = bisect_left(block.timestamps, wanted) if by_time else block.at_offset(wanted)
            for place in range(at, len(block)):
                yield block.entry(place)

    def _block(self, start: int, count: int, number: int) -> Entries:
        entries = min(BLOCK_ENTRIES, count - number * BLOCK_ENTRIES)
        position = start + number * (BLOCK_ENTRIES * 32 + _CRC.size)
        block = self._cache.get(self._path, position)
        if block is None:
            block = _decode_block(self._read(position, entries * 32 + _CRC.size), entries)
            if block is None:
                raise DamagedIndex(
                    f"{self._path} is damaged at byte {position}; it can be made again from its "
                    "segment"
                )
            self._cache.put(self._path, position, block)
        return block

    def _read(self, position: int, size: int) -> bytes:
        """Bytes of the file; none when somebody took it away."""
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            return b""
        try:
            return file.read(position, size)
        finally:
            file.close()


def entries_from(
    index: Index, topic_id: int, offset: int, again: Callable[[], Index]
) -> Iterator[Entry]:
    """`index.entries_from`; an index that proves damaged on the way is made `again`."""
    try:
        for entry in index.entries_from(topic_id, offset):
            yield entry
            offset = entry.first_offset + entry.count
    except DamagedIndex:
        yield from again().entries_from(topic_id, offset)


def _decode_block(data: bytes, entries: int) -> Entries | None:
    size = entries * 32
    if len(data) != size + _CRC.size or zlib.crc32(data[:size]) != _CRC.unpack_from(data, size)[0]:
        return None
    block = Entries()
    for number, column in enumerate(block.columns()):
        column.frombytes(data[number * entries * 8 : (number + 1) * entries * 8])
        if sys.byteorder == "big":
            column.byteswap()
    return block


def _encode_block(entries: Entries, start: int) -> bytes:
    pieces: list[bytes] = []
    for column in entries.columns():
        part = column[start : start + BLOCK_ENTRIES]
        if sys.byteorder == "big":
            part.byteswap()
        pieces.append(part.tobytes())
    data = b"".join(pieces)
    return data + _CRC.pack(zlib.crc32(data))


def write_index(disk: Disk, path: str, index: MemoryIndex, covered: Covered) -> None:
    """Write the index file of a sealed segment; complete under its name, or not there."""
    topics = sorted(index.by_topic)
    position = _HEADER.size + len(topics) * _ROW.size
    rows: list[bytes] = []
    blocks: list[bytes] = []
    for topic_id in topics:
        entries = index.by_topic[topic_id]
        rows.append(_ROW.pack(topic_id, *entries.extent, position, len(entries)))
        for start in range(0, len(entries), BLOCK_ENTRIES):
            blocks.append(_encode_block(entries, start))
            position += len(blocks[-1])
    directory = b"".join(rows)
    header = bytearray(
        _HEADER.pack(
            _MAGIC,
            0,
            _VERSION,
            len(topics),
            covered.identity,
            covered.fingerprint,
            covered.chain,
            covered.first_serial,
            covered.last_serial,
            covered.end,
            zlib.crc32(directory),
        )
    )
    _CRC.pack_into(header, 4, zlib.crc32(header[8:]))
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write([header, directory, *blocks], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])


def read_index(
    disk: Disk, path: str, cache: BlockCache, *, identity: bytes, fingerprint: int
) -> tuple[FileIndex, Covered] | None:
    """The index file and what it covers; None when it is missing, damaged or another's.

    What the disk does not give is damaged as well: the segment has all that an index says.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return _read_rows(file, disk, path, cache, (identity, fingerprint))
    except OSError:
        return None
    finally:
        file.close()


def _read_rows(
    file: File, disk: Disk, path: str, cache: BlockCache, belongs: tuple[bytes, int]
) -> tuple[FileIndex, Covered] | None:
    header = file.read(0, _HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, checksum, version, topics, identity, fingerprint, chain, first, last, end, crc = (
        _HEADER.unpack(header)
    )
    if magic != _MAGIC or version != _VERSION or zlib.crc32(header[8:]) != checksum:
        return None
    rows = file.read(_HEADER.size, topics * _ROW.size)
    if (identity, fingerprint) != belongs or zlib.crc32(rows) != crc:
        return None
    index = FileIndex(disk, path, cache, rows, file.size())
    return index, Covered(identity, fingerprint, first, last, chain, end)
