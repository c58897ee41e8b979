"""The note on disk about the message in hand: so that a start knows what the last one died of.

Laws: written before a handler is called (into the system's cache: it outlives the process, and a
power cut is nobody's fault) and synced when a verdict is in it. A verdict stands: no other note
about its message takes its place. Two processes of one app may run at the same time, an older one
that does not know yet that it was replaced: so the note is written while the client's state is
held, which only the current one can (`Fenced`), and read once this process is the current one.
Nothing is written that could not be read. A note that cannot be read is none.
"""

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from oncemq.apps.retrying import AttemptNote
from oncemq.storage.disk import LocalDisk

NAME = "in_hand"
BYTES_MAX = 64 << 10  # of a note; earlier versions wrote longer ones, which are read as well

Hold = Callable[[], AbstractContextManager[None]]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AttemptNote)


class AttemptNotes:
    """The note of one handler, in the state directory of its client.

    `hold` keeps other processes of the client from being let in meanwhile, and raises Fenced when
    one was.
    """

    def __init__(self, directory: Path, hold: Hold) -> None:
        disk = LocalDisk()
        if not directory.is_dir():
            disk.make_directory(str(directory))
        self._hold = hold
        self._file = disk.open(str(directory / NAME), create=True)
        disk.sync_directory(str(directory))

    def read(self) -> AttemptNote | None:
        """What the last start left; to be asked once this start is the current one."""
        head = self._file.read(0, BYTES_MAX)
        if b"\n" not in head and len(head) == BYTES_MAX:
            head = self._file.read(0, self._file.size())
        line, end, _ = head.partition(b"\n")
        checksum, _, text = line.partition(b" ")
        if not end or checksum != _checksum(text):
            return None
        try:
            return _decoder.decode(text)
        except msgspec.DecodeError:  # of another version
            return None

    def write(self, note: AttemptNote, *, sync: bool = False) -> AttemptNote:
        """Replace it, unless a verdict on the same message is there; the note that is there now."""
        text = _encoder.encode(note)
        line = b"%b %b\n" % (_checksum(text), text)
        if len(line) > BYTES_MAX:
            raise ValueError(f"a note has {BYTES_MAX} bytes at most, this one {len(line)}")
        with self._hold():
            there = self.read()
            if there is not None and there.verdict and there.is_about(note.offset, note.timestamp):
                note = there
            else:
                self._file.write([line], 0)
            if sync:
                self._file.sync()
        return note

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
