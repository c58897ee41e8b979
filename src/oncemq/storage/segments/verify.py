"""Reading a log segment frame by frame, believing nothing: what recovery and repair share.

Law: a frame counts only if its header, its chain, its serial and its body all hold.
"""

from array import array
from dataclasses import dataclass, field

from oncemq.errors import Corrupt
from oncemq.protocol.records import Committed, MessagesStored, PartKept
from oncemq.storage.disk import File
from oncemq.storage.segments.framing import (
    INDEXED,
    KNOWN_KINDS,
    STRETCH_BYTES,
    Bad,
    Frame,
    first_frame_after,
    scan,
)
from oncemq.storage.segments.index import MemoryIndex
from oncemq.storage.segments.segment import HEADER_BYTES, Header


@dataclass(slots=True)
class Verified:
    """How far a log segment holds, and what stands where it stops."""

    last_serial: int
    chain: int
    end: int = HEADER_BYTES  # of the last frame that holds
    index: MemoryIndex = field(default_factory=MemoryIndex)
    positions: "array[int]" = field(default_factory=lambda: array("Q"))  # of every frame
    durable: int = 0  # the highest durable mark of any frame
    epochs: list[tuple[int, int]] = field(  # that begin in it, each with its first serial
        default_factory=list[tuple[int, int]]
    )
    proof: int | None = None  # the chain value at the serial asked for
    bad: Bad | None = None  # what stopped it; None: a clean end
    after: Frame | None = None  # with `bad`: a later frame that proves it was durable once


def verify(file: File, header: Header, key: int, *, prove: int = 0) -> Verified:
    """Check every frame of a log segment; `prove` names a serial whose chain value is wanted."""
    size = file.size()
    found = Verified(header.first_serial - 1, header.chain)
    serial, chain, durable, end = found.last_serial, found.chain, 0, found.end
    epoch = header.leader_epoch
    if prove == serial:
        found.proof = chain
    add, note = found.index.note, found.positions.append
    for frame in scan(file, HEADER_BYTES, size, key):
        if isinstance(frame, Bad):
            found.bad = frame
            break
        if (
            frame.serial != serial + 1
            or frame.previous != chain
            or frame.leader_epoch < epoch
            or (frame.body_bytes and not frame.body_holds())
        ):
            found.bad = Bad(
                frame.position, _why(frame, serial=serial, chain=chain, leader_epoch=epoch)
            )
            break
        if frame.kind in INDEXED:
            record = frame.record()
            assert isinstance(record, MessagesStored | Committed | PartKept)
            add(record, frame.position, frame.size)
        elif frame.kind not in KNOWN_KINDS:
            frame.record()  # a newer OnceMQ's: raises, before anything is changed
        note(frame.position)
        serial, chain = frame.serial, frame.chain
        if frame.durable > durable:
            durable = frame.durable
        if frame.leader_epoch > epoch:
            epoch = frame.leader_epoch
            found.epochs.append((epoch, serial))
        end = frame.position + frame.size
        if serial == prove:
            found.proof = chain
    found.last_serial, found.chain, found.durable, found.end = serial, chain, durable, end
    if found.bad is None:
        found.bad = _nonzero(file, found.end, size)
    if found.bad is not None:
        found.after = _proof_after(file, found.bad.position, size, key, serial + 1)
    return found


def _why(frame: Frame, *, serial: int, chain: int, leader_epoch: int) -> str:
    """Why a frame cannot follow the one with that serial, chain value and epoch."""
    if frame.serial != serial + 1:
        return f"serial {frame.serial} stands where {serial + 1} belongs"
    if frame.previous != chain:
        return f"serial {frame.serial} does not follow its predecessor: the chain is broken"
    if frame.leader_epoch < leader_epoch:
        return (
            f"serial {frame.serial} is of epoch {frame.leader_epoch}, behind one of epoch "
            f"{leader_epoch}"
        )
    return f"the body of serial {frame.serial} does not match its checksum"


def must_lead_to(path: str, found: Verified, after: Header) -> None:
    """A segment with another one behind it has to be whole."""
    lost = f"serials from {found.last_serial + 1} on cannot be read; run `once repair`"
    if found.bad is not None:
        raise Corrupt(f"{path} is damaged at byte {found.bad.position}: {found.bad.why}; {lost}")
    if found.last_serial + 1 != after.first_serial:
        raise Corrupt(
            f"{path} ends at byte {found.end} with serial {found.last_serial}, but the next "
            f"segment begins with serial {after.first_serial}; {lost}"
        )
    if found.chain != after.chain:
        raise Corrupt(f"{path} is not the predecessor {after.name} was written after; {lost}")


def must_be_torn(path: str, found: Verified, proven: int) -> None:
    """Only what nobody can have been told of may be cut."""
    assert found.bad is not None
    expected = found.last_serial + 1
    where = f"{path} is damaged at byte {found.bad.position}: {found.bad.why}"
    if found.after is not None:
        raise Corrupt(
            f"{where}; a later frame (serial {found.after.serial}, byte {found.after.position}) "
            f"says it was durable, so this is no torn tail: serials {expected} to "
            f"{max(expected, found.after.serial - 1)} are lost; run `once repair`"
        )
    if expected <= proven:
        raise Corrupt(
            f"{where}; serials {expected} to {proven} are lost, which were durable; "
            "run `once repair`"
        )


def _nonzero(file: File, start: int, end: int) -> Bad | None:
    """Room reserved and not used is zeros; anything else was a frame once."""
    position = start
    while start < end:
        stretch = file.read(start, min(STRETCH_BYTES, end - start))
        if stretch.strip(b"\0"):
            return Bad(position, "bytes that are not a frame follow the last frame")
        start += len(stretch)
    return None


def _proof_after(file: File, position: int, end: int, key: int, expected: int) -> Frame | None:
    """A frame after the bad place whose durable mark says the bad one had been synced.

    Whole frames without such a mark are of the same unsynced group: a power cut may keep the
    later half of a group and lose the earlier. The bad frame's own header may be whole (its
    body is not): it proves nothing by itself, and what lies inside its body is payload.
    """
    start = position
    own = first_frame_after(file, start, min(start + STRETCH_BYTES, end), key, serial_min=0)
    if own is not None and own.position == position and own.serial == expected:
        start = own.end
    while True:
        frame = first_frame_after(file, start, end, key, serial_min=expected)
        if frame is None or frame.durable >= expected:
            return frame
        start = frame.end


def is_blank(file: File, key: int) -> bool:
    """Whether a segment without a valid header holds no frame at all."""
    return first_frame_after(file, 0, file.size(), key, serial_min=0) is None
