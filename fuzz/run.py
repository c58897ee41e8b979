"""Fuzz with atheris: `python fuzz/run.py [--seconds N] [--keep] [TARGET ...]`.

Each target runs in a process of its own, from the kept corpus and what earlier runs added under
build/fuzz. What makes a target raise is left there as build/fuzz/TARGET-crash-*, and the exit code
is 1. With --keep, the smallest inputs that reached something new are kept, too.
"""

import argparse
import re
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha1
from importlib import import_module
from pathlib import Path
from typing import Any

import kept

WORK = Path("build/fuzz")
INPUT_BYTES_MAX = 400
KEPT_MAX = 150  # of a target
SECONDS = 15


def main() -> int:
    arguments = argparse.ArgumentParser(description="Fuzz with atheris.")
    arguments.add_argument("targets", nargs="*", help="which of them; none: all")
    arguments.add_argument("--seconds", type=int, default=SECONDS, help="for each target")
    arguments.add_argument("--keep", action="store_true", help="add to the kept corpus")
    given = arguments.parse_args()
    known = [path.stem for path in sorted(kept.HERE.glob("corpus/*.txt"))]
    if unknown := [name for name in given.targets if name not in known]:
        sys.stderr.write(f"no such target: {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    failures = 0
    for name in given.targets or known:
        failures += fuzz(name, given.seconds, f" TARGET={name}" if given.targets else "")
        if given.keep:
            renew(name)
    return 1 if failures else 0


def fuzz(name: str, seconds: int, chosen: str) -> int:
    """Run one target for so long; 1 when it found something."""
    from simulator import proof  # not at the top: the child imports oncemq instrumented

    folder = WORK / name
    unpack(name, folder)
    began = time.monotonic()
    said, code = child(
        name,
        str(folder),
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={WORK}/{name}-",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    )
    took = time.monotonic() - began
    inputs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said)
    counts = {
        "inputs": int(inputs[0]) if inputs else 0,
        "seconds": round(took),
        "found": len(kept.found(name)),
    }
    failed = 1 if code else 0
    command = f"make fuzz SECONDS={seconds}{chosen}"
    proof.record(f"fuzz-{name}", command, counts, failures=failed)
    sys.stdout.write(f"{name:9} {counts['inputs']:>10,} inputs in {took:.0f} s")
    sys.stdout.write(f", FOUND something:\n{said[-3000:]}\n" if failed else ", nothing found\n")
    sys.stdout.flush()
    return failed


def renew(name: str) -> None:
    """Keep what reached something new, beside what is kept already: the smallest of it."""
    old = kept.corpus(name)
    new = {path.read_bytes() for path in (WORK / name).iterdir()}.difference(old)
    good = [data for data in sorted(new, key=len) if returns(name, data)]
    inputs = (old + good)[:KEPT_MAX]
    sys.stdout.write(f"{kept.keep(name, inputs)} holds {len(inputs)} inputs\n")


def returns(name: str, data: bytes) -> bool:
    """Whether the input shows nothing; what was found and reported is among the others."""
    from targets import TARGETS

    try:
        TARGETS[name](data)
    except Exception:
        return False
    return True


def unpack(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in kept.corpus(name):
        (folder / sha1(data).hexdigest()).write_bytes(data)


def child(*arguments: str) -> tuple[str, int]:
    """Another process with this file: libFuzzer ends the one it runs in."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout, done.returncode


def in_child(name: str, arguments: list[str]) -> None:
    atheris: Any = import_module("atheris")  # not in .venv: `make fuzz` puts it on the path
    with atheris.instrument_imports(include=["oncemq", "targets", "damage"]):
        import targets

    target = targets.TARGETS[name]
    # What was found and reported must not end every run until it is mended.
    reported = {error for error, _ in kept.found(name)}

    def once(data: bytes) -> None:
        try:
            target(data)
        except Exception as error:
            if type(error).__name__ not in reported:
                raise

    with suppress(KeyboardInterrupt):
        atheris.Setup([sys.argv[0], *arguments], once)
        atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        in_child(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
