"""The data source with things that go wrong, each once: in which batch, where, and how.

This module is pickled by value, so the faults reach every process of Spark, wherever it is.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSource

from oncemq.spark.options.writer import sink_options
from oncemq.spark.sink.staging import BATCH_ID, StagedRows
from oncemq.spark.sink.writers import StreamWriter
from oncemq.spark.source.source import OnceMQDataSource

FAULTS = {  # and where each strikes
    "task raises": "half written",
    "task dies": "half written",  # the Python worker, by kill -9
    "executor dies": "half written",  # the JVM around it, and all it holds
    "task is slow": "half written",  # so that it is run a second time, elsewhere
    "driver dies before the write": "write begins",
    "driver dies after the write": "write ends",
    "driver dies before the commit": "commit begins",
    "driver dies after the commit": "commit ends",
    "server dies in the write": "half written",
    "server dies before the commit": "commit begins",
    "server dies after the commit": "commit ends",
    "commit is slow": "commit begins",  # so slow that it is asked for a second time
    "commit raises": "commit begins",
    "commit raises after it published": "commit ends",
}
DRIVER_DIES = tuple(fault for fault in FAULTS if fault.startswith("driver"))
END_A_QUERY = ("commit raises", "commit raises after it published")

NEVER_SECONDS = 600.0  # who waits so long is killed before
SLOW_SECONDS = 1.6  # longer than a client waits for an answer before it asks again
SERVER = "server"  # in the directory of the marks: the process of the server


def faulty(name: str, plan: Mapping[int, str], marks: Path) -> type[DataSource]:
    """A data source `name` in which each batch has its fault, once; a file in `marks` says so."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    struck = Striker(name, dict(plan), str(marks))

    class Named(Faulty):
        striker = struck

        @classmethod
        def name(cls) -> str:
            return name

    return Named


def mark_of(marks: Path, name: str, number: int, fault: str) -> Path:
    """The file that says that it happened."""
    return marks / f"{name} {number} {fault}"


class Striker:
    """What is to go wrong in which batch of a data source."""

    def __init__(self, name: str, plan: dict[int, str], marks: str) -> None:
        self._name, self._plan, self._marks = name, plan, marks

    def at(self, point: str, number: int) -> None:
        """This batch has come so far: if its fault is due here, and was not yet, it happens."""
        fault = self._plan.get(number)
        if fault is None or FAULTS[fault] != point:
            return
        try:
            mark = mark_of(Path(self._marks), self._name, number, fault)
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return  # once
        if fault in DRIVER_DIES:
            time.sleep(NEVER_SECONDS)  # who reads the marks kills it here
        elif fault.startswith("server"):
            os.kill(self._server(), signal.SIGKILL)
        elif fault == "commit is slow":
            server = self._server()
            os.kill(server, signal.SIGSTOP)
            threading.Timer(SLOW_SECONDS, os.kill, (server, signal.SIGCONT)).start()
        elif fault == "task dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "executor dies":
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
            os.kill(int(daemon.split()[1]), signal.SIGKILL)
            time.sleep(NEVER_SECONDS)
        elif fault == "task is slow":
            time.sleep(NEVER_SECONDS)  # Spark kills it when its twin is done
        else:
            raise RuntimeError(f"on purpose: {fault}")

    def _server(self) -> int:
        return int((Path(self._marks) / SERVER).read_text())


class Writer(StreamWriter):
    """The sink, and what happens to it."""

    striker: Striker

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        assert context is not None
        number = int(context.getLocalProperty(BATCH_ID) or -1)

        def rows() -> Iterator[pa.RecordBatch]:
            for each in iterator:
                yield each.slice(0, each.num_rows // 2)
                self.striker.at("half written", number)
                yield each.slice(each.num_rows // 2)

        self.striker.at("write begins", number)
        staged = super().write(rows())
        self.striker.at("write ends", number)
        return staged

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self.striker.at("commit begins", batchId)
        super().commit(messages, batchId)
        self.striker.at("commit ends", batchId)


class Faulty(OnceMQDataSource):
    """The data source, whose sink is hurt."""

    striker: Striker

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        writer = Writer(sink_options(self.options, streaming=True), schema, overwrite=overwrite)
        writer.striker = self.striker
        return writer
