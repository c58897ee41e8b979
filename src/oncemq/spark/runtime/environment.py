"""What a Spark session needs around it: the extra installed, a file for stderr, a zip of us."""

import os
import sys
import tempfile
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import util
from pathlib import Path

PACKAGES = ("oncemq", "pyspark_oncemq")


@contextmanager
def stderr_into(path: Path) -> Generator[None]:
    """What is said on stderr meanwhile goes to a file; a process started meanwhile keeps to it.

    Java and Spark greet with a page of warnings and have more to say later, which is of use only
    when something went wrong.
    """
    sys.stderr.flush()
    before = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        os.close(file)


def log_file() -> Path:
    """A new file for what Spark says."""
    handle, path = tempfile.mkstemp(prefix="oncemq-spark-", suffix=".log")
    os.close(handle)
    return Path(path)


def require(names: Sequence[str] = ("pyspark", "pyarrow"), extra: str = "oncemq[spark]") -> None:
    """Say what to install when something is not there; Spark is an extra."""
    for name in names:
        if util.find_spec(name) is None:
            raise ImportError(f"oncemq.spark needs {name}: pip install '{extra}'")


def package_zip() -> Path:
    """This package as one file, for executors that do not have it: `spark.addPyFile(...)`."""
    directory = Path(tempfile.mkdtemp(prefix="oncemq-spark-"))
    path = directory / "oncemq.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in PACKAGES:
            spec = util.find_spec(name)
            assert spec is not None, f"{name} is installed with oncemq"
            root = Path(spec.origin or "").parent
            for file in sorted(root.rglob("*.py")):
                archive.write(file, Path(name) / file.relative_to(root))
    return path
