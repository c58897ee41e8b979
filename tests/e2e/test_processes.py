"""The tests' own processes: what a kill tears of their notes is no note."""

from pathlib import Path

from tests.e2e.processes import read_notes
from tests.e2e.roles import Notes


def test_a_note_that_a_kill_tore_is_none_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.notes"
    facts = [["about", "orders", 1, 2], ["got", "orders", 3, 'with "]" inside']]
    Notes(str(path)).write(*facts)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(first, len(whole) + 1):
        path.write_bytes(whole[:size])
        seen = facts if size == len(whole) else facts[:1]
        assert read_notes(path) == seen
        later = Notes(str(path))
        assert read_notes(path) == seen
        later.write(["start"])
        assert read_notes(path) == [*seen, ["start"]]
    assert read_notes(tmp_path / "none.notes") == []
