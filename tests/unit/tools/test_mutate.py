"""Which tests a mutant meets."""

from pathlib import Path

import msgspec
import pytest

from tools.covering import Covered
from tools.covers import SECONDS_OF_TESTS, Coverage, moved_lines
from tools.mutants import Mutant, mutants_of
from tools.mutate import COPIED, Kept, Verdict

TEXT = """\
LIMIT = 5


def f(a, b):
    return (
        a < b
    )


def g():
    return 7
"""


@pytest.fixture
def mutants(tmp_path: Path) -> dict[int, Mutant]:
    (tmp_path / "module.py").write_text(TEXT)
    return {each.line: each for each in mutants_of(tmp_path / "module.py", tmp_path, syncs=False)}


def coverage(tmp_path: Path, seconds: dict[str, float], lines: dict[int, list[int]]) -> Coverage:
    place = tmp_path / "covered.json"
    place.write_bytes(msgspec.json.encode(Covered(seconds, {"module.py": lines})))
    return Coverage([place])


def test_the_tests_that_run_its_line_the_quickest_first(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    seconds = {"a::slow": 3.0, "a::quick": 0.5, "b::other": 0.1}
    known = coverage(tmp_path, seconds, {6: [0, 1], 11: [2]})
    assert known.tests_of(mutants[6]) == ["a::quick", "a::slow"]


def test_a_line_inside_of_a_statement_is_met_by_those_that_run_the_statement(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    known = coverage(tmp_path, {"a::one": 1.0, "b::two": 1.0}, {5: [1], 11: [0]})
    assert known.tests_of(mutants[6]) == ["b::two"]


def test_a_line_in_a_function_that_nobody_calls_is_unmet(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    known = coverage(tmp_path, {"a::one": 1.0}, {1: [-1], 5: [0]})
    assert known.tests_of(mutants[11]) == []


def test_what_runs_on_loading_is_met_by_the_tests_of_the_file_or_by_all(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    seconds = {"a::one": 1.0, "b::two": 2.0}
    assert coverage(tmp_path, seconds, {1: [-1], 5: [1]}).tests_of(mutants[1]) == ["b::two"]
    assert coverage(tmp_path, seconds, {1: [-1]}).tests_of(mutants[1]) == ["a::one", "b::two"]


def test_what_runs_on_loading_is_met_by_those_that_name_the_module(
    tmp_path: Path, mutants: dict[int, Mutant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").write_text("from module import LIMIT")
    known = coverage(tmp_path, {"a::one": 1.0, "b::two": 2.0}, {1: [-1], 5: [0]})
    assert known.tests_of(mutants[1]) == known.all_of(mutants[1])[::-1] == ["b::two", "a::one"]
    assert known.tests_of(mutants[6]) == ["a::one"]


def test_of_too_many_the_quickest_of_every_file(tmp_path: Path, mutants: dict[int, Mutant]) -> None:
    third = SECONDS_OF_TESTS / 3
    seconds = {"a::1": 0.1, "a::2": third, "a::3": third, "b::1": third, "b::2": 2 * third}
    known = coverage(tmp_path, seconds, {6: [0, 1, 2, 3, 4]})
    assert known.tests_of(mutants[6]) == ["a::1", "b::1", "a::2"]
    only = coverage(tmp_path, {"a::1": 2 * SECONDS_OF_TESTS}, {6: [0]})
    assert only.tests_of(mutants[6]) == ["a::1"]


def test_a_line_is_looked_for_where_it_stands_now() -> None:
    before = ["a", "b", "c", "d", "e"]
    now = ["new", "a", "changed", "c", "e"]
    assert moved_lines(before, now) == {1: 2, 2: 3, 3: 4, 5: 5}


def test_the_last_verdict_of_a_mutant_is_kept(tmp_path: Path, mutants: dict[int, Mutant]) -> None:
    place = tmp_path / "verdicts.txt"
    for word in ("survived", "killed"):
        Kept(place).add(Verdict(mutants[6], word, "a::one", 3))
    assert Kept(place).verdict(mutants[6]) == Verdict(mutants[6], "killed", "a::one", 3)
    assert Kept(place).verdict(mutants[11]) is None


def test_mutants_of_one_line_have_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("a = b == c or c == d\n")
    found = mutants_of(tmp_path / "module.py", tmp_path, syncs=False)
    assert len({each.name for each in found}) == len(found) == 3


def test_trees_have_every_folder_of_modules() -> None:
    """What tests import, and is not there, would look as if they noticed every mutant."""
    folders = {path.parent.name for path in Path.cwd().glob("*/*.py")} - {"build", "dist"}
    assert {"src", *folders} <= set(COPIED)
