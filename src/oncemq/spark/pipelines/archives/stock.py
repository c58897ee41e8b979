# pyright: basic
# pyarrow carries no types.
"""What an archive holds, for those who read it: files by topic, and their rows in order.

Law: rows of a range are all there, each once, in the order of their offsets, or it is an error
that names what is missing.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from oncemq.errors import Corrupt


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


def measured(file: str) -> tuple[int, int]:
    """How many messages a file has, and how many bytes they are."""
    try:
        made = pq.read_metadata(file)
    except (OSError, ValueError) as error:
        raise Corrupt(f"{file} cannot be read: {error}") from None
    groups = range(made.num_row_groups)
    return made.num_rows, sum(made.row_group(number).total_byte_size for number in groups)


def rows_of(topic: str, files: tuple[str, ...], start: int, stop: int) -> pa.Table:
    """The messages of a range, in order, every one of them."""
    if not files:
        raise Corrupt(f"the archive has no file with {topic}@{start} up to @{stop}")
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
