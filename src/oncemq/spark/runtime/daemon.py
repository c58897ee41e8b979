"""The process that Spark forks its Python workers from, with what they import in place.

    python -m oncemq.spark.runtime.daemon pyspark.worker      # spark.python.daemon.module

Else every worker of a task imports pandas, pyarrow and this package by itself, which is two
seconds of a core for each, in the first batch and after each one that died. Workers that plan or
commit are few: what they need they import.
"""

import sys
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

OF_TASKS = "pyspark.worker"
IMPORTED = (OF_TASKS, "pandas", "oncemq.spark.source.source", "oncemq.spark.source.batch_reader")

if __name__ == "__main__":
    if OF_TASKS in sys.argv:
        for name in IMPORTED:
            with suppress(ImportError):  # a worker that needs it will say so
                import_module(name)
    manager()
