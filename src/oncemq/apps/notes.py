"""The note on disk about the message in hand: so that a start knows what the last one died of.

Law: written before a handler is called (into the system's cache: it outlives the process, and a
power cut is nobody's fault) and synced when a verdict is in it, which must not change any more.
A note that cannot be read is none.
"""

import zlib
from pathlib import Path

import msgspec

from oncemq.apps.retrying import Note
from oncemq.storage.disk import LocalDisk

NAME = "in_hand"
BYTES_MAX = 64 << 10

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Note)


class Notes:
    """The note of one handler, in the state directory of its client."""

    def __init__(self, directory: Path) -> None:
        disk = LocalDisk()
        if not directory.is_dir():
            disk.make_directory(str(directory))
        self._file = disk.open(str(directory / NAME), create=True)
        disk.sync_directory(str(directory))

    def read(self) -> Note | None:
        """What the last start left."""
        line, end, _ = self._file.read(0, BYTES_MAX).partition(b"\n")
        checksum, _, text = line.partition(b" ")
        if not end or checksum != _checksum(text):
            return None
        try:
            return _decoder.decode(text)
        except msgspec.DecodeError:  # of another version
            return None

    def write(self, note: Note, *, sync: bool = False) -> None:
        """Replace it."""
        text = _encoder.encode(note)
        self._file.write([_checksum(text), b" ", text, b"\n"], 0)
        if sync:
            self._file.sync()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
