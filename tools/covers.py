"""Which tests run which lines: what `tools.covering` noted, carried on from commit to commit.

Noting it anew for every test takes long. So it is kept with its commit: later only the files of
tests that changed run again, and a line that moved is looked for where it stands now. Of the slow
tests only those are noted that run the package in their own process.
"""

import difflib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tools import pytests
from tools.covering import PLACE, Covered
from tools.mutants import Mutant

COMMIT = "commit.txt"
SECONDS_OF_TESTS = 20.0  # as long as they took when they were covered; the quickest in any case
SECONDS_OF_A_QUICK_ONE = 1.0  # the others come last, if there is time left
SECONDS_OF_ONE = 5.0  # one that takes longer cannot be told from one that hangs
TESTS_MAX = 400  # of those that run a line: more of them say the same
# Its signals come in the middle of a line, also of coverage's own, which may hold its lock then.
INTERRUPTING = "tests/integration/test_interrupts.py"
SIMULATION = "tests/simulation/test_simulation.py"
WORLDS = f"{SIMULATION}::test_the_first_worlds_break_nothing"
SLOW = (
    SIMULATION,
    "tests/simulation/test_commit_crashes.py",
    "tests/simulation/test_crash_enumeration.py",
    "tests/simulation/test_going_back_crashes.py",
    "tests/simulation/test_lost_machines.py",
    "tests/apps",
    "tests/databases",
    "tests/integration",
    "tests/plugin",
    "tests/relay",
    "tests/unit",
)  # not the planted bugs: that one of them is not caught says nothing of what is broken beside it
FRESH = f"{SIMULATION}::test_fresh_seeds_break_nothing_and_reach_every_mark"  # by luck
RARE = f"{SIMULATION}::test_a_rare_thing_is_seen_in_worlds_that_have_more_of_it"  # of the worlds


class Coverage:
    """Which tests run which lines."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._lines: dict[str, dict[int, set[str]]] = {}
        self._seconds: dict[str, float] = {}
        self._slow: set[str] = set()
        for place in places:
            covered = msgspec.json.decode(place.read_bytes(), type=Covered)
            self._seconds |= covered.seconds
            self._slow |= covered.slow
            tests = list(covered.seconds)
            for path, lines in covered.lines.items():
                known = self._lines.setdefault(path, {})
                for line, numbers in lines.items():
                    ran = {tests[number] for number in numbers if number >= 0}
                    known.setdefault(line, set()).update(ran)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that meet a mutant: those that name its module, the quickest of them first."""
        naming = self._naming(mutant)
        first = sorted(self._affordable(naming), key=self._seconds.__getitem__)
        then = self._affordable(self._running(mutant) - naming)
        return first + sorted(then, key=self._seconds.__getitem__)

    def all_of(self, mutant: Mutant) -> list[str]:
        """Every test that runs it, the quickest first."""
        every = self._running(mutant) | self._naming(mutant)
        return sorted(every, key=self._seconds.__getitem__)

    def is_thin(self, mutant: Mutant, most: int) -> bool:
        """Whether no more than so many tests run its line: survivors are likely there."""
        return not mutant.on_loading and len(self._running(mutant)) <= most

    def is_long(self, test: str) -> bool:
        """Whether it takes so long that running out of time would say nothing."""
        return self.is_slow(test) or self.seconds_of(test) > SECONDS_OF_ONE

    def is_slow(self, test: str) -> bool:
        """Whether it is marked so."""
        return test in self._slow

    def seconds_of(self, test: str) -> float:
        """How long it took when it was noted."""
        return self._seconds.get(test, 0.0)

    def _running(self, mutant: Mutant) -> set[str]:
        lines = self._lines.get(mutant.path, {})
        tests = lines.get(mutant.line) or lines.get(mutant.statement, set[str]())
        if not tests and mutant.on_loading:  # a file of nothing but names: anything may use them
            tests = set[str]().union(*lines.values()) or set(self._seconds)
        return tests

    def _naming(self, mutant: Mutant) -> set[str]:
        """A number at the top of a module may be held by tests that run none of its lines."""
        if not mutant.on_loading:
            return set()
        module = mutant.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        files = {test.partition("::")[0] for test in self._seconds}
        named = {each for each in files if Path(each).exists() and module in Path(each).read_text()}
        return {test for test in self._seconds if test.partition("::")[0] in named}

    def _affordable(self, tests: set[str]) -> list[str]:
        """Some of every file, the quickest of each: those of one file say much the same."""
        ranks: Counter[str] = Counter()
        ranked: list[tuple[bool, int, float, str]] = []
        for seconds, test in sorted((self._seconds[test], test) for test in tests):
            file = test.partition("::")[0]
            ranked.append((seconds > SECONDS_OF_A_QUICK_ONE, ranks[file], seconds, test))
            ranks[file] += 1
        chosen: list[str] = []
        left = SECONDS_OF_TESTS
        for _, _, seconds, test in sorted(ranked):
            if seconds <= left or not chosen:
                chosen.append(test)
                left -= seconds
        return chosen[:TESTS_MAX]


def cover(processes: int, *, slow: bool = False) -> int:
    """Run the fast tests that changed since they last ran, noting which lines each of them runs.

    The slow ones, too, and all of them, if so asked.
    """
    last = PLACE / COMMIT
    now = _git("rev-parse", "HEAD")
    tests = ["tests"]
    if last.exists():
        before = last.read_text().strip()
        tests = [each for each in _changed(before) if Path(each).exists()]
        carry(before, set(_changed(before)))
    else:
        shutil.rmtree(PLACE, ignore_errors=True)
    code = _run(tests, processes, "not slow") if tests else 0
    if slow:
        code = _run(SLOW, processes, "slow") or code
    PLACE.mkdir(parents=True, exist_ok=True)
    last.write_text(now)
    return code


def carry(before: str, changed: set[str]) -> None:
    """What was noted at that commit, without the tests of changed files, at the lines of today."""
    there = set(_git("ls-tree", "-r", "--name-only", before, "src").splitlines())
    for place in list(PLACE.glob("*.json")):
        covered = msgspec.json.decode(place.read_bytes(), type=Covered)
        tests = list(covered.seconds)
        kept = [test for test in tests if test.partition("::")[0] not in changed]
        numbers = {test: number for number, test in enumerate(kept)}
        renumbered = {-1: -1} | {
            number: numbers[test] for number, test in enumerate(tests) if test in numbers
        }
        lines: dict[str, dict[int, list[int]]] = {}
        for path, noted in covered.lines.items():
            if path not in there or not Path(path).exists():
                continue  # noted of work that was not committed, or gone since
            old = _git("show", f"{before}:{path}").splitlines()
            moved = moved_lines(old, Path(path).read_text().splitlines())
            lines[path] = {
                moved[line]: [renumbered[each] for each in ran if each in renumbered]
                for line, ran in noted.items()
                if line in moved
            }
        seconds = {test: covered.seconds[test] for test in kept}
        slow = covered.slow & seconds.keys()
        place.write_bytes(msgspec.json.encode(Covered(seconds, lines, slow)))


def moved_lines(before: list[str], now: list[str]) -> dict[int, int]:
    """Where each line stands now; one that was rewritten, where its successor stands."""
    moved: dict[int, int] = {}
    matcher = difflib.SequenceMatcher(None, before, now, autojunk=False)
    for word, start, end, new_start, new_end in matcher.get_opcodes():
        if word in ("equal", "replace"):
            for each in range(min(end - start, new_end - new_start)):
                moved[start + each + 1] = new_start + each + 1
    return moved


def _changed(before: str) -> list[str]:
    """The files of tests that are not as they were then."""
    names = _git("diff", "--name-only", before, "--", "tests").splitlines()
    return [name for name in names if Path(name).name.startswith("test_")]


def _run(tests: Iterable[str], processes: int, marks: str) -> int:
    command = [
        sys.executable, "-m", "pytest", "-q", "-m", marks, "-p", "tools.covering",
        "-n", str(processes), "--dist", "worksteal", "--ignore", INTERRUPTING,
        "--deselect", FRESH, "--deselect", RARE, *tests,
    ]  # fmt: skip
    return subprocess.run(command, check=False, env=os.environ | pytests.FEW_WORLDS).returncode


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.rstrip("\n")
