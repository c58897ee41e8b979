"""Whose log a directory holds: a server's, or the outbox of a client."""

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.outbox_records import OutboxLane, OutboxLost
from oncemq.protocol.records import Marked
from oncemq.storage.disk import Disk
from oncemq.storage.repair.findings import valid_frames
from oncemq.storage.repair.forgiving import ForgivingFile
from oncemq.storage.repair.lost_format import find_format
from oncemq.storage.segments.framing import frame_key

OUTBOX_KINDS = range(OutboxLane.kind, OutboxLost.kind + 1)


def must_be_a_servers(disk: Disk, directory: str) -> None:
    """Refuse an outbox in words: its records are not a server's, and are mended otherwise."""
    names = disk.names(directory)
    if "FORMAT" not in names and "log" not in names:
        editions = [name for name in names if name.isdigit()]
        if editions and all("log" in disk.names(f"{directory}/{name}") for name in editions):
            raise _an_outbox(directory)
        return
    if _first_kind(disk, directory) in OUTBOX_KINDS:
        raise _an_outbox(directory)


def _first_kind(disk: Disk, directory: str) -> int:
    """The kind of the first record that holds, and says whose it is; 0: there is none."""
    try:
        form, _ = find_format(disk, directory)
    except Corrupt:
        return 0
    for name in disk.names(f"{directory}/log") if "log" in disk.names(directory) else ():
        if not name.endswith(".log"):
            continue
        file = ForgivingFile(disk.open(f"{directory}/log/{name}"))
        try:
            for frame in valid_frames(file, 0, frame_key(form.identity)):
                if frame.kind != Marked.kind:  # both have it
                    return frame.kind
        finally:
            file.close()
    return 0


def _an_outbox(directory: str) -> StorageRefused:
    return StorageRefused(
        f"{directory} is of the outbox of a client, and no data directory of a server. If the "
        "client refuses to start on it: `once client repair --id ID --state DIR` (the client's "
        "error says which)"
    )
