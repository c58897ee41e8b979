"""Which commit of a sink its checkpoint was published by last: a note in the checkpoint itself.

The server's log may have branches (a backup restored twice, copies served in turn), and on another
one the sink's last number may be that of another batch, or a number may be missing that need not
follow the one before. The server tells that if it is told the mark of the last commit. Spark hands
a sink nothing that outlives a batch, and starts a process for each commit. What lasts as long as
the checkpoint, goes back with it and is copied with it, is a file in it.

Laws: a note is written after its commit and before Spark notes the batch as done; one that cannot
be written fails the batch, which is then run again. A note is kept only where the checkpoint is
known to be in the file system of this machine, by the id of the query in it; else there is none,
and the server is asked to compare nothing.
"""

from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from oncemq.errors import ConfigError
from oncemq.storage.disk import LocalDisk

NAME = "oncemq_sink"


class _Metadata(msgspec.Struct):
    """What Spark writes into each checkpoint."""

    id: str


class _Note(msgspec.Struct):
    """`commit` is the mark that the receipt had."""

    sink: str
    commit: str


class SinkNote:
    """The note of one sink in one checkpoint; nothing, where it has no place."""

    def __init__(self, checkpoint: str, query_id: str, owner: str) -> None:
        directory = _local(checkpoint)
        self._owner = owner
        self._directory = directory if directory and _query_in(directory) == query_id else None

    @property
    def path(self) -> Path | None:
        """Where it is, or would be. Each write within `foreachBatch` has one of its own."""
        mark = sha256(self._owner.encode()).hexdigest()[:16]
        return self._directory / f"{NAME}-{mark}" if self._directory else None

    def read(self) -> str:
        """The mark of the last commit that the checkpoint knows; empty: none."""
        try:
            note = msgspec.json.decode(self.path.read_bytes(), type=_Note) if self.path else None
        except FileNotFoundError:
            return ""
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"the note {self.path} of what was published last is damaged ({error}); remove it "
                "to go on without"
            ) from error
        return note.commit if note and note.sink == self._owner else ""

    def write(self, mark: str) -> None:
        """The checkpoint's batch was published by this commit."""
        if self._directory is None or self.path is None or mark == self.read():
            return
        disk, fresh = LocalDisk(), f"{self.path}.new"
        file = disk.open(fresh, create=True)
        try:
            file.truncate(0)
            file.write([msgspec.json.encode(_Note(self._owner, mark))], 0)
            file.sync()
        finally:
            file.close()
        disk.rename(fresh, str(self.path))
        disk.sync_directory(str(self._directory))


def _local(checkpoint: str) -> Path | None:
    """The checkpoint's directory here, if it may be one."""
    place = urlsplit(checkpoint)
    if place.scheme not in ("", "file") or place.netloc not in ("", "localhost"):
        return None
    path = Path(unquote(place.path) if place.scheme else checkpoint)
    return path if path.is_absolute() else None


def _query_in(directory: Path) -> str:
    """Whose checkpoint it is: a path without a scheme may as well be one of HDFS."""
    try:
        return msgspec.json.decode((directory / "metadata").read_bytes(), type=_Metadata).id
    except (OSError, msgspec.MsgspecError):
        return ""
