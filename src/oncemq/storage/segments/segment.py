"""One file of the log: its name, its header, and what is known of it in memory.

Log segments `<first serial>.log` hold the chain of all records. Cold segments
`<first serial>-<edition>.cold` are made by compaction: batches only, grouped by topic.
The edition keeps a rewritten cold segment from taking the name of one still being read.

    magic u32 · checksum u32 · version u32 · form u32 · identity 16s · first serial u64
    last serial u64 · bytes u64 · chain u32 · edition u32 · names bytes u32 · names (msgpack)

A log segment has the epoch of the frame before it where a cold one has its edition.

Laws: the header is written and synced before the first frame of a log segment, and after the
last frame of a cold one, so a valid header says: a log segment whose predecessor is durable;
a cold segment that is whole. `chain` is the chain value of the last frame before the segment.
"""

import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from oncemq.errors import StorageRefused
from oncemq.protocol.records import MessagesStored, PartKept
from oncemq.storage.disk import Disk, File
from oncemq.storage.segments.framing import Bad, scan
from oncemq.storage.segments.index import (
    BlockCache,
    Covered,
    FileIndex,
    MemoryIndex,
    read_index,
    write_index,
)
from oncemq.storage.segments.serial_places import SerialPlaces
from oncemq.storage.shortage import DISK_FULL, NO_DESCRIPTORS

LOG = 1
COLD = 2
VERSION = 1

_MAGIC = 0x53514D4F
_FIXED = struct.Struct("<IIII16sQQQIII")
HEADER_BYTES = _FIXED.size
_CRC = struct.Struct("<I")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[str]).decode


class Header(msgspec.Struct, frozen=True):
    """What a segment says of itself."""

    form: int
    identity: bytes
    first_serial: int
    chain: int = 0
    last_serial: int = 0  # cold only: the last serial of its sources
    file_bytes: int = 0  # cold only: the whole file
    edition: int = 0  # cold only: grows with each rewriting
    sources: tuple[str, ...] = ()  # cold only: the files it replaces
    leader_epoch: int = 0  # log only: of the last frame before it, as `chain` is its chain value

    @property
    def name(self) -> str:
        if self.form == LOG:
            return log_name(self.first_serial)
        return f"{self.first_serial:020d}-{self.edition:06d}.cold"

    def encode(self) -> bytes:
        names = _pack(self.sources) if self.sources else b""
        data = bytearray(
            _FIXED.pack(
                _MAGIC,
                0,
                VERSION,
                self.form,
                self.identity,
                self.first_serial,
                self.last_serial,
                self.file_bytes,
                self.chain,
                self.leader_epoch if self.form == LOG else self.edition,
                len(names),
            )
            + names
        )
        _CRC.pack_into(data, 4, zlib.crc32(memoryview(data)[8:]))
        return bytes(data)

    @property
    def size(self) -> int:
        """Where the first frame begins."""
        return HEADER_BYTES + (len(_pack(self.sources)) if self.sources else 0)

    @property
    def fingerprint(self) -> int:
        """The header's own checksum: what an index file names its segment by."""
        return _CRC.unpack_from(self.encode(), 4)[0]


def log_name(first_serial: int) -> str:
    return f"{first_serial:020d}.log"


def index_path(path: str) -> str:
    """The index file of a segment."""
    return path.rpartition(".")[0] + ".idx"


def read_header(file: File) -> Header | None:
    """The header, or None when it does not hold (zeros, torn, damaged)."""
    data = file.read(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return None
    fields = _FIXED.unpack(data)
    magic, checksum, version, form, identity, first, last, size, chain, edition, names = fields
    if magic != _MAGIC:
        return None
    packed = file.read(HEADER_BYTES, names) if 0 < names <= 1 << 20 else b""
    if zlib.crc32(data[8:] + packed) != checksum:
        return None
    if version != VERSION:
        raise StorageRefused(
            f"a segment of format {version} was written by a newer OnceMQ; "
            f"this one knows {VERSION}",
            code="format_too_new",
        )
    sources = tuple(_unpack(packed)) if packed else ()
    if form == LOG:
        return Header(form, identity, first, chain, last, size, leader_epoch=edition)
    return Header(form, identity, first, chain, last, size, edition, sources)


@dataclass(slots=True, eq=False)
class Segment:
    """A segment as the loop thread sees it; `file` is set while it is the one in use.

    The writer thread writes through `file` and, once the loop rolled to the next segment,
    reads `index`, `end`, `last_serial` and `chain`, which no longer change then.
    """

    path: str
    header: Header
    index: MemoryIndex | FileIndex
    end: int  # where the next frame goes
    last_serial: int
    chain: int  # chain value of the last frame
    size: int  # bytes on disk, reserved room included
    visible: int = 0  # frames before this position are finished: readers may have them
    file: File | None = None
    ahead: int = field(default=0, kw_only=True)  # behind its end are zeros that were written
    claimed: int = field(default=0, kw_only=True)  # up to here the group under way may write
    stages: int = 0  # that were noted while it was the one in use
    places: SerialPlaces = field(default_factory=SerialPlaces)  # of a log segment's frames
    damage: str = ""  # what was found broken in it: left alone by compaction, not indexed anew
    weights: dict[int, tuple[int, int]] = field(  # of planning: topic → low, bytes from there on
        default_factory=dict[int, tuple[int, int]]
    )

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def first_serial(self) -> int:
        return self.header.first_serial

    @property
    def disk_bytes(self) -> int:
        return max(self.size, self.end) + (
            self.index.size if isinstance(self.index, FileIndex) else 0
        )

    @property
    def covered(self) -> Covered:
        """What an index file of this segment stands for."""
        return Covered(
            self.header.identity,
            self.header.fingerprint,
            self.first_serial,
            self.last_serial,
            self.chain,
            self.end,
        )


def new_log_segment(
    directory: str, identity: bytes, first_serial: int, chain: int, *, leader_epoch: int = 0
) -> Segment:
    """A segment to come: nothing of it is on disk yet."""
    header = Header(LOG, identity, first_serial, chain, leader_epoch=leader_epoch)
    path = f"{directory}/{header.name}"
    return Segment(
        path, header, MemoryIndex(), HEADER_BYTES, first_serial - 1, chain, 0, HEADER_BYTES
    )


def scan_cold(file: File, header: Header, key: int) -> MemoryIndex | Bad:
    """The index of a cold segment, made from its frames, each verified."""
    index = MemoryIndex()
    position = header.size
    for found in scan(file, position, header.file_bytes, key):
        if isinstance(found, Bad):
            return found
        if not found.body_holds():
            return Bad(found.position, f"the body of serial {found.serial} does not hold")
        record = found.record()
        if not isinstance(record, MessagesStored | PartKept):
            return Bad(found.position, "a cold segment holds something else than messages")
        index.note(record, found.position, found.size)
        position = found.end
    if position != header.file_bytes:
        return Bad(position, f"the cold segment ends at byte {position}, not {header.file_bytes}")
    return index


def remove_segment(disk: Disk, path: str) -> None:
    """Remove a segment and its index: the index first, durably, so that it never stands alone.

    An index without its segment says that the segment is missing.
    """
    remove_index(disk, path)
    with suppress(FileNotFoundError):
        disk.remove(path)


def remove_index(disk: Disk, path: str) -> None:
    """Remove the index of a segment, durably; the segment may follow."""
    with suppress(FileNotFoundError):
        disk.remove(index_path(path))
        disk.sync_directory(path.rpartition("/")[0])


def save_index(disk: Disk, segment: Segment, cache: BlockCache) -> FileIndex | None:
    """Write a sealed segment's index; None (it stays in memory) when the disk is full."""
    assert isinstance(segment.index, MemoryIndex)
    path = index_path(segment.path)
    covered = segment.covered
    try:
        write_index(disk, path, segment.index, covered)
    except OSError as error:
        if error.errno not in (*DISK_FULL, *NO_DESCRIPTORS):
            raise
        with suppress(FileNotFoundError):
            disk.remove(path + ".tmp")
        return None
    found = read_index(
        disk, path, cache, identity=covered.identity, fingerprint=covered.fingerprint
    )
    return found[0] if found else None
