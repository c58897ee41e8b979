"""A FORMAT file that is gone or damaged, as far as the segments tell what it said.

Law: only what every segment agrees on is believed. The tag and the generation are in no segment:
whoever writes the file again gives a new tag, and a generation above the one that the log knows.
"""

from oncemq.errors import Corrupt
from oncemq.storage.disk import Disk
from oncemq.storage.repair.forgiving import ForgivingFile
from oncemq.storage.segments.layout import VERSION, Format, read_format
from oncemq.storage.segments.segment import read_header

UNKNOWN_TAG = 0  # no log has it


def find_format(disk: Disk, directory: str) -> tuple[Format, str]:
    """What FORMAT says, or said, and why it cannot be used; raises Corrupt when nobody knows."""
    try:
        found = read_format(disk, directory)
    except (Corrupt, OSError) as error:
        said = error.detail if isinstance(error, Corrupt) else f"it cannot be read: {error}"
        why = said.partition(";")[0].removeprefix(f"{directory}/FORMAT ")
    else:
        if found is not None:
            return found, ""
        why = "it is missing"
    identities = _identities(disk, directory)
    if len(identities) != 1:
        told = "no segment says whose log it is" if not identities else "the segments disagree"
        raise Corrupt(
            f"{directory}/FORMAT: {why}, and {told}: it is not the directory of a log, or what is "
            "left of it is not enough. Restore a backup into another directory: `once restore "
            "BACKUP --data DIR`"
        )
    return Format(VERSION, identities.pop(), UNKNOWN_TAG), why


def _identities(disk: Disk, directory: str) -> set[bytes]:
    """Of every segment whose header holds."""
    if "log" not in disk.names(directory):
        return set()
    found: set[bytes] = set()
    for name in disk.names(f"{directory}/log"):
        if name.endswith((".log", ".cold")):
            file = ForgivingFile(disk.open(f"{directory}/log/{name}"))
            header = read_header(file)
            file.close()
            if header is not None:
                found.add(header.identity)
    return found
