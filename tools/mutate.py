"""Mutation testing, on demand: break one statement at a time, and see which test notices.

    python -m tools.mutate cover              which tests run which lines (once for each commit)
    python -m tools.mutate run --count 200    so many mutants, drawn from --seed
    python -m tools.mutate run --syncs        every sync left out, one at a time
    python -m tools.mutate run --only core/owners.py:116 [--tests tests/unit/core/test_new.py]

A mutant meets the fast tests that run its line, the quickest first; a line that runs only when
its module is imported meets the tests that run anything of the file. A test that fails without the
change, too, does not count. Who survives is printed with its change, for a person to judge: a hole
in the tests, or a change that nobody could notice.
"""

import argparse
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from tools import pytests
from tools.covering import PLACE, Covered
from tools.mutants import AREAS, Mutant, files_of, mutants_of

TESTS_FIRST = 25  # most mutants are killed by them
TESTS_MAX = 400  # of those that run a line: more of them say the same
SECONDS_OF_TESTS = 20.0  # as long as they took when they were covered; the quickest in any case
SECONDS_OF_A_QUICK_ONE = 1.0  # the others come last, if there is time left
SECONDS_OF_A_TEST = 30  # over it, it hangs, which is noticed too
SECONDS_MAX = 300  # for all tests of one mutant
SECONDS_MAX_UNBROKEN = 1800
COPIED = (
    "src", "tests", "tools", "benchmarks", "fuzz", "models", "examples", "docs",
    "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml",
)  # fmt: skip


class Verdict(NamedTuple):
    """How one mutant fared: `killed`, `survived`, `hangs`, or `unmet` by any test."""

    mutant: Mutant
    word: str
    by: str = ""  # the test that failed
    met: int = 0  # so many tests, and none failed


class Coverage:
    """Which tests run which lines."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._lines: dict[str, dict[int, set[str]]] = {}
        self._seconds: dict[str, float] = {}
        for place in places:
            covered = msgspec.json.decode(place.read_bytes(), type=Covered)
            self._seconds |= covered.seconds
            tests = list(covered.seconds)
            for path, lines in covered.lines.items():
                known = self._lines.setdefault(path, {})
                for line, numbers in lines.items():
                    ran = {tests[number] for number in numbers if number >= 0}
                    known.setdefault(line, set()).update(ran)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that meet a mutant, the quickest first."""
        lines = self._lines.get(mutant.path, {})
        tests = lines.get(mutant.line) or lines.get(mutant.statement, set[str]())
        if not tests and mutant.on_loading:  # a file of nothing but names: anything may use them
            tests = set[str]().union(*lines.values()) or set(self._seconds)
        return sorted(self._affordable(tests), key=self._seconds.__getitem__)

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


class Trees:
    """Copies of the tree, one for each process, in which mutants are tried."""

    def __init__(self, root: Path, processes: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._moments = count(1)
        for number in range(processes):
            copy = root / PLACE / f"tree-{os.getpid()}-{number}"
            copy.mkdir(parents=True)
            for name in COPIED:
                source = root / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pyc*"))
                elif source.exists():
                    shutil.copy(source, copy / name)
            self._free.put(copy)

    def collect(self, tests: Iterable[str]) -> None:
        """With nothing broken, every test is found; and all that they import is compiled."""
        for _ in range(self._free.qsize()):
            copy = self._free.get()
            done = _run_tests(copy, sorted(tests), "--collect-only")
            self._free.put(copy)
            if done is None or done.code:
                raise SystemExit(f"not all tests are found: cover again ({_last_line(done)})")

    def remove(self) -> None:
        """When all is judged, and no copy is in use."""
        while not self._free.empty():
            shutil.rmtree(self._free.get())

    def judge(self, mutant: Mutant, tests: list[str]) -> Verdict:
        """Break one copy, run the tests, mend it again."""
        if not tests:
            return Verdict(mutant, "unmet", "")
        copy = self._free.get()
        path = copy / mutant.path
        source = path.read_bytes()
        try:
            self._write(path, mutant.applied(source))
            return _run_both(copy, mutant, tests)
        finally:
            self._write(path, source)
            self._free.put(copy)

    def _write(self, path: Path, source: bytes) -> None:
        """Never at a moment that was there before: Python tells by it whether to compile again."""
        path.write_bytes(source)
        moment = next(self._moments)
        os.utime(path, (moment, moment))

    def failing(self, tests: Iterable[str]) -> set[str]:
        """Those that fail when nothing is broken: that they failed says nothing."""
        copy = self._free.get()
        try:
            done = _run_tests(copy, sorted(tests), "--maxfail=1000")
            return _failed(done.report) if done else set(tests)
        finally:
            self._free.put(copy)


def _run_both(copy: Path, mutant: Mutant, tests: list[str]) -> Verdict:
    """First the quickest tests: most mutants go no further, and the others are not imported."""
    verdict = _try(copy, mutant, tests[:TESTS_FIRST])
    if verdict.word == "survived" and tests[TESTS_FIRST:]:
        return _try(copy, mutant, tests[TESTS_FIRST:])._replace(met=len(tests))
    return verdict


def _try(copy: Path, mutant: Mutant, tests: list[str]) -> Verdict:
    done = _run_tests(copy, tests, "-x")
    if done is None:
        return Verdict(mutant, "hangs", f"over {SECONDS_MAX} s")
    if done.code == 0:
        return Verdict(mutant, "survived", met=len(tests))
    failed = _failed(done.report)  # none, when the tests cannot be imported
    return Verdict(mutant, "killed", min(failed, default=_last_line(done)))


def _failed(report: str) -> set[str]:
    """The tests that a report names as failed, or whose fixtures did."""
    found = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", report, re.MULTILINE)
    return set[str](found)


def _last_line(done: pytests.Done | None) -> str:
    return done.report.strip().rpartition("\n")[2] if done else f"over {SECONDS_MAX} s"


def _run_tests(copy: Path, tests: list[str], option: str) -> pytests.Done | None:
    if not tests:  # else pytest runs all there are
        return pytests.Done(0, "")
    seconds = SECONDS_MAX if option == "-x" else SECONDS_MAX_UNBROKEN
    return pytests.run(copy, ["--timeout", str(SECONDS_OF_A_TEST), option, *tests], seconds)


def cover(processes: int) -> int:
    """Run the fast tests, noting which lines each of them runs."""
    shutil.rmtree(PLACE, ignore_errors=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "tools.covering",
        "-n", str(processes), "--dist", "worksteal",
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode


def run(arguments: argparse.Namespace) -> int:
    """Try the mutants; exit code 1 when one survived."""
    root = Path.cwd()
    everything = [
        mutant
        for path in files_of(root / "src" / "oncemq", tuple(arguments.area or AREAS))
        if arguments.only.partition(":")[0] in str(path)
        for mutant in mutants_of(path, root, syncs=arguments.syncs)
    ]
    chosen = [each for each in everything if arguments.only in each.name]
    if not arguments.syncs and not arguments.only:
        chosen = sorted(random.Random(arguments.seed).sample(everything, arguments.count))
    coverage = Coverage((root / PLACE).glob("*.json"))
    print(f"{len(chosen)} of {len(everything)} mutants, seed {arguments.seed}", flush=True)
    trees = Trees(root, arguments.processes)
    tests = {each: arguments.tests or coverage.tests_of(each) for each in chosen}
    trees.collect(set().union(*tests.values()))
    verdicts = _judge(trees, tests, arguments.processes, root)
    failing = trees.failing({each.by for each in verdicts if "::" in each.by})
    again = {each.mutant for each in verdicts if each.by in failing}
    if again:
        print(f"again, without what fails with nothing broken: {', '.join(failing)}", flush=True)
        left = {each: [test for test in tests[each] if test not in failing] for each in again}
        verdicts = [each for each in verdicts if each.mutant not in again]
        verdicts += _judge(trees, left, arguments.processes, root)
    trees.remove()
    counts = Counter(each.word for each in verdicts)
    print("  ".join(f"{word} {number}" for word, number in sorted(counts.items())))
    return 1 if counts.keys() & {"survived", "unmet"} else 0


def _judge(
    trees: Trees, tests: dict[Mutant, list[str]], processes: int, root: Path
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(processes) as pool:
        judged = [pool.submit(trees.judge, each, tests[each]) for each in tests]
        for verdict in (each.result() for each in as_completed(judged)):
            verdicts.append(verdict)
            by = verdict.by or f"{verdict.met} tests"
            print(f"{verdict.word:9} {verdict.mutant.name}  {by}", flush=True)
            if verdict.word in ("survived", "unmet"):
                print(_change(verdict.mutant, root), flush=True)
    return verdicts


def _change(mutant: Mutant, root: Path) -> str:
    before = (root / mutant.path).read_bytes()
    lines = difflib.unified_diff(
        before.decode().splitlines(), mutant.applied(before).decode().splitlines(), n=1, lineterm=""
    )
    return "\n".join(f"    {line}" for line in list(lines)[2:])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("cover", help="note which tests run which lines")
    first.add_argument("--processes", type=int, default=2)
    second = commands.add_parser("run", help="try mutants")
    second.add_argument("--processes", type=int, default=2)
    second.add_argument("--count", type=int, default=200)
    second.add_argument("--seed", type=int, default=1)
    second.add_argument("--syncs", action="store_true", help="every sync, and nothing else")
    second.add_argument("--only", default="", help="those whose name contains this")
    second.add_argument("--tests", nargs="+", help="meet these, whichever run the line")
    second.add_argument("--area", action="append", choices=sorted(AREAS))
    arguments = parser.parse_args()
    return cover(arguments.processes) if arguments.command == "cover" else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
