# pyright: basic
# pyspark's builders are typed loosely.
"""A Spark session with everything in place: Java, the Python of the workers, the source."""

import os
import re
import sys
from typing import TYPE_CHECKING

from oncemq.spark.runtime.environment import package_zip, require
from oncemq.spark.runtime.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SCHEME = "sc://"
DAEMON = "oncemq.spark.runtime.daemon"  # where this package is installed: on this machine
CONNECT = ("grpc", "grpc_status", "pandas", "zstandard")
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
    executors on other machines are sent this package (they need msgspec and pyarrow of
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
