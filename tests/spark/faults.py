"""The data source with things that go wrong, each once: in which batch, where, and how.

A class made within a function is pickled by value, so the fault reaches every process of Spark.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

from oncemq.spark.sink_options import sink_options
from oncemq.spark.source import OnceMQDataSource
from oncemq.spark.staging import BATCH_ID, Staged
from oncemq.spark.writers import StreamWriter

FAULTS = (
    "task raises",  # after it staged part of its rows
    "task dies",  # the Python worker, by kill -9
    "executor dies",  # the JVM around it, and all it holds
    "task is slow",  # so that it is run a second time, elsewhere
    "driver dies before the commit",
    "driver dies after the commit",
    "server dies before the commit",
    "server dies after the commit",
    "commit raises after it published",
)


def faulty(faults: dict[int, str], marks: Path, victim: int) -> type[DataSource]:
    """A data source `faulty` in which each batch has its fault, once; a file in `marks` says so.

    `victim` is the process of the driver or of the server, if one of these is to die.
    """

    def strike(fault: str, number: int) -> None:
        if faults.get(number) != fault:
            return
        try:
            os.close(os.open(marks / f"{number} {fault}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return  # once
        if fault.startswith(("driver", "server")):
            os.kill(victim, signal.SIGKILL)
            if fault.startswith("server"):
                return  # the write goes on, and waits for it
        elif fault == "task dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "executor dies":
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
            os.kill(int(daemon.split()[1]), signal.SIGKILL)
            time.sleep(60)  # the end is near
        elif fault == "task is slow":
            time.sleep(60)  # longer than the twin takes; Spark kills this one then
        raise RuntimeError(f"on purpose: {fault}")

    class Writer(StreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
            context = TaskContext.get()
            assert context is not None
            number = int(context.getLocalProperty(BATCH_ID) or -1)

            def rows() -> Iterator[pa.RecordBatch]:
                for each in iterator:
                    yield each.slice(0, each.num_rows // 2)
                    for each_fault in FAULTS[:4]:
                        strike(each_fault, number)
                    yield each.slice(each.num_rows // 2)

            return super().write(rows())

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            strike("driver dies before the commit", batchId)
            strike("server dies before the commit", batchId)
            super().commit(messages, batchId)
            strike("server dies after the commit", batchId)
            strike("driver dies after the commit", batchId)
            strike("commit raises after it published", batchId)

    class Faulty(OnceMQDataSource):
        @classmethod
        def name(cls) -> str:
            return "faulty"

        def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
            return Writer(sink_options(self.options, streaming=True), schema, overwrite=overwrite)

    return Faulty
