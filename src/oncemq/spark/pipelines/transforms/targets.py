# pyright: basic
# pyspark's writers and py4j are typed loosely.
"""Where a transform writes: each micro-batch once, whatever is run again.

A topic remembers the batches of a sink (see `publishing`). In a directory of Parquet a batch is
a directory, `batch=12`, which becomes visible by one rename of a whole and synced one; one that
is there stays as it is. Law: what a directory holds came from one query; another query,
which a checkpoint that was deleted or copied makes, is refused.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, is_remote

from oncemq.errors import ConfigError, StorageRefused
from oncemq.spark.pipelines.archives.place import sync_directory, sync_file
from oncemq.spark.sink.publishing import CheckpointMisfit

HOME, PENDING, QUERY = "_oncemq", "_oncemq/pending", "_oncemq/query"
BATCH = "batch"

Write = Callable[[DataFrame, int], None]


def whole_path(path: str) -> str:
    """A path as every process of Spark understands it, wherever each was started."""
    return path.rstrip("/") if "://" in path else str(Path(path).absolute())


def to_topic(server: str, timeout: float, options: dict[str, str]) -> Write:
    """A batch write for each micro-batch, for modes that the stream's own sink does not take."""

    def write(batch: DataFrame, number: int) -> None:
        out = batch.write.format("oncemq").mode("append")
        out.options(server=server, timeout=str(timeout), **options).save()

    return write


class Directory:
    """A directory of Parquet, on any file system of Hadoop's on which a rename is one step."""

    def __init__(self, spark: SparkSession, path: str, partition_by: Sequence[str]) -> None:
        if is_remote():
            raise ConfigError(
                "target.path needs a Spark whose driver is this process; over Spark Connect name a "
                "topic or a table"
            )
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        self._path, self._partition_by = whole_path(path), partition_by
        root = self._place("")
        hadoop: Any = context._jsc
        self._files = root.getFileSystem(hadoop.hadoopConfiguration())
        local = root.toUri().getPath() if self._files.getScheme() == "file" else None
        self._local = Path(local).absolute() if local else None

    def check_columns(self, frame: DataFrame) -> None:
        """Refuse what cannot be laid out there."""
        if BATCH in frame.columns:
            raise ConfigError(f"target: {BATCH!r} is the column of the batches; name yours another")
        for name in self._partition_by:
            if name not in frame.columns:
                have = ", ".join(frame.columns)
                raise ConfigError(f"target.partition_by: there is no column {name!r}, but {have}")

    def claim(self, query_id: str) -> None:
        """From now on it is this query's; CheckpointMisfit when it is another's."""
        mark = self._place(QUERY)
        if not self._files.exists(mark):
            if self._has_batches():
                raise ConfigError(
                    f"target.path: {self._path} has batches, and nothing says whose: name another"
                )
            out = self._files.create(mark, False)
            out.writeBytes(query_id)
            out.close()
            return
        stream = self._files.open(mark)
        owner = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        stream.close()
        if owner != query_id:
            raise CheckpointMisfit(
                f"{self._path} was written by query {owner}, and this is {query_id}: the "
                "checkpoint was deleted and made anew, or another pipeline writes there. Nothing "
                "was written. Go on with the checkpoint that wrote it; or, to write everything "
                "anew and knowingly, name another path"
            )

    def write(self, batch: DataFrame, number: int) -> None:
        """Make a batch visible, unless it is."""
        pending, final = self._place(PENDING), self._place(f"{BATCH}={number}")
        out = batch.write.mode("overwrite").partitionBy(*self._partition_by)
        out.parquet(f"{self._path}/{PENDING}")
        if self._files.exists(final):
            # It had to be computed all the same: Spark's state stands for the rows it has made.
            self._files.delete(pending, True)
            return
        self._sync(PENDING)
        if not self._files.rename(pending, final):
            raise StorageRefused(f"{self._path}: batch {number} could not be renamed into place")
        if self._local is not None:
            sync_directory(self._local)

    def _has_batches(self) -> bool:
        found = self._files.globStatus(self._place(f"{BATCH}=*"))
        return found is not None and len(found) > 0

    def _sync(self, below: str) -> None:
        """What was written is on the disk; of other file systems that is their own affair."""
        if self._local is None:
            return
        root = self._local / below
        for each in sorted(root.rglob("*"), reverse=True):
            sync_directory(each) if each.is_dir() else sync_file(each)
        sync_directory(root)

    def _place(self, below: str) -> Any:
        path = f"{self._path}/{below}" if below else self._path
        return self._jvm.org.apache.hadoop.fs.Path(path)
