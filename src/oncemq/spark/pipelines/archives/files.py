# pyright: basic
# pyarrow carries no types.
"""The files of an archive: their names say what they hold, and the names are the truth.

    topic=orders/day=2026-01-31/0000000700000001-00000000000000000042.parquet

is of the topic `orders` with the identity 0x700000001, of that day (UTC, as the server stored
it), and begins at offset 42; how far it goes is how many rows it has, for offsets are dense.
Laws: files of a topic follow each other without gap or overlap; a file becomes visible, or
larger, by one rename of a whole and synced file; they become so in the order of their offsets,
so that whoever reads at any moment, or after any crash, sees a beginning of the topic: each
message of it once.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from oncemq.errors import ConfigError, Corrupt, Fenced
from oncemq.protocol.names import NAME_BYTES_MAX
from oncemq.spark.pipelines.archives.place import ArchivePlace, sync_directory

FILE_BYTES = 64 << 20  # a file that is smaller, the last of its topic, grows with what comes
UNSAFE = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{}\[\]^]')  # in the names of Hive's directories
NAME = re.compile(r"([0-9a-f]{16})-([0-9]{20})\.parquet")
DIRECTORY_BYTES_MAX = 255


@dataclass(frozen=True)
class ArchivedPiece:
    """Consecutive messages of one topic and one day, in a file."""

    topic: str
    topic_id: int
    day: str
    start: int
    rows: int
    bytes: int
    path: str  # hidden, or where readers see it

    @property
    def stop(self) -> int:
        """The offset after the last."""
        return self.start + self.rows

    @property
    def directory(self) -> str:
        """Where readers see it, below the archive's path."""
        return f"{directory_of(self.topic)}/day={self.day}"

    @property
    def name(self) -> str:
        """How readers see it there."""
        return f"{self.topic_id:016x}-{self.start:020d}.parquet"


def directory_of(topic: str) -> str:
    """The directory of a topic, named as Hive and Spark name partitions."""
    name = "topic=" + UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", topic)
    if len(name.encode()) > DIRECTORY_BYTES_MAX:
        raise ConfigError(
            f"the name of topic {topic[:40]!r}… is too long for a directory: "
            f"{len(name.encode())} bytes with 'topic=', {DIRECTORY_BYTES_MAX} at most"
        )
    assert len(topic.encode()) <= NAME_BYTES_MAX
    return name


def names(place: ArchivePlace, topic: str) -> list[tuple[int, int, Path]]:
    """Identity, first offset and place of each file of a topic, in the order of its offsets."""
    found: list[tuple[int, int, Path]] = []
    for file in (place.path / directory_of(topic)).glob("day=*/*.parquet"):
        said = NAME.fullmatch(file.name)
        if said is None:
            raise Corrupt(f"{file} is not a file of this archive: take it away")
        found.append((int(said[1], 16), int(said[2]), file))
    return sorted(found, key=lambda each: each[1])


def piece_at(topic: str, topic_id: int, start: int, file: Path) -> ArchivedPiece:
    """A file that readers see; its footer is read."""
    day = file.parent.name.removeprefix("day=")
    rows = rows_of(file)
    return ArchivedPiece(topic, topic_id, day, start, rows, file.stat().st_size, str(file))


def last_piece(place: ArchivePlace, topic: str, topic_id: int) -> ArchivedPiece | None:
    """The last file of a topic; None when it has none."""
    found = names(place, topic)
    if not found:
        return None
    stranger = next((each for each in found if each[0] != topic_id), None)
    if stranger is not None:
        raise Corrupt(f"{stranger[2]} is of another topic that had the name {topic!r}")
    return piece_at(topic, topic_id, *found[-1][1:])


def rows_of(file: Path) -> int:
    """How many messages a file has; Corrupt when it is none of ours."""
    try:
        return pq.read_metadata(file).num_rows
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Corrupt(
            f"{file} cannot be read: {error}. `once pipeline check` looks at all files"
        ) from None


def publish(place: ArchivePlace, pieces: list[ArchivedPiece], grown: set[tuple[int, int]]) -> None:
    """Let readers see these files, in order; those that `grown` names replace a smaller one.

    A directory is synced before the next one is changed, so that a crash of the machine leaves
    no gap either.
    """
    before: Path | None = None
    for piece in sorted(pieces, key=lambda each: (each.topic, each.start)):
        directory = place.room(piece.directory)
        if before not in (None, directory):
            sync_directory(before)
        target = directory / piece.name
        if target.exists() and (piece.topic_id, piece.start) not in grown:
            raise Fenced(
                f"{target} appeared while it was written: another process archives here, or the "
                "archive was copied while it was written. Start again when one is left"
            )
        Path(piece.path).replace(target)
        before = directory
    if before is not None:
        sync_directory(before)
