# pyright: basic
# pyarrow carries no types.
"""What an archive holds, for those who read it: files by topic, and their rows in order.

Law: rows of a range are all there, each once, in the order of their offsets, or it is an error
that names what is missing.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from oncemq.errors import Corrupt
from oncemq.spark.pipelines import archive_files
from oncemq.spark.pipelines.archive_place import Begun, Place


@dataclass(frozen=True)
class Stocked:
    """A file, and the offsets that are in it or around those in it."""

    path: str
    start: int
    stop: int


@dataclass(frozen=True)
class Stock:
    """What an archive holds of one topic, as of one moment."""

    topic: str
    topic_id: int
    start: int
    stop: int
    files: tuple[Stocked, ...]
    row_bytes: int  # of a message, about, before compression

    def within(self, start: int, stop: int) -> tuple[str, ...]:
        """The files that may have messages of a range."""
        return tuple(each.path for each in self.files if each.start < stop and each.stop > start)


def stock_of(place: Place, topic: str, begun: Begun) -> Stock:
    """What there is of a topic, now."""
    files: list[Stocked] = []
    size = rows = 0
    at = begun.since
    for topic_id, start, file in archive_files.names(place, topic):
        if start != at or topic_id != begun.id:
            raise Corrupt(
                f"{file} does not follow what is before it, up to {at}: `once pipeline check "
                f"{place.path}` says what is wrong"
            )
        rows_here, size_here = measured(file)
        files.append(Stocked(str(file), start, start + rows_here))
        at, rows, size = start + rows_here, rows + rows_here, size + size_here
    return Stock(topic, begun.id, begun.since, at, tuple(files), size // max(rows, 1))


def measured(file: Path) -> tuple[int, int]:
    """How many messages a file has, and how many bytes they are."""
    try:
        made = pq.read_metadata(file)
    except (OSError, ValueError) as error:
        raise Corrupt(f"{file} cannot be read: {error}") from None
    groups = range(made.num_row_groups)
    return made.num_rows, sum(made.row_group(number).total_byte_size for number in groups)


def rows_of(topic: str, files: tuple[str, ...], start: int, stop: int) -> pa.Table:
    """The messages of a range, in order, every one of them."""
    offset = ds.field("offset")
    try:
        found = (
            ds.dataset(list(files), format="parquet")
            .to_table(filter=(offset >= start) & (offset < stop))
            .sort_by("offset")
        )
    except (OSError, ValueError) as error:
        raise Corrupt(f"{topic}@{start} up to @{stop} cannot be read: {error}") from None
    if not found["offset"].combine_chunks().equals(pa.array(range(start, stop), pa.int64())):
        raise Corrupt(
            f"the archive has {found.num_rows} messages of {topic!r} from {start} up to {stop}, "
            f"not each of the {stop - start} once: `once pipeline check` says what is wrong"
        )
    return found
