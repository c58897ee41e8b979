"""Lines of a stream, gathered into batches for `put --lines`.

Law: every byte between two newlines is one payload, untouched; a last line without a newline
counts. A batch goes out when it is full, or when reading on would block: a slow pipe is put
line by line, a fast one in large batches.
"""

import os
import select
import stat
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from oncemq.cli.terminal import output
from oncemq.errors import InvalidRequest

LINES_MAX = 5000
BYTES_MAX = 1 << 20
READ_BYTES = 1 << 18
PAYLOAD_BYTES_MAX = 1 << 30  # a bound on memory; the server's own limit is far below


class Lines(msgspec.Struct, frozen=True):
    """A batch of lines. `first` is the number of its first line, from 1."""

    first: int
    payloads: list[bytes]
    position: int  # bytes of the stream read so far


class LineSource:
    """A stream that may be a file, a pipe, a terminal, or a fake without a descriptor."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        try:
            self._descriptor: int | None = stream.fileno()
        except OSError:
            self._descriptor = None
        self.position = 0

    @property
    def size(self) -> int | None:
        """How many bytes it has in all, if it is a file."""
        if self._descriptor is None:
            return None
        found = os.fstat(self._descriptor)
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self) -> bytes:
        """The next bytes, as many as there are; empty at the end."""
        if self._descriptor is None:
            some = self._stream.read(READ_BYTES)
        else:
            some = os.read(self._descriptor, READ_BYTES)
        self.position += len(some)
        return some

    def ready(self) -> bool:
        """Whether `read` would return at once."""
        if self._descriptor is None:
            return True
        return bool(select.select([self._descriptor], [], [], 0)[0])


def batches(source: LineSource) -> Iterator[Lines]:
    """The lines of `source`, in order."""
    first = 1
    for payloads in _gathered(source):
        for start in range(0, len(payloads), LINES_MAX):
            some = payloads[start : start + LINES_MAX]
            yield Lines(first, some, source.position)
            first += len(some)


def _gathered(source: LineSource) -> Iterator[list[bytes]]:
    """Lines as they come, cut where a batch is full or the stream has no more for now."""
    payloads: list[bytes] = []
    begun: list[bytes] = []  # the pieces of a line that has not ended
    size = begun_bytes = 0
    while some := source.read():
        head, *rest = some.split(b"\n")
        begun.append(head)
        begun_bytes += len(head)
        check_size(begun_bytes)
        if rest:
            payloads += [b"".join(begun), *rest[:-1]]
            begun, begun_bytes = [rest[-1]], len(rest[-1])
        size += len(some)
        full = size >= BYTES_MAX or len(payloads) >= LINES_MAX
        if payloads and (full or not source.ready()):
            yield payloads
            payloads, size = [], 0
    if begun_bytes:
        payloads.append(b"".join(begun))
    if payloads:
        yield payloads


def whole(source: LineSource) -> bytes:
    """Everything, as one payload."""
    pieces: list[bytes] = []
    while some := source.read():
        pieces.append(some)
        check_size(source.position)
    return b"".join(pieces)


def check_size(size: int) -> None:
    """Refuse what no server takes, before it fills the memory."""
    if size > PAYLOAD_BYTES_MAX:
        limit = output.about(PAYLOAD_BYTES_MAX)
        raise InvalidRequest(
            f"one message of more than {limit}; put a file by its lines, or cut it"
        )
