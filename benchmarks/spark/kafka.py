"""Kafka and Spark's connector to it, fetched through Maven where Maven is at hand.

One server (KRaft), with Kafka's own defaults but for the one copy: its answer to a put with
acks=all comes before anything is synced to a disk. A topic may be told to sync first
(`flush.messages=1`), which is what OnceMQ does always.
"""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from oncemq.spark.runtime.java import java_home

SERVER = "4.3.1"
CLIENTS = "3.9.2"  # what Spark's connector is made with
POOL = "2.12.1"
OLDER = ("4.2.0", "4.1.1", "4.0.0")  # of the connector, when there is none for this Spark yet
SCALA = "2.13"
HEAP = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as its own script has it

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oncemq</groupId><artifactId>bench</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_{scala}</artifactId>
    <version>{version}</version>
  </dependency></dependencies>
</project>
"""

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
"""


class Unavailable(Exception):
    """Kafka is not to be had here; the words say why."""


def fetch(directory: Path) -> None:
    """The jars of the server and of the connector into `directory`, once."""
    if (directory / "complete").exists():
        return
    if shutil.which("mvn") is None:
        raise Unavailable("there is no mvn on PATH, so Kafka was not fetched")
    print(f"fetching Kafka {SERVER} and Spark's connector through Maven ...", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pom.xml").write_text(POM.format(scala=SCALA, version=SERVER))
    if not _maven(directory, "copy-dependencies", f"-DoutputDirectory={directory / 'server'}"):
        raise Unavailable(f"Maven could not fetch Kafka {SERVER}")
    for name in ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10"):
        _fetch_one(directory, f"org.apache.spark:{name}_{SCALA}", (pyspark.__version__, *OLDER))
    _fetch_one(directory, "org.apache.kafka:kafka-clients", (CLIENTS,))
    _fetch_one(directory, "org.apache.commons:commons-pool2", (POOL,))
    (directory / "complete").touch()


def _fetch_one(directory: Path, artifact: str, versions: tuple[str, ...]) -> None:
    """The first version that there is."""
    for version in versions:
        where = f"-DoutputDirectory={directory / 'connector'}"
        if _maven(directory, "copy", f"-Dartifact={artifact}:{version}", where):
            return
    raise Unavailable(f"Maven has no {artifact} of version {' or '.join(versions)}")


def _maven(directory: Path, goal: str, *settings: str) -> bool:
    command = ["mvn", "--batch-mode", f"dependency:{goal}", *settings]
    with (directory / "maven.log").open("a") as log:
        done = subprocess.run(
            command, cwd=directory, stdout=log, stderr=log, timeout=900, check=False
        )
    return done.returncode == 0


def connector(directory: Path) -> str:
    """The class path of Spark's connector."""
    return ":".join(str(jar) for jar in sorted((directory / "connector").glob("*.jar")))


def connector_name(directory: Path) -> str:
    """Which connector it is: it may be older than this Spark."""
    return next((directory / "connector").glob("spark-sql-kafka*.jar")).stem


class Kafka:
    """A running server."""

    def __init__(self, directory: Path, scratch: Path) -> None:
        port, controller = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        settings = scratch / "server.properties"
        settings.write_text(
            PROPERTIES.format(port=port, controller=controller, data=scratch / "kafka")
        )
        java = [f"{java_home()}/bin/java", *HEAP, "-cp", str(directory / "server" / "*")]
        format_ = ["kafka.tools.StorageTool", "format", "-t", "b25jZW1xLWJlbmNoLTEyMw"]
        with (scratch / "kafka.log").open("w") as log:
            subprocess.run(
                [*java, *format_, "-c", str(settings)], stdout=log, stderr=log, check=True
            )
            self._process = subprocess.Popen(
                [*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log
            )
        try:
            self._wait(port)
        except BaseException:
            self.stop()
            raise

    def _wait(self, port: int) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise Unavailable("Kafka did not start within two minutes")

    def create(self, spark: SparkSession, topic: str, partitions: int, **config: str) -> None:
        """A topic, made through the client that the connector brought."""
        jvm: Any = spark.sparkContext._jvm
        optional, admin = jvm.java.util.Optional, jvm.org.apache.kafka.clients.admin
        made = admin.NewTopic(topic, optional.of(partitions), optional.empty())
        made = made.configs({name.replace("_", "."): value for name, value in config.items()})
        with_server = admin.Admin.create({"bootstrap.servers": self.address})
        try:
            with_server.createTopics([made]).all().get()
        finally:
            with_server.close()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
