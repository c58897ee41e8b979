"""The note on disk: read back whole, or not at all."""

from pathlib import Path

import pytest

from oncemq.apps.notes import NAME, Notes
from oncemq.apps.retrying import Note, Verdict

LONG = Note(42, 7, 1, 6, 2, at_work=True, verdict=Verdict("é" * 999, "t" * 4000, 6, "now"))
SHORT = Note(43, 8)


def test_a_note_is_read_back_also_when_it_is_shorter_than_the_last(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "new" / "state")
    assert notes.read() is None
    for note in (LONG, SHORT):
        notes.write(note, sync=True)
        assert notes.read() == note
    notes.close()
    assert Notes(tmp_path / "new" / "state").read() == SHORT


@pytest.mark.parametrize("damage", [b"", b"\n", b"00000000 {}\n", b"what is this", b"\xff" * 100])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / NAME).write_bytes(damage)
    assert Notes(tmp_path).read() is None


def test_a_torn_note_is_none(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.write(LONG)
    whole = (tmp_path / NAME).read_bytes()
    for size in (1, 9, 100, len(whole) - 2):
        (tmp_path / NAME).write_bytes(whole[:size])
        assert Notes(tmp_path).read() is None
