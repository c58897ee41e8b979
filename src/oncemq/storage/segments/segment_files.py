"""The segment files of a log, sorted out: which are there, which are leftovers.

Laws: a cold segment whose header holds is whole, so its sources are leftovers. A log segment
at the end without a valid header was never begun, provided no frame is in it.
"""

from dataclasses import dataclass, field

from oncemq.errors import Corrupt
from oncemq.storage.disk import Disk, File
from oncemq.storage.segments.end import NAME as END
from oncemq.storage.segments.framing import Bad, frame_key
from oncemq.storage.segments.index import BlockCache, read_index
from oncemq.storage.segments.layout import save_copy
from oncemq.storage.segments.segment import (
    COLD,
    Header,
    Segment,
    index_path,
    log_name,
    read_header,
    remove_segment,
    save_index,
    scan_cold,
)
from oncemq.storage.segments.verify import Verified, is_blank, verify


@dataclass(slots=True)
class SegmentFiles:
    """The headers of the segments, each kind in the order of serials."""

    cold: list[Header] = field(default_factory=list[Header])
    log: list[Header] = field(default_factory=list[Header])
    removed: list[str] = field(default_factory=list[str])


def load_shelf(disk: Disk, directory: str, identity: bytes, begun: int) -> SegmentFiles:
    """Look at every segment's header; remove leftovers of compactions and of rolls.

    `begun`: the first serial of the newest segment that is known to have been begun.
    """
    folder = f"{directory}/log"
    shelf = SegmentFiles()
    names = disk.names(folder)
    replaced: set[str] = set()
    for name in names:
        if name.endswith(".cold"):
            header = _header(disk, folder, name, identity)
            if header is None:
                raise Corrupt(f"{folder}/{name}: the header does not hold; run `once repair`")
            shelf.cold.append(header)
            replaced.update(header.sources)
    shelf.cold = [header for header in shelf.cold if header.name not in replaced]
    if not replaced.isdisjoint(names):
        disk.sync_directory(folder)  # after a kill the cold one's own name may not be durable yet
    for name in sorted(replaced.intersection(names)):
        remove_segment(disk, f"{folder}/{name}")
        shelf.removed.append(name)
    logs = [name for name in names if name.endswith(".log") and name not in replaced]
    while len(logs) > 1 and _header(disk, folder, logs[-1], identity) is None:
        if int(logs[-1][:20]) <= begun:
            break
        _drop_blank(disk, directory, logs[-1], identity)
        shelf.removed.append(logs.pop())
    for name in logs:
        header = _header(disk, folder, name, identity)
        if header is None:
            raise Corrupt(f"{folder}/{name}: the header does not hold; run `once repair`")
        shelf.log.append(header)
    if not shelf.log:
        raise Corrupt(f"{folder} holds no log segment; restore it from a backup")
    if shelf.log[-1].first_serial < begun:
        raise Corrupt(
            f"{folder}: the segment that begins with serial {begun} is missing; "
            f"{directory}/{END} says that it was begun: run `once repair`"
        )
    _drop_orphans(disk, folder, shelf, replaced)
    return shelf


def orphans(names: list[str], replaced: set[str]) -> list[str]:
    """Indexes of log segments that are missing: nothing of ours leaves an index alone."""
    return [
        name
        for name in names
        if name.endswith(".idx")
        and "-" not in name  # of a cold segment: written before it, a crash may leave it alone
        and log_name(int(name[:20])) not in replaced.union(names)
    ]


def _header(disk: Disk, folder: str, name: str, identity: bytes) -> Header | None:
    file = disk.open(f"{folder}/{name}")
    try:
        header = read_header(file)
    finally:
        file.close()
    if header is not None and header.identity != identity:
        raise Corrupt(f"{folder}/{name} belongs to another log; take it away")
    if header is not None and header.name != name:
        raise Corrupt(f"{folder}/{name} says it is {header.name}; give it back its name")
    return header


def _drop_blank(disk: Disk, directory: str, name: str, identity: bytes) -> None:
    """A segment the log was about to go on in: remove it, keeping a copy if it is not zeros.

    Should a power cut bring it back, it is removed again; the opening syncs the directory before
    the log goes on, so it never stands before a segment that was begun.
    """
    path = f"{directory}/log/{name}"
    file = disk.open(path)
    try:
        if not is_blank(file, frame_key(identity)):
            raise Corrupt(
                f"{path} is damaged at byte 0: the header does not hold but records follow; "
                f"serials from {int(name[:20])} on cannot be trusted: run `once repair`"
            )
        if file.read(0, file.size()).strip(b"\0"):
            save_copy(disk, file, 0, f"{directory}/torn/{name}-0.torn")
    finally:
        file.close()
    remove_segment(disk, path)


def _drop_orphans(disk: Disk, folder: str, shelf: SegmentFiles, replaced: set[str]) -> None:
    """Indexes whose segment is gone, as it should be."""
    names = disk.names(folder)
    for name in orphans(names, replaced):
        segment = log_name(int(name[:20]))
        raise Corrupt(
            f"{folder}/{segment} is missing, its index {name} is there. Put it back from a "
            "backup, or run `once repair`"
        )
    known = {index_path(header.name) for header in (*shelf.cold, *shelf.log)}
    for name in names:
        if name.endswith(".idx") and name not in known:
            disk.remove(f"{folder}/{name}")
            shelf.removed.append(name)


def load_covered(disk: Disk, directory: str, header: Header, cache: BlockCache) -> Segment:
    """A segment the checkpoints cover: trusted through its index, or read through for a new one."""
    path = f"{directory}/log/{header.name}"
    found = read_index(
        disk,
        index_path(path),
        cache,
        identity=header.identity,
        fingerprint=header.fingerprint,
    )
    file = disk.open(path)
    try:
        size = file.size()
        if found is not None and found[1].end == size:
            index, covered = found
            return Segment(
                path, header, index, size, covered.last_serial, covered.chain, size, size
            )
        made = make_index(file, header, path)
    finally:
        file.close()
    segment = Segment(path, header, made.index, made.end, made.last_serial, made.chain, size)
    segment.visible = made.end
    segment.index = save_index(disk, segment, cache) or segment.index
    return segment


def make_index(file: File, header: Header, path: str) -> Verified:
    """The index of a sealed segment made again from its frames, each of them verified."""
    key = frame_key(header.identity)
    if header.form == COLD:
        index = scan_cold(file, header, key)
        made = Verified(header.last_serial, 0, header.file_bytes)
        if isinstance(index, Bad):
            made.bad = index
        else:
            made.index = index
    else:
        made = verify(file, header, key)
    if made.bad is not None:
        raise Corrupt(
            f"{path} is damaged at byte {made.bad.position}: {made.bad.why}; run `once repair`"
        )
    return made
