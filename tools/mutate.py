"""Mutation testing, on demand: break one statement at a time, and see which test notices.

    python -m tools.mutate cover              which tests run which lines (once for each commit)
    python -m tools.mutate run --count 200    so many mutants, drawn from --seed
    python -m tools.mutate run --syncs        every sync left out, one at a time
    python -m tools.mutate run --only core/owners.py:116

A mutant meets the fast tests that run its line, the quickest first; a line that runs only when
its module is imported meets the tests that run anything of the file. Who survives is printed with
its change, for a person to judge: a hole in the tests, or a change that nobody could notice.
"""

import argparse
import difflib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from tools.covering import IMPORTED, PLACE
from tools.mutants import AREAS, Mutant, files_of, mutants_of

TESTS_MAX = 400  # of those that run a line: more of them say the same
SECONDS_MAX = 300  # for all tests of one mutant; over it, it hangs, which is noticed too
COPIED = ("src", "tests", "tools", "fuzz", "models", "examples", "docs", "README.md")


class Covered(msgspec.Struct):
    """What one process of the covering run wrote."""

    lines: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]


class Verdict(NamedTuple):
    """How one mutant fared: `killed`, `survived`, `hangs`, or `unmet` by any test."""

    mutant: Mutant
    word: str
    by: str


class Coverage:
    """Which tests run which lines."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._lines: dict[str, dict[int, set[str]]] = {}
        self._seconds: dict[str, float] = {}
        for place in places:
            covered = msgspec.json.decode(place.read_bytes(), type=Covered)
            self._seconds |= covered.seconds
            for path, lines in covered.lines.items():
                known = self._lines.setdefault(path, {})
                for line, tests in lines.items():
                    known.setdefault(int(line), set()).update(tests)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that meet a mutant, the quickest first."""
        lines = self._lines.get(mutant.path, {})
        tests = lines.get(mutant.line, set())
        if tests <= {IMPORTED}:
            tests = set[str]().union(*lines.values()) if tests else set[str]()
        known = sorted(tests - {IMPORTED}, key=lambda test: self._seconds.get(test, 0.0))
        return known[:TESTS_MAX]


class Trees:
    """Copies of the tree, one for each process, in which mutants are tried."""

    def __init__(self, root: Path, processes: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(processes):
            copy = root / PLACE / f"tree-{number}"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir(parents=True)
            for name in (*COPIED, "pyproject.toml"):
                source = root / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pyc*"))
                elif source.exists():
                    shutil.copy(source, copy / name)
            self._free.put(copy)

    def judge(self, mutant: Mutant, tests: list[str]) -> Verdict:
        """Break one copy, run the tests, mend it again."""
        if not tests:
            return Verdict(mutant, "unmet", "")
        copy = self._free.get()
        path = copy / mutant.path
        source = path.read_bytes()
        try:
            path.write_bytes(mutant.applied(source))
            return _run_tests(copy, mutant, tests)
        finally:
            path.write_bytes(source)
            self._free.put(copy)


def _run_tests(copy: Path, mutant: Mutant, tests: list[str]) -> Verdict:
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / ".hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True,
            timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Verdict(mutant, "hangs", f"over {SECONDS_MAX} s")
    if done.returncode == 0:
        return Verdict(mutant, "survived", f"{len(tests)} tests")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Verdict(mutant, "killed", failed[0] if failed else f"exit {done.returncode}")


def cover(processes: int) -> int:
    """Run the fast tests, noting which lines each of them runs."""
    shutil.rmtree(PLACE, ignore_errors=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "tools.covering",
        "-n", str(processes),
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode


def run(arguments: argparse.Namespace) -> int:
    """Try the mutants; exit code 1 when one survived."""
    root = Path.cwd()
    everything = [
        mutant
        for path in files_of(root / "src" / "oncemq", tuple(arguments.area or AREAS))
        for mutant in mutants_of(path, root, syncs=arguments.syncs)
    ]
    chosen = [each for each in everything if arguments.only in each.name]
    if not arguments.syncs and not arguments.only:
        chosen = sorted(random.Random(arguments.seed).sample(everything, arguments.count))
    coverage = Coverage((root / PLACE).glob("*.json"))
    print(f"{len(chosen)} of {len(everything)} mutants, seed {arguments.seed}", flush=True)
    trees = Trees(root, arguments.processes)
    counts: dict[str, int] = {}
    with ThreadPoolExecutor(arguments.processes) as pool:
        for verdict in pool.map(lambda each: trees.judge(each, coverage.tests_of(each)), chosen):
            counts[verdict.word] = counts.get(verdict.word, 0) + 1
            print(f"{verdict.word:9} {verdict.mutant.name}  {verdict.by}", flush=True)
            if verdict.word in ("survived", "unmet"):
                print(_change(verdict.mutant, root), flush=True)
    print("  ".join(f"{word} {number}" for word, number in sorted(counts.items())))
    return 1 if counts.keys() & {"survived", "unmet"} else 0


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
    second.add_argument("--area", action="append", choices=sorted(AREAS))
    arguments = parser.parse_args()
    return cover(arguments.processes) if arguments.command == "cover" else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
