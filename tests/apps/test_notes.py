"""The note on disk: read back whole or not at all, written by the current process alone."""

import zlib
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import msgspec
import pytest

from oncemq.apps.attempts import BYTES_MAX, NAME, AttemptNotes
from oncemq.apps.retrying import AttemptNote, Verdict
from oncemq.apps.wording import REASON_CHARACTERS, TRACEBACK_CHARACTERS
from oncemq.client.state.journal import Journal
from oncemq.errors import Fenced, Locked
from oncemq.protocol.names import Epoch

LONG = AttemptNote(42, 7, 1, 6, 2, at_work=True, verdict=Verdict("é" * 999, "t" * 4000, 6, "now"))
SHORT = AttemptNote(43, 8)


def test_a_note_is_read_back_also_when_it_is_shorter_than_the_last(tmp_path: Path) -> None:
    notes = AttemptNotes(tmp_path / "new" / "state", nullcontext)
    assert notes.read() is None
    for note in (LONG, SHORT):
        notes.write(note, sync=True)
        assert notes.read() == note
    notes.close()
    assert AttemptNotes(tmp_path / "new" / "state", nullcontext).read() == SHORT


@pytest.mark.parametrize("damage", [b"", b"\n", b"00000000 {}\n", b"what is this", b"\xff" * 100])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / NAME).write_bytes(damage)
    assert AttemptNotes(tmp_path, nullcontext).read() is None


def test_a_torn_note_is_none(tmp_path: Path) -> None:
    notes = AttemptNotes(tmp_path, nullcontext)
    notes.write(LONG)
    whole = (tmp_path / NAME).read_bytes()
    for size in (1, 9, 100, len(whole) - 2):
        (tmp_path / NAME).write_bytes(whole[:size])
        assert AttemptNotes(tmp_path, nullcontext).read() is None


# ------------------------------------------------------------------ what is written can be read


@pytest.mark.parametrize("character", ["x", "\0", "\\", "\U0001f370"], ids=ascii)
def test_the_longest_verdict_is_read_back(tmp_path: Path, character: str) -> None:
    reason, traceback = character * REASON_CHARACTERS, character * TRACEBACK_CHARACTERS
    largest = (1 << 62) - 1
    verdict = Verdict(reason, traceback, largest, "2026-01-01T00:00:00.000+00:00")
    note = AttemptNote(largest, largest, largest, largest, largest, at_work=True, verdict=verdict)
    notes = AttemptNotes(tmp_path, nullcontext)
    notes.write(note)
    assert notes.read() == note


def too_long() -> AttemptNote:
    return AttemptNote(42, 7, verdict=Verdict("x" * BYTES_MAX, "", 6, "now"))


def test_what_would_not_be_read_is_not_written(tmp_path: Path) -> None:
    notes = AttemptNotes(tmp_path, nullcontext)
    notes.write(SHORT)
    with pytest.raises(ValueError, match="a note has 65536 bytes at most"):
        notes.write(too_long())
    assert notes.read() == SHORT


def test_a_longer_note_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    text = msgspec.json.encode(too_long())
    (tmp_path / NAME).write_bytes(b"%08x %b\n" % (zlib.crc32(text), text))
    notes = AttemptNotes(tmp_path, nullcontext)
    assert notes.read() == too_long()
    notes.write(SHORT)
    assert notes.read() == SHORT


# ------------------------------------------------------------------ who writes it


def test_a_verdict_stands_against_any_note_about_its_message(tmp_path: Path) -> None:
    notes = AttemptNotes(tmp_path, nullcontext)
    notes.write(LONG, sync=True)
    other = AttemptNote(42, 7, verdict=Verdict("another", "", 1, "later"))
    for late in (AttemptNote(42, 7, attempts=3), other):
        assert notes.write(late, sync=True) == LONG
        assert notes.read() == LONG
    for next_one in (
        AttemptNote(42, 8),
        AttemptNote(43, 7),
    ):  # of a topic made anew, and the next message
        assert notes.write(next_one) == next_one
        assert notes.read() == next_one


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[tuple[Journal, Journal]]:
    """Two processes on the state of one client."""
    with closing(Journal(tmp_path, "me")) as older, closing(Journal(tmp_path, "me")) as newer:
        yield older, newer


def test_an_older_process_writes_no_note(tmp_path: Path, journals: tuple[Journal, Journal]) -> None:
    older, newer = (AttemptNotes(tmp_path, each.hold) for each in journals)
    journals[0].granted(Epoch(1), 1)
    with pytest.raises(Fenced):
        newer.write(SHORT)  # it was not let in yet
    older.write(SHORT)
    journals[1].granted(Epoch(2), 2)
    with pytest.raises(Fenced):
        older.write(LONG, sync=True)
    assert newer.read() == SHORT
    newer.write(LONG, sync=True)
    assert newer.read() == LONG


def test_nobody_is_let_in_while_a_note_is_written(
    journals: tuple[Journal, Journal],
) -> None:
    """Else the newer one would read the note, and the older one write its verdict after that."""
    older, newer = journals
    newer._db.execute("PRAGMA busy_timeout = 0")  # type: ignore[attr-defined]
    older.granted(Epoch(1), 1)
    with older.hold(), pytest.raises(Locked):
        newer.granted(Epoch(2), 2)
    newer.granted(Epoch(2), 2)
    with pytest.raises(Fenced), older.hold():
        pytest.fail("it is not the current one")
