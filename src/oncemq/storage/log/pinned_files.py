"""The files that another replica begins with: a log as it is at one moment, while it goes on.

They are the newest checkpoint, the cold and the sealed segments, and what is finished of the
segment in use. All of them are open: compaction may replace them meanwhile, and what is open can be
read to its end. Nothing on the disk remembers that, so a crash leaves nothing to clean up; the room
of what was replaced is free again when the files are released.

Law: the segments go at least as far as the checkpoint, and hold every record behind its beginning.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from oncemq.errors import Corrupt
from oncemq.storage.disk import Disk, File
from oncemq.storage.log.checkpoint import CheckpointFile, checkpoint_in
from oncemq.storage.segments.framing import Bad, frame_key
from oncemq.storage.segments.layout import Format
from oncemq.storage.segments.segment import LOG, Segment, read_header, scan_cold
from oncemq.storage.segments.verify import verify


class PinnedFile(msgspec.Struct, frozen=True):
    """One file of a log: its first `size` bytes are `folder`/`name` of the replica to come."""

    folder: str
    name: str
    size: int


class PinnedFiles:
    """The files of one moment, held open. Made and released by the loop; any thread may read.

    They are not released while a thread reads.
    """

    def __init__(self, form: Format) -> None:
        self.form = form  # whose log it is
        self.files: list[PinnedFile] = []
        self._by_name: dict[str, PinnedFile] = {}
        self._open: dict[str, File] = {}
        self._stack = ExitStack()

    @property
    def size(self) -> int:
        """Of all files."""
        return sum(each.size for each in self.files)

    def add(self, disk: Disk, folder: str, path: str, size: int) -> None:
        """Hold a file that is there."""
        name = path.rpartition("/")[2]
        self._open[name] = disk.open(path)
        self._stack.callback(self._open[name].close)
        self._by_name[name] = PinnedFile(folder, name, size)
        self.files.append(self._by_name[name])

    def find(self, name: str) -> PinnedFile | None:
        """The file of a name, if it is one of these."""
        return self._by_name.get(name)

    def read(self, name: str, position: int, size: int) -> bytes:
        """Some of a file; fewer bytes at its end."""
        pinned = self._by_name[name]
        return self._open[name].read(position, max(0, min(size, pinned.size - position)))

    def check(self, name: str) -> None:
        """Corrupt, unless every frame of a segment, or all of a checkpoint, holds.

        That takes far longer than to read it: it is for who has a reason to doubt it.
        """
        pinned, file = self._by_name[name], self._open[name]
        if pinned.folder == "checkpoints":
            data = file.read(0, pinned.size)
            if checkpoint_in(data, name, self.form.identity) is None:
                raise Corrupt(f"the checkpoint {name} does not hold")
            return
        header = read_header(file)
        if header is None:
            raise Corrupt(f"{name}: the header does not hold")
        key = frame_key(self.form.identity)
        if header.form == LOG:
            bad = verify(file, header, key).bad
        else:
            index = scan_cold(file, header, key)
            bad = index if isinstance(index, Bad) else None
        if bad is not None and bad.position < pinned.size:  # what is behind is being written
            raise Corrupt(f"{name} is damaged at byte {bad.position}: {bad.why}")

    def release(self) -> None:
        """They are not needed any more."""
        self._stack.close()


def pin(
    disk: Disk, form: Format, checkpoint: CheckpointFile | None, segments: Sequence[Segment]
) -> PinnedFiles:
    """Hold the files of a log as it is now: loop thread."""
    pinned = PinnedFiles(form)
    try:
        if checkpoint is not None:
            pinned.add(disk, "checkpoints", checkpoint.path, checkpoint.size)
        for segment in segments:
            size = segment.visible if segment.header.form == LOG else segment.end
            if size > segment.header.size or segment.first_serial == 1:
                pinned.add(disk, "log", segment.path, size)
    except BaseException:
        pinned.release()
        raise
    return pinned
