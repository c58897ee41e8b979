"""What a campaign showed, as a small file: the reliability card is made of these.

Law: a number on the card comes from the file of a run, with its command, date and commit.
A campaign writes its own file, `<name>.json`; the next run of it replaces it. Names of one kind
begin alike (`model-put`, `model-cursor`): the card adds them up.
"""

import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

DIRECTORY = Path("build/proof")
_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one campaign."""

    name: str
    command: str  # what to type to see it again
    when: str  # UTC, to the second
    commit: str  # with a `+` when the tree had changes
    counts: dict[str, float]  # `fault: …` counts how often a fault was injected
    failures: int
    worst: dict[str, float]  # seconds without service, by what caused it


def record(
    name: str,
    command: str,
    counts: Mapping[str, float],
    *,
    failures: int = 0,
    worst: Mapping[str, float] | None = None,
    directory: Path | None = None,
) -> Path:
    """Write what a run showed; the file."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a campaign is named like `crash-log`, not {name!r}")
    proof = Proof(
        name=name,
        command=command,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        counts=dict(counts),
        failures=failures,
        worst=dict(worst or {}),
    )
    directory = directory or DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    temporary = path.with_name(f"{name}.{os.getpid()}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=2) + b"\n")
    temporary.replace(path)
    return path


@dataclass(slots=True)
class RunTally:
    """What a run counts while it goes on."""

    counts: dict[str, float] = field(default_factory=dict[str, float])
    worst: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, what: str, count: float = 1) -> None:
        """So many more."""
        self.counts[what] = self.counts.get(what, 0) + count

    def fault(self, fault: str, times: int = 1) -> None:
        """A fault was injected so often; named as on the card."""
        if times:
            self.add(f"fault: {fault}", times)

    def outage(self, cause: str, seconds: float) -> None:
        """There was no service for so long."""
        self.worst[cause] = max(self.worst.get(cause, 0.0), seconds)


@contextmanager
def campaign(name: str, command: str = "make test") -> Generator[RunTally]:
    """Record what the block counts; when it raises, too, and then with a failure."""
    tally, failures = RunTally(), 1
    try:
        yield tally
        failures = 0
    finally:
        record(name, command, tally.counts, failures=failures, worst=tally.worst)


def load(directory: Path | None = None) -> list[Proof]:
    """Every result there is, by name. A damaged file is an error, not a missing result."""
    paths = sorted((directory or DIRECTORY).glob("*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Proof) for path in paths]


def forget(command: str, directory: Path | None = None) -> None:
    """Remove the results of a command that is about to run: what fails early leaves no old ones."""
    for path in sorted((directory or DIRECTORY).glob("*.json")):
        if msgspec.json.decode(path.read_bytes(), type=Proof).command == command:
            path.unlink()


def commit() -> str:
    """The commit of the tree we are in, with a `+` when it has changes; `unknown` without git."""
    head = _git("rev-parse", "--short=10", "HEAD")
    if not head:
        return "unknown"
    return head + "+" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    forget(" ".join(sys.argv[1:]))
