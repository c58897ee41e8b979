"""Reading a file of which parts cannot be read: for those who look at damage.

Law: an unreadable block reads as zeros and is remembered, so that nobody takes it for sound.
"""

from collections.abc import Sequence

from oncemq.storage.disk import Buffer, DiskView, File

BLOCK_BYTES = 4096  # what a disk fails to give, at least


class ForgivingFile:
    """A file whose `read` never raises; everything else is the file's own."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.trouble: OSError | None = None  # the first that a read met

    def read(self, position: int, size: int) -> bytes:
        """As the file's, with zeros for what the disk does not give."""
        try:
            return self._file.read(position, size)
        except OSError as error:
            self.trouble = self.trouble or error
        end = min(position + size, self.size())
        pieces: list[bytes] = []
        while position < end:
            stop = min(end, position - position % BLOCK_BYTES + BLOCK_BYTES)
            try:
                pieces.append(self._file.read(position, stop - position))
            except OSError:
                pieces.append(bytes(stop - position))
            position = stop
        return b"".join(pieces)

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._file.write(buffers, position)

    def sync(self) -> None:
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class ForgivingDisk(DiskView):
    """A disk whose files are read so; everything else is the disk's own."""

    def open(self, path: str, create: bool = False) -> ForgivingFile:
        return ForgivingFile(self._disk.open(path, create))
