"""One record as bytes: a frame of header, meta (the record) and body (the payloads).

    magic u32 · checksum u32 · durable u64 · mark checksum u32
    version u8 · kind u8 · zero u16 · meta bytes u32 · body bytes u32 · seed u32
    body checksum u32 · previous u32 · serial u64 · epoch u32 · meta · body

Laws: `checksum` covers everything in the header from the version on, and the meta, starting from a
key of the shard's own, so that a frame of another log (or one inside a payload) is never taken
for one of this log. It covers the body's checksum too, and the next frame repeats it as
`previous`: the chain by which stale, lost and swapped blocks are seen. `durable` says what one
replica had synced, so it lies before all that, with a checksum that starts from the frame's: the
same records have the same chain values on every replica. A header of zeros is the end; a known
checksum with an unknown kind is a newer OnceMQ's and is refused, not skipped.

Frames of format 1 (`_parse_old`) are read, and never written: there `durable` was the last field
of the header, inside the checksum, and there was no epoch. They and ours may lie in one segment.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from oncemq.errors import StorageRefused
from oncemq.protocol.outbox_records import OUTBOX_RECORDS, OutboxRecord
from oncemq.protocol.records import (
    RECORDS,
    Committed,
    ContentsCommitted,
    Marked,
    MessagesKeyed,
    MessagesStaged,
    MessagesStored,
    PartKept,
    Record,
)
from oncemq.storage.disk import Buffer, File

MAGIC = 0x324D514F  # "OQM2" on disk
MAGIC_BYTES = b"OQM"  # what frames of both formats begin with
OLD_MAGIC = 0x314D514F
VERSION = 2
# The kinds an index knows of.
INDEXED = frozenset(
    kind.kind
    for kind in (
        MessagesStored,
        MessagesKeyed,
        MessagesStaged,
        Committed,
        ContentsCommitted,
        PartKept,
    )
)
META_BYTES_MAX = 16 << 20
STRETCH_BYTES = 2 << 20
_IMPOSSIBLE = "the header gives a length that cannot be"
_DIFFERS = "the header's checksum does not hold"

_LOCAL = struct.Struct("<IIQI")
_CHAINED = struct.Struct("<BBHIIIIIQI")
_HEADER = struct.Struct("<IIQIBBHIIIIIQI")
_MARK = struct.Struct("<Q")
_OLD_HEADER = struct.Struct("<IIBBHIIIIIQQ")
HEADER_BYTES = _HEADER.size
LOCAL_BYTES = _LOCAL.size  # of the header: what lies outside the chained checksum
_OLD_HEADER_BYTES = _OLD_HEADER.size
_ZERO_HEADER = bytes(_OLD_HEADER_BYTES)

_pack_meta = msgspec.msgpack.Encoder().encode
_local = _LOCAL.pack
_chained = _CHAINED.pack
_mark = _MARK.pack
_crc32 = zlib.crc32
# A server's log and a client's outbox have the same frames, and each its own records.
_decoders: dict[int, Any] = {
    kind: msgspec.msgpack.Decoder(record).decode for kind, record in RECORDS.items()
}
_outbox_decoders: dict[int, Any] = {
    kind: msgspec.msgpack.Decoder(record).decode for kind, record in OUTBOX_RECORDS.items()
} | {Marked.kind: _decoders[Marked.kind]}
KNOWN_KINDS = frozenset((*_decoders, *_outbox_decoders))


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One whole frame as found in a file; its header and meta hold."""

    position: int
    size: int
    serial: int
    kind: int
    meta: memoryview
    body_position: int
    body_bytes: int
    seed: int
    body_checksum: int
    previous: int
    durable: int
    leader_epoch: int  # of who wrote it; 0: of a server alone
    chain: int
    body: memoryview | None  # None where the scan was told not to look at bodies

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def is_old(self) -> bool:
        """Whether it was written in format 1: then its chain value covers a durable mark."""
        return self.body_position - len(self.meta) - self.position == _OLD_HEADER_BYTES

    def record(self) -> Record:
        """The record of a server's log, decoded."""
        return decode_record(self.kind, self.meta)

    def outbox_record(self) -> OutboxRecord | Marked:
        """The record of a client's outbox, decoded."""
        return _decoded(_outbox_decoders, self.kind, self.meta)

    def holds(self, body: Buffer) -> bool:
        """Whether this is the body the checksum was made of."""
        return _crc32(body, self.seed) == self.body_checksum

    def body_holds(self) -> bool:
        """Whether the body at hand is the one the checksum was made of."""
        return self.body is not None and self.holds(self.body)


class Bad(msgspec.Struct, frozen=True):
    """Where a scan met bytes that are neither a frame nor the end, and what is wrong."""

    position: int
    why: str


def frame_key(identity: bytes) -> int:
    """What the frame checksums of this log start from."""
    return _crc32(identity)


def encode(
    record: Record | OutboxRecord,
    *,
    key: int,
    serial: int,
    previous: int,
    durable: int,
    leader_epoch: int = 0,
    seed: int = 0,
    body_bytes: int = 0,
    body_checksum: int = 0,
) -> tuple[int, bytes]:
    """The frame's chain value, and its header and meta; the body follows them as it is."""
    meta = _pack_meta(record)
    # What `parse` would take for a torn tail must not be written: large bytes go into the body.
    assert len(meta) <= META_BYTES_MAX, f"a {type(record).__name__} of {len(meta)} bytes"
    covered = (
        _chained(
            VERSION,
            record.kind,
            0,
            len(meta),
            body_bytes,
            seed,
            body_checksum,
            previous,
            serial,
            leader_epoch,
        )
        + meta
    )
    chain = _crc32(covered, key)
    return chain, _local(MAGIC, chain, durable, _crc32(_mark(durable), chain)) + covered


def local_part(chain: int, durable: int) -> bytes:
    """The local part of a frame's header: what this replica says of its own syncs."""
    return _local(MAGIC, chain, durable, _crc32(_mark(durable), chain))


def decode_record(kind: int, meta: Buffer) -> Record:
    """The record of a frame of a server's log whose checksum holds."""
    return _decoded(_decoders, kind, meta)


def _decoded(decoders: dict[int, Any], kind: int, meta: Buffer) -> Any:
    decoder = decoders.get(kind)
    if decoder is None:
        raise StorageRefused(
            f"the log holds a record of kind {kind}, written by a newer OnceMQ; this one knows "
            f"kinds up to {max(KNOWN_KINDS)}: run the newer version on this directory",
            code="format_too_new",
        )
    try:
        return decoder(meta)
    except msgspec.MsgspecError as error:
        raise StorageRefused(
            f"the log holds a record of kind {kind} this OnceMQ cannot read ({error}); "
            "run the version that wrote it",
            code="format_too_new",
        ) from error


def parse(view: memoryview, at: int, base: int, key: int) -> Frame | Bad | int | None:
    """The frame at `at` of a view that begins at `base` in its file.

    None: a header of zeros. An int: this many bytes are needed from `at` on to tell.
    """
    available = len(view) - at
    if available < HEADER_BYTES:
        return _parse_old(view, at, base, key)
    (
        magic,
        checksum,
        durable,
        mark_checksum,
        version,
        kind,
        _,
        meta_bytes,
        body_bytes,
        seed,
        body_checksum,
        previous,
        serial,
        epoch,
    ) = _HEADER.unpack_from(view, at)
    if magic != MAGIC:
        return _parse_old(view, at, base, key)
    position = base + at
    head = HEADER_BYTES + meta_bytes
    if meta_bytes > META_BYTES_MAX:
        return Bad(position, _IMPOSSIBLE)
    if available < head:
        return head
    meta_end = at + head
    if _crc32(view[at + LOCAL_BYTES : meta_end], key) != checksum:
        return Bad(position, _DIFFERS)
    if _crc32(view[at + 8 : at + 16], checksum) != mark_checksum:
        return Bad(position, "the checksum of the header's durable mark does not hold")
    if version != VERSION:
        raise _too_new(version)
    size = head + body_bytes
    body = view[meta_end : meta_end + body_bytes] if available >= size else None
    return Frame(
        position,
        size,
        serial,
        kind,
        view[at + HEADER_BYTES : meta_end],
        base + meta_end,
        body_bytes,
        seed,
        body_checksum,
        previous,
        durable,
        epoch,
        checksum,
        body,
    )


def _parse_old(view: memoryview, at: int, base: int, key: int) -> Frame | Bad | int | None:
    """As `parse`, where no header of ours begins: a frame of format 1, zeros, or nothing."""
    available = len(view) - at
    if available < _OLD_HEADER_BYTES:
        return _OLD_HEADER_BYTES
    (
        magic,
        checksum,
        version,
        kind,
        _,
        meta_bytes,
        body_bytes,
        seed,
        body_checksum,
        previous,
        serial,
        durable,
    ) = _OLD_HEADER.unpack_from(view, at)
    position = base + at
    if magic == MAGIC:
        return HEADER_BYTES
    if magic != OLD_MAGIC:
        if bytes(view[at : at + _OLD_HEADER_BYTES]) == _ZERO_HEADER:
            return None
        return Bad(position, "no frame begins here")
    head = _OLD_HEADER_BYTES + meta_bytes
    if meta_bytes > META_BYTES_MAX:
        return Bad(position, _IMPOSSIBLE)
    if available < head:
        return head
    meta_end = at + head
    if _crc32(view[at + 8 : meta_end], key) != checksum:
        return Bad(position, _DIFFERS)
    if version != 1:
        raise _too_new(version)
    size = head + body_bytes
    body = view[meta_end : meta_end + body_bytes] if available >= size else None
    return Frame(
        position,
        size,
        serial,
        kind,
        view[at + _OLD_HEADER_BYTES : meta_end],
        base + meta_end,
        body_bytes,
        seed,
        body_checksum,
        previous,
        durable,
        0,
        checksum,
        body,
    )


def _too_new(version: int) -> StorageRefused:
    return StorageRefused(
        f"the log holds frames of format {version}, written by a newer OnceMQ; this one "
        f"knows {VERSION}",
        code="format_too_new",
    )


def scan(
    file: File, start: int, end: int, key: int, *, bodies: bool = True, step: int = STRETCH_BYTES
) -> Iterator[Frame | Bad]:
    """The frames from `start` on, up to the zero header or `end`; last of all the Bad, if any.

    A file that is shorter than `end` ends where it ends. With `bodies`, every frame comes with its
    body in memory (not yet verified); a body that goes beyond `end` is Bad. Frames must not be
    kept: they hold the stretch they lie in, `step` bytes or one frame.
    """
    position, want = start, HEADER_BYTES
    while position < end:
        asked = min(max(step, want), end - position)
        stretch = file.read(position, asked)
        if len(stretch) < asked:
            end = position + len(stretch)
        view, at, available, base = memoryview(stretch), 0, len(stretch), position
        want = HEADER_BYTES
        while at < available:
            found = parse(view, at, base, key)
            if isinstance(found, Frame):
                if found.body is None:
                    if base + at + found.size > end:
                        yield Bad(base + at, "the frame goes beyond the end of the file")
                        return
                    if bodies:
                        want = found.size
                        break
                yield found
                at += found.size
                continue
            if isinstance(found, int):
                want = found
                break
            if found is not None:
                yield found
            return
        position = base + at
        if position < end < position + want:
            if file.read(position, end - position).strip(b"\0"):
                yield Bad(position, "a frame is cut off by the end of the file")
            return


def first_frame_after(
    file: File, start: int, end: int, key: int, *, serial_min: int
) -> Frame | None:
    """The first valid frame header anywhere in `start`..`end` with at least that serial."""
    position = start
    while position < end:
        asked = min(STRETCH_BYTES, end - position)
        stretch = file.read(position, asked)
        at = stretch.find(MAGIC_BYTES)
        while at >= 0:
            found = _frame_at(file, position + at, end, key)
            if found is not None and found.serial >= serial_min:
                return found
            at = stretch.find(MAGIC_BYTES, at + 1)
        if len(stretch) < asked or position + asked >= end:
            return None
        position += len(stretch) - len(MAGIC_BYTES) + 1
    return None


def _frame_at(file: File, position: int, end: int, key: int) -> Frame | None:
    want = HEADER_BYTES
    for _ in range(2):
        data = file.read(position, min(want, end - position))
        found = parse(memoryview(data), 0, position, key)
        if not isinstance(found, int):
            return found if isinstance(found, Frame) else None
        want = found  # its header says how much more there is to read
    return None
