"""Which tests a mutant meets."""

from pathlib import Path

import msgspec
import pytest

from tools import covering
from tools.covering import Covered
from tools.covers import SECONDS_OF_TESTS, SLOW, WORLDS, Coverage, moved_lines
from tools.mutants import Mutant, mutants_of
from tools.mutate import COPIED, Kept, Trees, Verdict, judge, named
from tools.stages import (
    CERTAIN,
    IN_PROCESSES,
    IN_PROCESSES_ELSE,
    SECONDS_OF_OTHERS,
    Stage,
    after,
    is_certain,
    stages_of,
)

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


def coverage(
    tmp_path: Path,
    seconds: dict[str, float],
    lines: dict[int, list[int]],
    slow: tuple[str, ...] = (),
) -> Coverage:
    place = tmp_path / "covered.json"
    place.write_bytes(msgspec.json.encode(Covered(seconds, {"module.py": lines}, set(slow))))
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


def test_the_clock_of_tests_stands_still_while_others_have_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(covering, "WAITED", tmp_path / "schedstat")
    monkeypatch.setattr(covering, "perf_counter", lambda: 9.0)
    assert covering.seconds_at_rest() == 9.0  # where the system does not tell
    (tmp_path / "schedstat").write_text("5000 2500000000 7\n")
    assert covering.seconds_at_rest() == 6.5


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


# ------------------------------------------------------------------ the stages of a survivor


def test_a_survivor_meets_the_others_then_the_worlds_then_slow_ones_then_processes(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    seconds = {"a::1": 0.1, "a::long": 6.0, WORLDS: 40.0, "c::slow": 3.0, "d::slow": 0.2}
    known = coverage(tmp_path, seconds, {6: [0, 1, 2, 3, 4]}, (WORLDS, "c::slow", "d::slow"))
    assert stages_of(known, mutants[6]) == [
        Stage(["a::1"]),
        Stage(["a::long"], are_long=True),
        Stage([WORLDS], are_long=True),
        Stage(["d::slow", "c::slow"], are_long=True),
        Stage(list(IN_PROCESSES_ELSE), are_long=True),
    ]
    assert stages_of(known, mutants[6], only_quick=True) == [Stage(["a::1"])]


def test_the_later_stages_are_bounded_and_the_cheapest_come_first(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    half = SECONDS_OF_OTHERS / 2
    seconds = {"a::1": half + 2, "a::2": half, "a::3": half - 2}
    known = coverage(tmp_path, seconds, {6: [0, 1, 2]})
    others, _ = stages_of(known, mutants[6])
    assert others.tests == ["a::3", "a::2"]
    alone, _ = stages_of(coverage(tmp_path, {"a::1": 3 * half}, {6: [0]}), mutants[6])
    assert alone.tests == ["a::1"]


def test_who_met_some_stages_before_goes_on_with_the_others() -> None:
    stages = [Stage(["a", "b"]), Stage(["c"]), Stage(["d", "e"])]
    left = [len(after(stages, met)) for met in range(6)]
    assert left == [3, 3, 2, 1, 1, 0]
    assert after(stages, 2) == stages[1:]


def test_the_places_of_tests_are_there() -> None:
    for place in (
        *CERTAIN,
        *SLOW,
        *IN_PROCESSES_ELSE,
        *(each for all_of in IN_PROCESSES.values() for each in all_of),
    ):
        assert Path(place).exists(), place
    file, _, name = WORLDS.partition("::")
    assert f"def {name}(" in Path(file).read_text()


# ------------------------------------------------------------------ what luck may have noticed


class Scripted(Trees):
    """Trees whose verdicts are written down."""

    def __init__(self, *script: tuple[str, str]) -> None:
        self.script = list(script)
        self.met: list[list[str]] = []

    def judge(self, mutant: Mutant, stages: list[Stage]) -> Verdict:
        self.met.append([test for stage in stages for test in stage.tests])
        return Verdict(mutant, *self.script.pop(0))


SOCKETS = "tests/unit/transport/test_x.py::test_a"
PURE = "tests/unit/broker/test_x.py::test_b"


@pytest.mark.parametrize(
    ("script", "word", "met"),
    [
        ([("killed", PURE)], "killed", [[SOCKETS, PURE]]),
        ([("survived", "")], "survived", [[SOCKETS, PURE]]),
        ([("killed", SOCKETS), ("killed", SOCKETS)], "killed", [[SOCKETS, PURE], [SOCKETS]]),
        (
            [("killed", SOCKETS), ("survived", ""), ("survived", "")],
            "survived",
            [[SOCKETS, PURE], [SOCKETS], [PURE]],
        ),
        (
            [("hangs", "over 300 s"), ("hangs", "over 300 s")],
            "hangs",
            [[SOCKETS, PURE], [SOCKETS, PURE]],
        ),
    ],
)
def test_what_may_be_luck_counts_when_it_fails_again_alone(
    mutants: dict[int, Mutant], script: list[tuple[str, str]], word: str, met: list[list[str]]
) -> None:
    trees = Scripted(*script)
    assert trees.judge_certainly(mutants[6], [Stage([SOCKETS, PURE])]).word == word
    assert trees.met == met


def test_a_piece_that_is_over_begins_with_no_mutant(
    tmp_path: Path, mutants: dict[int, Mutant]
) -> None:
    trees = Scripted(("killed", PURE))
    stages = {each: [Stage([PURE])] for each in (mutants[6], mutants[11])}
    assert judge(trees, stages, 1, tmp_path, Kept(None), until=0.0) == []
    assert trees.met == []


def test_what_runs_in_one_thread_is_certain() -> None:
    assert is_certain(PURE)
    assert not is_certain(SOCKETS)
    assert not is_certain("out of time")


def test_a_time_out_names_every_case_of_its_test() -> None:
    stages = [Stage([f"{SOCKETS}[1]", f"{SOCKETS}[2]"]), Stage([PURE])]
    assert named(SOCKETS, stages) == [f"{SOCKETS}[1]", f"{SOCKETS}[2]"]
    assert named("tests/e2e/test_kills.py::test_c", stages) == ["tests/e2e/test_kills.py::test_c"]
    assert named("over 300 s", stages) == []
