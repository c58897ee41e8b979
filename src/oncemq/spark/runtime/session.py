# pyright: basic
# pyspark's builders are typed loosely.
"""A Spark session with everything in place: Java, the Python of the workers, the source."""

import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.spark.runtime.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SCHEME = "sc://"
DAEMON = "oncemq.spark.runtime.daemon"  # where this package is installed: on this machine
CONNECT = ("grpc", "grpc_status", "pandas", "zstandard")
PACKAGES = ("oncemq", "pyspark_oncemq")
SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.pyspark.python": sys.executable,
}


def session(
    master: str = "local[*]",
    *,
    app: str = "oncemq",
    config: dict[str, str] | None = None,
    remote: str | None = None,
) -> "SparkSession":
    """A Spark session that knows `format("oncemq")`; the one there is already, if there is one.

    Java 17 or newer is found, or the one that pip brought is used; the workers run this Python;
    executors on other machines are sent this package (they need msgspec, pyzmq and pyarrow of
    their own). `remote`, or a `master` like `sc://host`, is the address of a Spark Connect server;
    it has a Java and a Python of its own, with this package installed: Spark does not give streams
    what a client sends.
    """
    require()
    if master.startswith(CONNECT_SCHEME):
        remote = master
    if remote:
        require(CONNECT, "pyspark[connect]")
    is_local = re.fullmatch(r"local(\[.*\])?", remote or master) is not None
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    builder = builder.remote(remote) if remote else builder.master(master)
    settings = dict(config or {})
    if not remote or not remote.startswith(CONNECT_SCHEME):
        os.environ["JAVA_HOME"] = java_home()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        here = {"spark.python.daemon.module": DAEMON} if is_local else {}
        settings = {**SETTINGS, **here, **settings}
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    if remote:
        return spark
    if not is_local:
        spark.sparkContext.addPyFile(str(package_zip()))
    register(spark)
    return spark


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


def register(spark: "SparkSession") -> None:
    """Make `format("oncemq")` known to a session that was made elsewhere.

    Needed where Spark does not find the source by itself: when this package was sent to the
    executors and is not installed there, or when another `pyspark_*` package is broken.
    """
    require()
    from oncemq.spark.source.source import OnceMQDataSource

    if not _is_found(spark, OnceMQDataSource.name()):
        spark.dataSource.register(OnceMQDataSource)


def _is_found(spark: "SparkSession", name: str) -> bool:
    """Whether the source that Spark found by itself will do: registered again, Spark would warn.

    It will not where executors are sent this package: only a source that is registered after
    that is told of it. And over Spark Connect nobody can ask.
    """
    inside = getattr(spark, "_jsparkSession", None)
    if inside is None or spark.sparkContext._python_includes:
        return False
    return inside.sessionState().dataSourceManager().dataSourceExists(name)


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
