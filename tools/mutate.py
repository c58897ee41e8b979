"""Mutation testing, on demand: break one statement at a time, and see which test notices.

    python -m tools.mutate cover [--slow]     which tests run which lines (those that changed)
    python -m tools.mutate run --count 200    so many mutants, drawn from --seed
    python -m tools.mutate run --quick ...    who survives the quick choice meets no others
    python -m tools.mutate run --minutes 5 --keep FILE ...    a piece of it: call it again to go on
    python -m tools.mutate run --syncs        every sync left out, one at a time
    python -m tools.mutate run --thin 3       those on lines that no more than three tests run
    python -m tools.mutate run --only broker/state/owners.py:116 [--tests tests/unit/test_x.py]

A mutant meets the tests that run its line, the cheapest first (`tools.stages`); a line that runs
only when its module is imported meets the tests that run anything of the file. A test that fails
without the change, too, does not count. What may be the machine's doing (time that ran out, a
failure of sockets, threads, databases, processes) is tried again, alone, before it counts. Who
survives is printed with its change, for a person to judge: a hole in the tests, or a change that
nobody could notice.
"""

import argparse
import difflib
import math
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tools import pytests
from tools.covering import PLACE
from tools.covers import Coverage, cover
from tools.mutants import AREAS, Mutant, files_of, mutants_of
from tools.stages import Stage, after, is_certain, stages_of

SECONDS_OF_A_TEST = 60  # over it, a quick one hangs, which is noticed too
SECONDS_OF_A_LONG_TEST = 300
SECONDS_MAX = 300  # for the quick tests of one mutant
SECONDS_MAX_OF_LONG_ONES = 400
SECONDS_MAX_UNBROKEN = 1800
TIMED_OUT = "++ Timeout ++"
NOTICED = frozenset({"killed", "timeout", "hangs"})
DECIDED = NOTICED | {"harmless"}  # as a person wrote into the kept verdicts
COPIED = (
    "src", "tests", "tools", "simulator", "benchmarks", "fuzz", "models", "examples", "docs",
    "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml",
)  # fmt: skip


class Verdict(NamedTuple):
    """How a mutant fared: `killed`, by a `timeout`, `hangs`, `survived`, or `unmet` by any test."""

    mutant: Mutant
    word: str
    by: str = ""  # the test that failed
    met: int = 0  # so many tests, and none failed


class Kept:
    """The verdicts so far, in a file: a run that was ended goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._words = {words[0]: words[1:] for words in (line.split("\t") for line in lines)}

    def verdict(self, mutant: Mutant) -> Verdict | None:
        """What was found before."""
        words = self._words.get(mutant.name)
        return Verdict(mutant, words[0], words[1], int(words[2])) if words else None

    def add(self, verdict: Verdict) -> None:
        """One more; a later one of the same mutant counts."""
        if self._path:
            with self._path.open("a") as file:
                words = (verdict.mutant.name, verdict.word, verdict.by, str(verdict.met))
                file.write("\t".join(words) + "\n")


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
                    shutil.copytree(source, copy / name)  # with what is compiled
                elif source.exists():
                    shutil.copy(source, copy / name)
            self._free.put(copy)

    def collect(self, tests: set[str]) -> None:
        """With nothing broken, every test is found."""
        if not tests:  # pytest without a name runs all
            return
        copy = self._free.get()
        done = _run_tests(copy, sorted(tests), "--collect-only")
        self._free.put(copy)
        if done is None or done.code:
            raise SystemExit(f"not all tests are found: cover again ({_last_line(done)})")

    def remove(self) -> None:
        """When all is judged, and no copy is in use."""
        while not self._free.empty():
            shutil.rmtree(self._free.get())

    def judge(self, mutant: Mutant, stages: list[Stage]) -> Verdict:
        """Break one copy, run the tests, mend it again."""
        copy = self._free.get()
        path = copy / mutant.path
        source = path.read_bytes()
        verdict = Verdict(mutant, "unmet")
        met = 0
        try:
            self._write(path, mutant.applied(source))
            for stage in stages:
                if not stage.tests:  # pytest without a name runs all
                    continue
                met += len(stage.tests)
                verdict = _try(copy, mutant, stage)._replace(met=met)
                if verdict.word != "survived":
                    break
        finally:
            self._write(path, source)
            self._free.put(copy)
        return verdict

    def judge_certainly(self, mutant: Mutant, stages: list[Stage]) -> Verdict:
        """The same; a test that may have failed by luck counts when it fails again, alone."""
        verdict = self.judge(mutant, stages)
        passed: set[str] = set()
        while verdict.word in NOTICED and not is_certain(verdict.by):
            suspects = named(verdict.by, stages)
            again = [Stage(suspects)] if suspects else stages
            if verdict.by in passed or self.judge(mutant, again).word in NOTICED:
                break
            passed |= {verdict.by, *suspects}
            verdict = self.judge(mutant, [stage.without(passed) for stage in stages])
        return verdict

    def _write(self, path: Path, source: bytes) -> None:
        """Never at a moment that was there before: Python tells by it whether to compile again."""
        path.write_bytes(source)
        moment = next(self._moments)
        os.utime(path, (moment, moment))

    def failing(self, tests: set[str]) -> set[str]:
        """Those that fail when nothing is broken: that they failed says nothing."""
        copy = self._free.get()
        try:
            done = (
                _run_tests(copy, sorted(tests), "--maxfail=1000") if tests else pytests.Done(0, "")
            )
            return _failed(done.report) if done else set(tests)
        finally:
            self._free.put(copy)


def _try(copy: Path, mutant: Mutant, stage: Stage) -> Verdict:
    each = SECONDS_OF_A_LONG_TEST if stage.are_long else SECONDS_OF_A_TEST
    seconds = SECONDS_MAX_OF_LONG_ONES if stage.are_long else SECONDS_MAX
    done = _run_tests(copy, stage.tests, "-x", each, seconds)
    if done is None:
        return Verdict(mutant, "survived" if stage.are_long else "hangs", f"over {seconds} s")
    if done.code == 0:
        return Verdict(mutant, "survived")
    if TIMED_OUT in done.report:
        return Verdict(mutant, "survived" if stage.are_long else "timeout", _hanging(done.report))
    failed = _failed(done.report)  # none, when the tests cannot be imported
    return Verdict(mutant, "killed", min(failed, default=_last_line(done)))


def named(by: str, stages: list[Stage]) -> list[str]:
    """The tests that the verdict of these stages is due to; none: it names none."""
    met = [test for stage in stages for test in stage.tests]
    those = [test for test in met if by in (test, test.partition("[")[0])]  # or one of its cases
    return those or ([by] if "::" in by else [])


def _hanging(report: str) -> str:
    """The test in which the time ran out."""
    found = re.findall(r'/(tests/[^"]*)", line \d+, in (test_\w+)', report)
    return "::".join(found[-1]) if found else "out of time"


def _failed(report: str) -> set[str]:
    """The tests that a report names as failed, or whose fixtures did."""
    found = re.findall(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", report, re.MULTILINE)
    return set[str](found)


def _last_line(done: pytests.Done | None) -> str:
    return done.report.strip().rpartition("\n")[2] if done else f"over {SECONDS_MAX} s"


def _run_tests(
    copy: Path,
    tests: list[str],
    option: str,
    each: int = SECONDS_OF_A_LONG_TEST,
    seconds: int = SECONDS_MAX_UNBROKEN,
) -> pytests.Done | None:
    # By a thread, which ends the process: Hypothesis would take the exception for a finding of its
    # own, and go on without a limit.
    limit = ["--timeout", str(each), "--timeout-method", "thread"]
    return pytests.run(copy, [*limit, option, *tests], seconds)


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
    coverage = Coverage((root / PLACE).glob("*.json"))
    if arguments.thin is not None:
        chosen = [each for each in chosen if coverage.is_thin(each, arguments.thin)]
    elif not arguments.syncs and not arguments.only:
        chosen = sorted(random.Random(arguments.seed).sample(everything, arguments.count))
    print(f"{len(chosen)} of {len(everything)} mutants, seed {arguments.seed}", flush=True)
    kept = Kept(arguments.keep)
    verdicts: list[Verdict] = []
    meets: dict[Mutant, list[Stage]] = {}
    stages: dict[Mutant, list[Stage]] = {}  # what is left of them
    for each in chosen:
        given = [Stage(arguments.tests)] if arguments.tests else []
        meets[each] = given or stages_of(coverage, each, only_quick=arguments.quick)
        known = kept.verdict(each)
        if known and (known.word in DECIDED or not after(meets[each], known.met)):
            verdicts.append(known)
        else:
            stages[each] = after(meets[each], known.met if known else 0)
    trees = Trees(root, arguments.processes)
    if not arguments.trusting:
        trees.collect({test for each in stages.values() for stage in each for test in stage.tests})
    until = time.monotonic() + 60 * arguments.minutes
    verdicts += judge(trees, stages, arguments.processes, root, kept, until)
    is_last = len(verdicts) == len(chosen)
    failing = trees.failing({each.by for each in verdicts if is_last and "::" in each.by})
    again = {each.mutant for each in verdicts if each.by in failing}
    if again:
        print(f"again, without what fails with nothing broken: {', '.join(failing)}", flush=True)
        less = {each: [stage.without(failing) for stage in meets[each]] for each in again}
        verdicts = [each for each in verdicts if each.mutant not in again]
        verdicts += judge(trees, less, arguments.processes, root, kept)
    trees.remove()
    counts = Counter(each.word for each in verdicts)
    counts["left"] = len(chosen) - counts.total()
    print("  ".join(f"{word} {number}" for word, number in sorted(counts.items())))
    return 1 if counts.keys() & {"survived", "unmet"} else 0


def judge(
    trees: Trees,
    stages: dict[Mutant, list[Stage]],
    processes: int,
    root: Path,
    kept: Kept,
    until: float = math.inf,
) -> list[Verdict]:
    """Try each against its stages; none begins after `until`."""

    def verdict_of(mutant: Mutant) -> Verdict | None:
        if time.monotonic() >= until:
            return None
        known = kept.verdict(mutant)
        verdict = trees.judge_certainly(mutant, stages[mutant])
        return verdict._replace(met=verdict.met + (known.met if known else 0))

    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(processes) as pool:
        judged = [pool.submit(verdict_of, each) for each in stages]
        for verdict in (each.result() for each in as_completed(judged)):
            if not verdict:
                continue
            verdicts.append(verdict)
            kept.add(verdict)
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
    first.add_argument("--slow", action="store_true", help="the slow ones, too, each time anew")
    second = commands.add_parser("run", help="try mutants")
    second.add_argument("--processes", type=int, default=2)
    second.add_argument("--count", type=int, default=200)
    second.add_argument("--seed", type=int, default=1)
    second.add_argument("--syncs", action="store_true", help="every sync, and nothing else")
    second.add_argument("--only", default="", help="those whose name contains this")
    second.add_argument("--thin", type=int, help="on lines that no more than so many tests run")
    second.add_argument("--tests", nargs="+", help="meet these, whichever run the line")
    second.add_argument("--quick", action="store_true", help="meet the quick choice of tests only")
    until = "begin with no mutant after so many minutes"
    second.add_argument("--minutes", type=float, default=math.inf, help=until)
    second.add_argument("--keep", type=Path, help="a file of verdicts, to go on from")
    second.add_argument(
        "--trusting", action="store_true", help="all tests are there: begin at once"
    )
    areas = f"one of {', '.join(AREAS)}, or a folder of the package; all of the former unless given"
    second.add_argument("--area", action="append", help=areas)
    arguments = parser.parse_args()
    if arguments.command == "cover":
        return cover(arguments.processes, slow=arguments.slow)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
