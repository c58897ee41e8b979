"""A Spark driver as a process of its own, to be killed: copies a topic to another, once.

python -m tests.spark.driver '{"address": …, "check": …, "faults": {"1": …}}'
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.conftest import CONFIG
from tests.spark.faults import faulty

import oncemq.spark


def main(given: dict[str, Any]) -> None:
    cluster = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    faults = {int(number): fault for number, fault in given["faults"].items()}
    twice = speculation if "task is slow" in faults.values() else {}
    config = {**CONFIG, **cluster, **twice}
    spark = oncemq.spark.session(given["master"], app="driver", config=config)
    spark.sparkContext.setLogLevel("OFF")
    driver = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    spark.dataSource.register(faulty(faults, Path(given["marks"]), driver))
    reading = {"subscribe": "orders", "startingOffsets": "earliest", "minPartitions": "2"}
    query = (
        spark.readStream.format("oncemq")
        .options(server=given["address"], maxOffsetsPerTrigger=given["rows"], **reading)
        .load()
        .select("key", "value")
        .writeStream.format("faulty")
        .options(server=given["address"], topic="copy", checkpointLocation=given["check"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
