"""How an archive keeps its files: as plain Parquet, or as a Delta table."""

from importlib import util
from typing import Protocol

from oncemq.errors import ConfigError
from oncemq.spark.pipelines.archives.files import ArchivedPiece
from oncemq.spark.pipelines.archives.parquet import ParquetStore
from oncemq.spark.pipelines.archives.place import ArchivePlace, Begun
from oncemq.spark.pipelines.archives.stock import Stock


class Store(Protocol):
    """The files of one archive. Law: what `publish` returned from is visible, durably."""

    def end(self, topic: str, begun: Begun) -> int:
        """The offset after the last that readers see."""
        ...

    def tail(self, topic: str) -> ArchivedPiece | None:
        """The last file of a topic, if it is small: it grows, so that few small ones are left."""
        ...

    def publish(self, pieces: list[ArchivedPiece]) -> None:
        """Let readers see these hidden files, which follow what they see."""
        ...

    def stock(self, topic: str, begun: Begun) -> Stock:
        """What readers see of a topic, now."""
        ...


def store_of(place: ArchivePlace) -> Store:
    """The files of an archive."""
    if place.format == "parquet":
        return ParquetStore(place)
    require_delta()
    from oncemq.spark.pipelines.archives.delta import DeltaStore

    return DeltaStore(place)


def require_delta() -> None:
    """Say what to install when Delta is not there; it is an extra."""
    if util.find_spec("deltalake") is None:
        raise ConfigError("Delta needs delta-rs: pip install 'oncemq[spark,delta]'")
