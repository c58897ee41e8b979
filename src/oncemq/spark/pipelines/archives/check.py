# pyright: basic
# pyarrow carries no types.
"""Is an archive whole: every file can be read, offsets are dense, nothing is there twice.

Reads every byte of every file (pages carry checksums), without a server and without Spark.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oncemq.errors import OnceMQError
from oncemq.spark.pipelines.archives import files as archive_files
from oncemq.spark.pipelines.archives.files import ArchivedPiece
from oncemq.spark.pipelines.archives.place import ArchivePlace, Begun, find
from oncemq.spark.pipelines.archives.stock import rows_of
from oncemq.spark.pipelines.archives.store import store_of
from oncemq.spark.pipelines.archives.tasks import COLUMNS, by_day

BATCH_ROWS = 65_536


@dataclass
class Checked:
    """What an archive holds, and what is wrong with it."""

    messages: int = 0
    files: int = 0
    bytes: int = 0
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)  # first offset, end
    findings: list[str] = field(default_factory=list)


def check(path: str | Path, progress: Callable[[int], None] = lambda _: None) -> Checked:
    """Look at all of an archive; ConfigError when there is none."""
    place = find(str(path))
    checked = Checked()
    if place.format == "delta":
        for name, begun in sorted(place.topics().items()):
            _check_table(place, name, begun, checked, progress)
        return checked
    for name, begun in sorted(place.topics().items()):
        _check_topic(place, name, begun, checked, progress)
    known = {archive_files.directory_of(name) for name in place.topics()}
    for directory in sorted(place.path.glob("topic=*")):
        if directory.name not in known:
            checked.findings.append(f"{directory} is of no topic of this archive")
    return checked


def _check_topic(
    place: ArchivePlace, name: str, begun: Begun, checked: Checked, progress: Callable[[int], None]
) -> None:
    at = begun.since
    try:
        for topic_id, start, file in archive_files.names(place, name):
            if topic_id != begun.id:
                checked.findings.append(f"{file} is of another topic that had this name")
                continue
            if start != at:
                what = "are missing" if start > at else "are there twice"
                checked.findings.append(
                    f"{name}: offsets {min(at, start)} up to {max(at, start)} {what}"
                )
            piece = archive_files.piece_at(name, topic_id, start, file)
            checked.findings += _faults(piece)
            checked.messages += piece.rows
            checked.files += 1
            checked.bytes += piece.bytes
            at = piece.stop
            progress(checked.messages)
    except OnceMQError as error:
        checked.findings.append(error.detail)
    checked.topics[name] = begun.since, at


def _check_table(
    place: ArchivePlace, name: str, begun: Begun, checked: Checked, progress: Callable[[int], None]
) -> None:
    """Of a Delta table: the messages that its log names, window by window."""
    try:
        stock = store_of(place).stock(name, begun)
    except OnceMQError as error:
        checked.findings.append(error.detail)
        return
    checked.files += len(stock.files)
    checked.bytes += sum(Path(each.path).stat().st_size for each in stock.files)
    checked.topics[name] = stock.start, stock.stop
    for start in range(stock.start, stock.stop, BATCH_ROWS):
        stop = min(start + BATCH_ROWS, stock.stop)
        try:
            checked.messages += rows_of(name, stock.within(start, stop), start, stop).num_rows
        except OnceMQError as error:
            checked.findings.append(error.detail)
        progress(checked.messages)
    if beyond := [each for each in stock.files if each.stop > stock.stop]:
        checked.findings.append(f"{beyond[0].path} goes beyond {stock.stop}, where {name} ends")


def _faults(piece: ArchivedPiece) -> Iterator[str]:
    """What is wrong inside one file."""
    at = piece.start
    try:
        with pq.ParquetFile(piece.path, page_checksum_verification=True) as file:
            if tuple(file.schema_arrow.names) != COLUMNS:
                yield f"{piece.path} has the columns {', '.join(file.schema_arrow.names)}"
                return
            for rows in file.iter_batches(BATCH_ROWS):
                expected = pa.array(range(at, at + rows.num_rows), pa.int64())
                if not rows.column("offset").equals(expected):
                    yield f"{piece.path}: the offsets from {at} on are not {at}, {at + 1} …"
                    return
                if any(day != piece.day for day, _ in by_day(rows)):
                    yield f"{piece.path} has messages of another day"
                    return
                at += rows.num_rows
    except (OSError, ValueError) as error:
        yield f"{piece.path} cannot be read: {error}"
