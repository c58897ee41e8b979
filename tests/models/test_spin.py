"""The models hold, and each fails with any of its switches: a planted bug, or one that was found.

Needs Debian's spin and gcc. A clean model must reach every line it has: one that cannot get
anywhere would hold as well.
"""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator import proof

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.pml"))
MISSING = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING), reason=f"needs {' and '.join(MISSING)}: apt install spin gcc"
    ),
]


@dataclass(frozen=True)
class Verdict:
    """What Spin says of one build of a model."""

    errors: int
    complete: bool
    states: int
    unreached: tuple[str, ...]  # lines never executed, but the ends of endless processes
    said: str


def verdict(model: Path, directory: Path, *switches: str) -> Verdict:
    """Build the model with these switches and search all its states."""
    directory.mkdir()
    run("spin", "-a", *(f"-D{switch}" for switch in switches), str(model), at=directory)
    # not optimized: compiling takes longer than the search
    run(
        "gcc",
        "-O0",
        "-w",
        "-DSAFETY",
        "-DNOFAIR",
        "-DMEMLIM=512",
        "-o",
        "pan",
        "pan.c",
        at=directory,
    )
    said = run("./pan", "-m20000", at=directory)
    lines = re.findall(r'^\t\S+, state \d+, "(.*)"$', said, re.MULTILINE)
    return Verdict(
        errors=int(re.findall(r"errors: (\d+)", said)[0]),
        complete="max search depth too small" not in said and "Search not completed" not in said,
        states=int(float(re.findall(r"([\d.e+]+) states, stored", said)[0])),
        unreached=tuple(line for line in lines if line not in ("-end-", "(1)")),
        said=said,
    )


def run(*command: str, at: Path) -> str:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def switches_of(model: Path, kind: str) -> list[str]:
    return sorted(set(re.findall(rf"^#ifn?def ({kind}_[A-Z_]+)$", model.read_text(), re.MULTILINE)))


def test_there_are_models() -> None:
    assert len(MODELS) >= 5
    assert all(switches_of(model, "BUG") for model in MODELS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_a_model_holds_and_fails_with_each_of_its_switches(model: Path, tmp_path: Path) -> None:
    bugs, found = switches_of(model, "BUG"), switches_of(model, "FOUND")
    with ThreadPoolExecutor(2) as pool:
        builds = [("", tmp_path / "clean"), *((each, tmp_path / each) for each in bugs + found)]
        verdicts = dict(
            zip(
                [switch for switch, _ in builds],
                pool.map(lambda build: verdict(model, build[1], *filter(None, build[:1])), builds),
                strict=True,
            )
        )
    clean = verdicts.pop("")
    seen = {switch for switch, each in verdicts.items() if each.errors}
    held = clean.errors == 0 and clean.complete and not clean.unreached
    counts = {
        "models": 1,
        "held": int(held),
        "states": clean.states,
        "planted": len(bugs),
        "caught": len(seen.intersection(bugs)),
        "found": len(found),
    }
    missed = {*bugs, *found} - seen
    proof.record(f"model-{model.stem}", "make models", counts, failures=len(missed) + (not held))
    assert held, clean.said
    assert not missed
