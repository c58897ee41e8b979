"""An archive of plain Parquet files: their names are all there is to know."""

from dataclasses import replace

from oncemq.errors import Corrupt
from oncemq.spark.pipelines.archives import files as archive_files
from oncemq.spark.pipelines.archives.files import FILE_BYTES, ArchivedPiece
from oncemq.spark.pipelines.archives.place import ArchivePlace, Begun, sync_directory
from oncemq.spark.pipelines.archives.stock import Stock, Stocked, measured


class ParquetStore:
    """The files, as `archive_files` names them."""

    def __init__(self, place: ArchivePlace) -> None:
        self._place = place
        self._last: dict[str, ArchivedPiece] = {}

    def end(self, topic: str, begun: Begun) -> int:
        """The offset after the last that readers see."""
        last = archive_files.last_piece(self._place, topic, begun.id)
        if last is None:
            return begun.since
        sync_directory(self._place.room(last.directory))  # its writer may have died before it did
        self._last[topic] = last
        return last.stop

    def tail(self, topic: str) -> ArchivedPiece | None:
        """The last file of a topic, if it is small."""
        last = self._last.get(topic)
        return last if last is not None and last.bytes < FILE_BYTES else None

    def publish(self, pieces: list[ArchivedPiece]) -> None:
        """Let readers see these, in order."""
        grown = {(last.topic_id, last.start) for last in self._last.values()}
        archive_files.publish(self._place, pieces, grown)
        for piece in pieces:
            path = self._place.path / piece.directory / piece.name
            self._last[piece.topic] = replace(piece, path=str(path))

    def stock(self, topic: str, begun: Begun) -> Stock:
        """What readers see of a topic, now."""
        files: list[Stocked] = []
        size = rows = 0
        at = begun.since
        for topic_id, start, file in archive_files.names(self._place, topic):
            if start != at or topic_id != begun.id:
                raise Corrupt(
                    f"{file} does not follow what is before it, up to {at}: `once pipeline check "
                    f"{self._place.path}` says what is wrong"
                )
            rows_here, size_here = measured(str(file))
            files.append(Stocked(str(file), start, start + rows_here))
            at, rows, size = start + rows_here, rows + rows_here, size + size_here
        return Stock(topic, begun.id, begun.since, at, tuple(files), size // max(rows, 1))
